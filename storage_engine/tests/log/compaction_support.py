"""Shared by the tests of compaction: keyed records in, a naive model beside, whole passes run at
once.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.log.support import open_log

DAY_MS = 24 * 3600 * 1000
BUFFER_BYTES = 1 << 20

CONFIG = LogConfig(
    segment_bytes=1500,
    index_interval_bytes=200,
    file_delete_delay_ms=0,
    cleanup_policy="compact",
    min_cleanable_dirty_ratio=0.0,
)


@dataclass(frozen=True)
class Row:
    """A record as a reader sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def put(
    log: PartitionLog,
    records: list[tuple[bytes | None, bytes | None]],
    *,
    compression: str = "none",
    timestamps_ms: list[int] | None = None,
    epoch: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    now_ms: int = 5000,
) -> int:
    """Appends one batch; its base offset."""
    producer_id, producer_epoch, base_sequence = producer
    (batch,) = encode_batches(
        pa.array([value for _, value in records], pa.binary()),
        pa.array([key for key, _ in records], pa.binary()),
        timestamps_ms=pa.array(timestamps_ms or [1000] * len(records), pa.int64()),
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return log.leader_appends.append(batch.data, leader_epoch=epoch, now_ms=now_ms).base_offset


def rows(log: PartitionLog, offset: int | None = None, max_bytes: int = 700) -> list[Row]:
    """All records from `offset` on, as readers get them, piece by piece."""
    position = log.log_start_offset if offset is None else offset
    result: list[Row] = []
    while (piece := log.reads.read(position, max_bytes=max_bytes)) is not None:
        assert piece.end_offset > position
        result += rows_of(piece.view(), position)
        position = piece.end_offset
    assert position == log.log_end_offset
    return result


def rows_of(view: memoryview, start_offset: int = 0) -> list[Row]:
    decoded = decode_batches(view, start_offset=start_offset)
    return [
        Row(*fields)
        for fields in zip(
            decoded.offsets.to_pylist(),
            decoded.keys.to_pylist(),
            decoded.values.to_pylist(),
            decoded.timestamps_ms.to_pylist(),
            strict=True,
        )
    ]


def compact(
    log: PartitionLog,
    *,
    now_ms: int = 1_000_000,
    high_watermark: int | None = None,
    buffer_bytes: int = BUFFER_BYTES,
) -> bool:
    """One pass, if one is due; whether there was."""
    log.flush()
    end = log.log_end_offset if high_watermark is None else high_watermark
    plan = log.compaction.plan(now_ms, end)
    if plan is None:
        return False
    job = log.compaction.begin(plan, keys_max_bytes=buffer_bytes, now_ms=now_ms)
    while True:
        try:
            job.work()
        except Exception as error:
            failure = log.cleaning.failed(job, error)
            if failure is not None:
                raise failure from error
            raise
        if not log.cleaning.advance(job):
            return True


def newest_of(records: list[Row]) -> dict[bytes | None, Row]:
    return {row.key: row for row in records}


def files_of(log: PartitionLog) -> set[str]:
    return {path.name for path in Path(log.directory).iterdir()}


def fill_keys(log, keys, rounds, *, compression="none", size=60, per_batch=5):
    """Writes every key once a round."""
    for number in range(rounds):
        for begin in range(0, keys, per_batch):
            put(
                log,
                [
                    (b"key-%d" % key, b"%d:" % number + bytes(size))
                    for key in range(begin, min(keys, begin + per_batch))
                ],
                compression=compression,
                timestamps_ms=[1000 + number] * (min(keys, begin + per_batch) - begin),
            )


def fill_keys_from(log, epoch, count):
    for number in range(count):
        put(log, [(b"filler", b"%d" % number + bytes(80))], epoch=epoch)


def reopened(path, log, config=CONFIG, **options):
    log.close()
    return open_log(
        path,
        config,
        clean=True,
        recovery_point=log.log_end_offset,
        first_dirty_offset=log.cleaning.first_dirty_offset,
        **options,
    )
