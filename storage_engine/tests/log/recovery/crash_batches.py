"""Record batches for crash tests, made fast: encoded once, then copied with other times and
producers.
"""

import random
from functools import cache, lru_cache
from typing import NamedTuple

import pyarrow as pa

from storage_engine.protocol.records.record_batch import (
    BatchHeader,
    iter_headers,
    read_header,
    seal,
)
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.log.compaction_support import Row, rows_of

KEYS = 6


class Template(NamedTuple):
    """An encoded batch, and the milliseconds of its records after its base timestamp."""

    data: bytes
    deltas_ms: tuple[int, ...]


class SentBatch(NamedTuple):
    """A batch for the log: the bytes in a writable buffer, its records' times."""

    data: memoryview
    timestamps_ms: tuple[int, ...]


class StoredBatch(NamedTuple):
    """A batch as it stands in a file."""

    header: BatchHeader
    data: bytes


@cache
def templates() -> tuple[Template, ...]:
    generator = random.Random(7)
    made = []
    for number in range(60):
        count = generator.choice((1, 1, 2, 3, 5))
        deltas = tuple(generator.randrange(40) for _ in range(count))
        codec = generator.choice((*["none"] * 16, "gzip", "snappy", "lz4", "zstd"))
        (batch,) = encode_batches(
            pa.array(
                [
                    None if generator.random() < 0.1 else b"%d." % number * generator.randrange(40)
                    for _ in range(count)
                ],
                pa.binary(),
            ),
            pa.array([b"key %d" % generator.randrange(KEYS) for _ in range(count)], pa.binary()),
            timestamps_ms=pa.array([1000 + delta for delta in deltas], pa.int64()),
            compression=codec,
        )
        first = read_header(batch.data).base_timestamp - 1000
        made.append(Template(bytes(batch.data), tuple(delta - first for delta in deltas)))
    return tuple(made)


def batch_of(
    generator: random.Random,
    *,
    timestamp_ms: int,
    producer: tuple[int, int, int],
    base_offset: int = 0,
    epoch: int = -1,
) -> SentBatch:
    template = generator.choice(templates())
    buffer = bytearray(template.data)
    header = read_header(buffer)._replace(
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms + max(template.deltas_ms),
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )
    seal(buffer, 0, header)
    times = tuple(timestamp_ms + delta for delta in template.deltas_ms)
    return SentBatch(memoryview(buffer), times)


def rows_in(data: bytes) -> list[Row]:
    """The records of a batch. Decoding costs milliseconds, and most batches are copies of a few."""
    header = read_header(data)
    neutral = bytearray(data)
    plain = header._replace(base_offset=0, partition_leader_epoch=0, base_timestamp=0)
    unknown = plain._replace(max_timestamp=0, producer_id=-1, producer_epoch=-1, base_sequence=-1)
    seal(neutral, 0, unknown)
    offset, timestamp_ms = header.base_offset, header.base_timestamp
    return [
        Row(offset + row.offset, row.key, row.value, timestamp_ms + row.timestamp_ms)
        for row in _neutral_rows(bytes(neutral))
    ]


@lru_cache(maxsize=4000)
def _neutral_rows(data: bytes) -> list[Row]:
    return rows_of(memoryview(data))


def batches_in(data: bytes | memoryview) -> list[StoredBatch]:
    return [
        StoredBatch(header, bytes(data[position : position + header.size_in_bytes]))
        for position, header in iter_headers(memoryview(data))
    ]
