"""Shared by the tests of transactions: producers that write keyed records, markers, and a reader
with read_committed as a client has it.
"""

import pyarrow as pa

from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.fetched_parts import committed
from storage_engine.protocol.records.record_batch import TRANSACTIONAL_BIT, read_header, seal
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches

NO_PRODUCER = (-1, -1, -1)


def transactional(batch: bytes | memoryview) -> memoryview:
    """The batch, said to be part of a transaction."""
    buffer = memoryview(bytearray(batch))
    header = read_header(buffer)
    seal(buffer, 0, header._replace(attributes=header.attributes | TRANSACTIONAL_BIT))
    return buffer


def next_sequence(log: PartitionLog, producer_id: int, epoch: int = 0) -> int:
    entry = log.producer_state.get(producer_id)
    if entry is None or entry.epoch != epoch or not entry.batches:
        return 0
    return (entry.batches[-1].last_sequence + 1) & 0x7FFFFFFF


def encoded(
    records: list[tuple[bytes, bytes]], producer: tuple[int, int, int] = NO_PRODUCER
) -> memoryview:
    producer_id, epoch, sequence = producer
    (batch,) = encode_batches(
        pa.array([value for _, value in records], pa.binary()),
        pa.array([key for key, _ in records], pa.binary()),
        timestamps_ms=pa.array([1000] * len(records), pa.int64()),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return memoryview(bytearray(batch.data))


def write(
    log: PartitionLog,
    producer_id: int | None,
    *records: tuple[bytes, bytes],
    epoch: int = 0,
    leader_epoch: int = 0,
) -> int:
    """Appends a batch in the producer's transaction (None: of no producer); its base offset."""
    if producer_id is None:
        batch = encoded(list(records))
    else:
        producer = producer_id, epoch, next_sequence(log, producer_id, epoch)
        batch = transactional(encoded(list(records), producer))
    return log.leader_appends.append(batch, leader_epoch=leader_epoch, now_ms=5000).base_offset


def end(
    log: PartitionLog,
    producer_id: int,
    *,
    commits: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
    now_ms: int = 5000,
) -> int:
    """Appends a marker; its offset."""
    marker = TransactionMarker(commits, coordinator_epoch)
    return log.leader_appends.append_marker(
        producer_id, epoch, marker, leader_epoch=leader_epoch, now_ms=now_ms
    ).base_offset


def commit(log: PartitionLog, producer_id: int, **options) -> int:
    return end(log, producer_id, commits=True, **options)


def abort(log: PartitionLog, producer_id: int, **options) -> int:
    return end(log, producer_id, commits=False, **options)


def seen(
    log: PartitionLog,
    start: int | None = None,
    *,
    high_watermark: int | None = None,
    isolated: bool = True,
    max_bytes: int = 300,
) -> list[tuple[int, bytes, bytes]]:
    """(offset, key, value) of all that a reader from `start` on sees, fetch by fetch."""
    high_watermark = log.log_end_offset if high_watermark is None else high_watermark
    bound = log.last_stable_offset(high_watermark) if isolated else high_watermark
    position = log.log_start_offset if start is None else start
    found: list[tuple[int, bytes, bytes]] = []
    while (piece := log.reads.read(position, max_bytes=max_bytes, max_offset=bound)) is not None:
        aborted = log.reads.aborted_transactions(position, piece.end_offset) if isolated else []
        named = [(each.producer_id, each.first_offset) for each in aborted]
        for part in committed(piece.view(), named):
            rows = decode_batches(part, start_offset=position)
            found += zip(
                rows.offsets.to_pylist(), rows.keys.to_pylist(), rows.values.to_pylist(),
                strict=True,
            )  # fmt: skip
        assert piece.end_offset > position
        position = piece.end_offset
    return found


def values(rows: list[tuple[int, bytes, bytes]]) -> list[bytes]:
    return [value for _, _, value in rows]


def transactions_of(log: PartitionLog) -> tuple:
    """All that a log knows of transactions and producers, times of ours aside."""
    states = log.producer_state
    return (
        dict(states.transactions.ongoing),
        {
            entry.producer_id: (entry.epoch, entry.coordinator_epoch, tuple(entry.batches))
            for entry in states
        },
    )


def aborted_of(log: PartitionLog) -> list[tuple]:
    """Every entry of every transaction index."""
    return [
        tuple(segment.transaction_index.entry(number))
        for segment in log.segments
        for number in range(len(segment.transaction_index))
    ]


def filled(log, rounds: int = 16):
    """Producers 1 to 3 in turns, some of whose transactions are aborted; the last are open."""
    for number in range(rounds):
        for producer in (1, 2, 3):
            write(log, producer, (b"%d" % producer, b"%d of %d" % (number, producer)))
        write(log, None, (b"0", b"%d plain" % number))
        for producer in (1, 2, 3):
            if producer != number % 3:
                abort(log, producer) if (number + producer) % 2 else commit(log, producer)
    return log


def copy(source, target) -> None:
    """As a follower does."""
    while target.log_end_offset < source.log_end_offset:
        piece = source.reads.read(target.log_end_offset, max_bytes=5000)
        target.follower_appends.append(memoryview(bytes(piece.view())))
