"""Producers that write numbered records to many partitions until told to stop, and remember what
was acknowledged.

Every value is `<writer>:<number>:` and padding; the numbers of a writer go up in every partition.
"""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import Producer

from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_encoder import encode_batches

KEYS = 60
PADDING_BYTES = 120
BURST = 12
BATCH_BYTES = 16_000
"""Below the segments of any topic here: what has waited for a leader comes in large batches."""
PAUSE_S = 0.04
"""Between bursts: some 300 records a second."""

DELIVERY_TIMEOUT_MS = 300_000
FLUSH_TIMEOUT_S = 300

UNKNOWN_OFFSET = -1
"""Of a record that was acknowledged without saying where it is."""


@dataclass(slots=True)
class Written:
    """What one writer was told."""

    writer: str
    acknowledged: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    """Number -> offset."""
    failures: list[str] = field(default_factory=list)

    def note(self, tp: TopicPartition, number: int, offset: int) -> None:
        self.acknowledged.setdefault(tp, {})[number] = offset

    def count(self) -> int:
        # A copy first: the writer's thread adds to it meanwhile.
        return sum(len(numbers) for numbers in list(self.acknowledged.values()))


def key_of(writer: str, number: int) -> bytes:
    return b"%s-%d" % (writer.encode(), number % KEYS)


def value_of(writer: str, number: int, generator: random.Random) -> bytes:
    return b"%s:%d:" % (writer.encode(), number) + generator.randbytes(PADDING_BYTES)


def parse(value: bytes) -> tuple[str, int]:
    """The writer and the number."""
    writer, number, _ = value.split(b":", 2)
    return writer.decode(), int(number)


def _confluent(
    written: Written,
    servers: str,
    partitions: Sequence[TopicPartition],
    stop: threading.Event,
    idempotent: bool,
) -> None:
    generator = random.Random(written.writer)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": idempotent,
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "retry.backoff.max.ms": 300,
            "log_level": 0,
        }
    )

    def delivered(error: object, message: object) -> None:
        if error is not None:
            written.failures.append(str(error))
            return
        _, number = parse(message.value())  # type: ignore[attr-defined]
        tp = TopicPartition(message.topic(), message.partition())  # type: ignore[attr-defined]
        offset = message.offset()  # type: ignore[attr-defined]
        written.note(tp, number, UNKNOWN_OFFSET if offset is None or offset < 0 else offset)

    number = 0
    while not stop.is_set():
        topic, partition = generator.choice(partitions)
        for _ in range(BURST):
            producer.produce(
                topic,
                key=key_of(written.writer, number),
                value=value_of(written.writer, number, generator),
                partition=partition,
                on_delivery=delivered,
            )
            number += 1
        producer.poll(0)
        stop.wait(PAUSE_S)
    left = producer.flush(FLUSH_TIMEOUT_S)
    if left:
        written.failures.append(f"{left} records were never answered")


def confluent_idempotent(
    written: Written, servers: str, partitions: Sequence[TopicPartition], stop: threading.Event
) -> None:
    _confluent(written, servers, partitions, stop, True)


def confluent_plain(
    written: Written, servers: str, partitions: Sequence[TopicPartition], stop: threading.Event
) -> None:
    _confluent(written, servers, partitions, stop, False)


def native_plain(
    written: Written, servers: str, partitions: Sequence[TopicPartition], stop: threading.Event
) -> None:
    """Our own client, not idempotent, one request at a time so that retries keep the order."""
    generator = random.Random(written.writer)
    sent: dict[TopicPartition, list[int]] = {tp: [] for tp in partitions}
    """First numbers of the batches that are not acknowledged yet, oldest first."""

    def delivered(tp: TopicPartition, base_offset: int, count: int) -> None:
        first = sent[tp].pop(0)
        for index in range(count):
            offset = base_offset + index if base_offset >= 0 else UNKNOWN_OFFSET
            written.note(tp, first + index, offset)

    number = 0
    try:
        with (
            Cluster(servers) as cluster,
            BatchWriter(
                cluster,
                idempotent=False,
                max_in_flight=1,
                delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
                on_delivered=delivered,
            ) as batches,
        ):
            while not stop.is_set():
                tp = generator.choice(partitions)
                numbers = range(number, number + BURST)
                number += BURST
                (batch,) = encode_batches(
                    pa.array([value_of(written.writer, n, generator) for n in numbers]),
                    keys=pa.array([key_of(written.writer, n) for n in numbers]),
                )
                sent[tp].append(numbers[0])
                batches.append(tp, batch)
                batches.poll(round(1000 * PAUSE_S))
            batches.flush()
    except HeadraceError as error:
        written.failures.append(str(error))


WRITERS = {
    "idempotent": confluent_idempotent,
    "plain": confluent_plain,
    "native": native_plain,
}


@contextmanager
def writing(servers: str, partitions: Sequence[TopicPartition]) -> Iterator[dict[str, Written]]:
    """All writers at work within the block; after it, everything they sent is answered."""
    stop = threading.Event()
    written = {name: Written(name) for name in WRITERS}
    threads = [
        threading.Thread(target=run, args=(written[name], servers, partitions, stop), daemon=True)
        for name, run in WRITERS.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield written
    finally:
        stop.set()
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        for thread in threads:
            thread.join(max(1.0, deadline - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "a writer does not come to its end"
