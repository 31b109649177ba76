"""Rates of librdkafka through confluent-kafka, and its latencies at a steady rate.

Rule: a producer loops over `produce`, one call a record, as programs do that have one record at a
time; the cost of this loop in Python is in the client's own ceiling.
"""

import importlib.util
import random
import threading
import time
from typing import TYPE_CHECKING

from benchmarks.beside_kafka.processor_time import seconds_of
from benchmarks.clients.loads import PARTITIONS, Figures, ProducerLoad, latency_name
from benchmarks.support.brokers import Brokers
from benchmarks.support.rounds import percentile
from storage_engine.client.closing import Closing
from storage_engine.tools.errors import CommandError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_FLUSH_S = 60.0
_SILENCE_S = 30.0
_POLL_EVERY = 1_000
_VALUE_BYTES = 100
_QUIET = {"log_level": "2"}
"""Settings with which librdkafka does not log that a peer has gone."""


def check_installed() -> None:
    """CommandError if confluent-kafka is not installed."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise CommandError("confluent-kafka is not installed: pip install confluent-kafka")


def produce(servers: str, topic: str, load: ProducerLoad) -> float:
    """Return records a second, until all are acknowledged."""
    from confluent_kafka import Producer

    producer = Producer({**_QUIET, "bootstrap.servers": servers, "acks": "all", **load.settings})
    value = random.Random(0).randbytes(load.value_bytes)
    errors: list[KafkaError] = []
    acknowledged = 0

    def delivered(error: "KafkaError | None", _: "Message") -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            errors.append(error)

    started = time.perf_counter()
    for number in range(load.records):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    producer.flush(_FLUSH_S)
    took = time.perf_counter() - started
    _check(f"librdkafka on {servers}", load.records, acknowledged, errors)
    return load.records / took


def consume(servers: str, topic: str, records: int) -> float:
    """Return records a second, from the beginning of all partitions."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(_reader(servers))
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        read = 0
        started = last = time.perf_counter()
        while read < records:
            found = [each for each in consumer.consume(10_000, 0.5) if each.error() is None]
            now = time.perf_counter()
            if found:
                read, last = read + len(found), now
            elif now - last > _SILENCE_S:
                raise CommandError(f"{servers} gave {read:,} of {records:,} records to librdkafka")
        return read / (time.perf_counter() - started)
    finally:
        consumer.close()


def request_latencies(brokers: Brokers, topic: str, rate: int, seconds: int) -> Figures:
    """Send records at a steady rate, each at once. Return the milliseconds until acknowledgement
    and until a consumer of the topic has the record, and the brokers' processor time."""
    with _Arrivals(brokers.bootstrap_servers, topic) as arrivals:
        producer = _SteadyProducer(brokers.bootstrap_servers, topic)
        # Leaders are known, and the consumer waits for records, before anything counts.
        producer.send(rate, 1)
        arrivals.wait_for(producer.sent)
        warm = producer.sent
        before = seconds_of(brokers.pids)
        producer.send(rate, seconds)
        arrivals.wait_for(producer.sent)
        took = seconds_of(brokers.pids) - before
        acknowledged, read = producer.latencies_ms[warm:], arrivals.latencies_ms[warm:]
    figures = {
        **_of_acknowledgements(acknowledged),
        "read-p50": percentile(read, 50),
        "read-p99": percentile(read, 99),
        "cpu": took / len(acknowledged) * 1e6,
    }
    return {latency_name(rate, name): figure for name, figure in figures.items()}


def acknowledged_alone(servers: str, topic: str, rate: int, seconds: int) -> Figures:
    """Return the latencies of a peer that only acknowledges: there is nothing to consume."""
    producer = _SteadyProducer(servers, topic)
    producer.send(rate, 1)
    warm = producer.sent
    producer.send(rate, seconds)
    figures = _of_acknowledgements(producer.latencies_ms[warm:])
    return {latency_name(rate, name): figure for name, figure in figures.items()}


def _of_acknowledgements(latencies_ms: list[float]) -> dict[str, float]:
    return {
        "ack-p50": percentile(latencies_ms, 50),
        "ack-p99": percentile(latencies_ms, 99),
    }


class _SteadyProducer:
    """Sends at a rate; a record's value is the time at which the producer got it."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._servers = servers
        self._topic = topic
        settings = {"bootstrap.servers": servers, "acks": "all", "linger.ms": "0"}
        self._producer = Producer({**_QUIET, **settings})
        self.sent = 0
        self.latencies_ms: list[float] = []

    def send(self, rate: int, seconds: int) -> None:
        """Send for so long, and wait for all acknowledgements; CommandError when one fails."""
        errors: list[KafkaError] = []
        began, done = time.perf_counter(), 0
        while done < rate * seconds:
            wait_s = began + done / rate - time.perf_counter()
            # Acknowledgements come meanwhile.
            self._producer.poll(max(wait_s, 0))
            if time.perf_counter() >= began + done / rate:
                self._give(errors)
                done += 1
        self._producer.flush(_FLUSH_S)
        _check(f"librdkafka on {self._servers}", self.sent, len(self.latencies_ms), errors)

    def _give(self, errors: "list[KafkaError]") -> None:
        at = time.perf_counter()

        def delivered(error: "KafkaError | None", _: "Message") -> None:
            if error is None:
                self.latencies_ms.append((time.perf_counter() - at) * 1000)
            else:
                errors.append(error)

        value = repr(at).encode().ljust(_VALUE_BYTES)
        self._producer.produce(self._topic, value, on_delivery=delivered)
        self.sent += 1


class _Arrivals(Closing):
    """A consumer of the whole topic, in a thread, which notes each record's age at arrival."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._servers = servers
        self._consumer = Consumer(_reader(servers))
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-consumer", daemon=True)
        self.latencies_ms: list[float] = []

    def __enter__(self) -> "_Arrivals":
        self._thread.start()
        return self

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def wait_for(self, records: int) -> None:
        """Wait until so many records have come; CommandError when they don't."""
        deadline = time.monotonic() + _SILENCE_S
        while len(self.latencies_ms) < records:
            if time.monotonic() > deadline:
                found = len(self.latencies_ms)
                raise CommandError(f"{self._servers} gave {found:,} of {records:,} records")
            time.sleep(0.01)

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            value = None if message is None or message.error() else message.value()
            if value is not None:
                age_s = time.perf_counter() - float(value)
                self.latencies_ms.append(age_s * 1000)


def _reader(servers: str) -> dict[str, str | bool]:
    """Return settings of a consumer without a group, for which librdkafka needs a name anyway."""
    return {
        **_QUIET,
        "bootstrap.servers": servers,
        "group.id": "bench",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }


def _check(who: str, sent: int, acknowledged: int, errors: "list[KafkaError]") -> None:
    if errors:
        raise CommandError(f"{who}: {len(errors):,} records failed, the first with '{errors[0]}'")
    if acknowledged < sent:
        raise CommandError(f"{who}: {acknowledged:,} of {sent:,} records were acknowledged")
