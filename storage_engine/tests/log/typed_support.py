"""Shared by the tests of typed logs: rows in, as typed batches, and rows out."""

from collections.abc import Sequence
from uuid import UUID

import pyarrow as pa

from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import TopicSchema, new_schema
from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.records.record_batch import (
    Codec,
    iter_headers,
    patch,
    patch_producer,
)
from storage_engine.protocol.typed.kept_rows import OpenTypedBatch
from storage_engine.protocol.typed.typed_batch import is_typed
from storage_engine.protocol.typed.typed_encoder import iter_typed
from storage_engine.tests.log.compaction_support import Row

TOPIC_ID = UUID(int=77)
FIRST = new_schema(parse_ddl("id STRING NOT NULL, name STRING, size INT"), ["id"])
SCHEMA: TopicSchema = FIRST.evolved(
    parse_ddl("id STRING NOT NULL, name STRING, size BIGINT, extra DOUBLE")
)
"""Two versions: the second has wider sizes, and a column more."""

Pair = tuple[str, str | None]
"""A key, and a name; None is a tombstone."""


def typed_batch(
    pairs: Sequence[Pair],
    *,
    version: int = 1,
    compression: str = "none",
    timestamps_ms: Sequence[int] | None = None,
) -> bytearray:
    """One batch; each row has the length of its name as its size."""
    ids = pa.array([key for key, _ in pairs], pa.string())
    names = pa.array([name for _, name in pairs], pa.string())
    sizes = [None if name is None else len(name) for _, name in pairs]
    gone = [name is None for _, name in pairs]
    columns = {"id": ids, "name": names, "size": pa.array(sizes, pa.int32())}
    if version == 2:
        columns["size"] = pa.array(sizes, pa.int64())
        columns["extra"] = pa.array(
            [None if name is None else 0.5 for _, name in pairs], pa.float64()
        )
    (encoded,) = iter_typed(
        pa.RecordBatch.from_pydict(columns),
        SCHEMA,
        SCHEMA.version(version),
        TOPIC_ID,
        timestamps=pa.array(timestamps_ms or [1000] * len(pairs), pa.int64()),
        tombstones=pa.array(gone) if any(gone) else None,
        compression=Codec[compression.upper()],
        batch_bytes=4 << 20,
    )
    return bytearray(encoded.data)


def put_typed(
    log: PartitionLog,
    pairs: Sequence[Pair],
    *,
    epoch: int = 0,
    producer: tuple[int, int, int] | None = None,
    **batch,
) -> int:
    """Append one batch as a follower does; return its base offset."""
    data = typed_batch(pairs, **batch)
    if producer is not None:
        producer_id, producer_epoch, sequence = producer
        patch_producer(
            data,
            0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
    base_offset = log.log_end_offset
    patch(data, 0, base_offset=base_offset, leader_epoch=epoch)
    log.follower_appends.append(memoryview(data))
    return base_offset


def typed_rows_of(view: memoryview, start_offset: int = 0) -> list[Row]:
    """The rows of whole batches, tombstones with the value None; also checks what each says of its
    other columns."""
    found = []
    for position, header in iter_headers(view):
        if not is_typed(header):
            continue
        opened = OpenTypedBatch(header, view[position : position + header.size_in_bytes], SCHEMA)
        names, sizes = (opened.values(name).to_pylist() for name in ("name", "size"))
        assert sizes == [None if name is None else len(name) for name in names]
        assert opened.is_tombstone.tolist() == [name is None for name in names]
        found += [
            Row(offset, key.encode(), None if name is None else name.encode(), time)
            for offset, key, name, time in zip(
                opened.offsets.tolist(),
                opened.values("id").to_pylist(),
                names,
                opened.timestamps_ms.tolist(),
                strict=True,
            )
        ]
    return [row for row in found if row.offset >= start_offset]


def typed_rows(log: PartitionLog, max_bytes: int = 700) -> list[Row]:
    """All rows, as readers get them, piece by piece."""
    position = log.log_start_offset
    result: list[Row] = []
    while (piece := log.reads.read(position, max_bytes=max_bytes)) is not None:
        assert piece.end_offset > position
        view = piece.view()
        assert all(is_typed(header) or not header.records_count for _, header in iter_headers(view))
        result += typed_rows_of(view, position)
        position = piece.end_offset
    assert position == log.log_end_offset
    return result
