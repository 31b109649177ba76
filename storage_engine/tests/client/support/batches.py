"""Batches for the logs of a fake cluster: with records, or with a number that nobody decodes."""

import struct
from collections.abc import Sequence

import pyarrow as pa

from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    iter_headers,
    seal,
)
from storage_engine.protocol.records.record_encoder import EncodedBatch, iter_encoded
from storage_engine.tests.client.fake_cluster import FakeCluster, FakePartition


def numbered_batch(
    number: int, *, record_count: int = 3, padding: int = 0, base_offset: int = 0
) -> EncodedBatch:
    """A sealed batch that says it has `record_count` records; its last 8 bytes are `number`."""
    data = bytearray(HEADER_BYTES) + bytes(padding) + struct.pack(">q", number)
    header = BatchHeader(
        base_offset=base_offset,
        length=len(data) - LENGTH_END,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=record_count - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=record_count,
    )
    seal(data, 0, header)
    return EncodedBatch(data=memoryview(data), record_count=record_count)


def append_batches(fake: FakeCluster, count: int = 1, topic: str = "t") -> None:
    """Appends batches with the numbers from 0 on to the first partition of a topic."""
    for number in range(count):
        fake.partition(topic).append(bytes(numbered_batch(number).data))


def append_records(
    fake: FakeCluster, values: Sequence[bytes], topic: str = "t", partition: int = 0
) -> None:
    """Appends one batch with a record for each value."""
    (batch,) = iter_encoded(pa.array(values, pa.binary()))
    fake.partition(topic, partition).append(bytes(batch.data))


def values_of(partition: FakePartition) -> list[int]:
    """The numbers in the batches of `numbered_batch`, in the order of the log."""
    return [_value(batch) for batch in partition.batches]


def _value(batch: bytes) -> int:
    (_, header), *rest = iter_headers(batch)
    assert not rest
    return int(struct.unpack_from(">q", batch, header.size_in_bytes - 8)[0])
