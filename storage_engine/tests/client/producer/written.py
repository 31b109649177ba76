"""What tests write, how brokers refuse it, and what is in a log then."""

from collections.abc import Callable

from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.client.fake_cluster import Asked, FakePartition, Fault
from storage_engine.tests.client.support.batches import numbered_batch

T0 = TopicPartition("t", 0)


def write(
    writer: BatchWriter, count: int, *partitions: TopicPartition, start: int = 0, padding: int = 0
) -> None:
    """`count` batches to each partition (none: to T0), numbered from `start` on."""
    for number in range(start, start + count):
        for tp in partitions or (T0,):
            writer.append(tp, numbered_batch(number, padding=padding))


def on_produce(
    *faults: Fault | ErrorCode | None,
) -> Callable[[Asked], Fault | ErrorCode | None]:
    """One fault per Produce request, then none."""

    def fault(asked: Asked) -> Fault | ErrorCode | None:
        if asked.api != "Produce" or asked.number > len(faults):
            return None
        return faults[asked.number - 1]

    return fault


def rows_of(partition: FakePartition) -> list[tuple[bytes | None, bytes | None]]:
    """(key, value) of each record in the log."""
    rows: list[tuple[bytes | None, bytes | None]] = []
    for batch in partition.batches:
        decoded = decode_batches(batch)
        rows += zip(decoded.keys.to_pylist(), decoded.values.to_pylist(), strict=True)
    return rows
