"""Producers that send a numbered record every few milliseconds, and note when each is acknowledged.

One is librdkafka's, which Headrace does not install; the other is Headrace's own. Both are
idempotent, with acks=all, linger.ms=0 and otherwise their defaults, unless settings are given.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from storage_engine.client import Producer
from storage_engine.client.closing import Closing
from storage_engine.client.fetching.bulk_reader import BulkReader
from storage_engine.client.producer.record_future import RecordMetadata
from storage_engine.tools.errors import CommandError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

SEND_INTERVAL_S = 0.005
START_S = 60.0
FLUSH_S = 120.0


_MARK = b"number "


def record_of(number: int) -> bytes:
    """Return the value of the record with this number."""
    return _MARK + str(number).encode()


class SteadyProducer(Closing):
    """Sends to partition 0 of a topic from entry to exit."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._acknowledged: list[tuple[float, int]] = []
        self._sent_s: list[float] = []
        """By number, in seconds since 1970."""
        self.failed = 0
        self._thread = threading.Thread(target=self._run, name="bench-producer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.until_acknowledged(time.time(), START_S)
        return self

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def until_acknowledged(self, after_s: float, timeout_s: float) -> None:
        """Wait for an acknowledgement after that time, in seconds since 1970."""
        deadline_s = time.monotonic() + timeout_s
        while self.last_s() <= after_s:
            if time.monotonic() > deadline_s:
                raise CommandError(f"nothing was acknowledged to a producer for {timeout_s:.0f} s")
            time.sleep(0.01)

    def last_s(self) -> float:
        """Return when the last acknowledgement came, in seconds since 1970; 0 before the first."""
        with self._lock:
            return self._acknowledged[-1][0] if self._acknowledged else 0.0

    def longest_gap_s(self, since_s: float) -> float:
        """Return the longest time between two acknowledgements, the second after `since_s`."""
        with self._lock:
            times = [at_s for at_s, _ in self._acknowledged]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        after = [gap for gap, later in zip(gaps, times[1:], strict=True) if later > since_s]
        return max(after, default=0.0)

    def latencies_ms(self, since_s: float, until_s: float) -> list[float]:
        """Return how long the records waited for their acknowledgement that were sent then."""
        with self._lock:
            acknowledged = list(self._acknowledged)
        waits = ((self._sent_s[number], at_s) for at_s, number in acknowledged)
        return [(at_s - sent_s) * 1000 for sent_s, at_s in waits if since_s <= sent_s < until_s]

    def numbers(self) -> list[int]:
        """Return the numbers of the acknowledged records."""
        with self._lock:
            return [number for _, number in self._acknowledged]

    def _note(self, number: int, *, failed: bool) -> None:
        with self._lock:
            if failed:
                self.failed += 1
            else:
                self._acknowledged.append((time.time(), number))

    def _paced(self, wait: Callable[[float], int | None]) -> Iterator[int]:
        """Yield the number of each record when it is due, until the producer is closed. `wait` may
        return early. What was due while the machine had no time for us is due at once."""
        due_s = time.monotonic()
        for number in itertools.count():
            while (left_s := due_s - time.monotonic()) > 0:
                wait(left_s)
            if self._stop.is_set():
                return
            self._sent_s.append(time.time())
            yield number
            due_s += SEND_INTERVAL_S

    def _run(self) -> None:
        raise NotImplementedError


class RdkafkaProducer(SteadyProducer):
    """A steady producer by confluent-kafka."""

    def __init__(
        self, servers: str, topic: str, settings: Mapping[str, str | float] | None = None
    ) -> None:
        super().__init__(servers, topic)
        self._settings = dict(settings or {})

    def _run(self) -> None:
        from confluent_kafka import Producer as Rdkafka

        common = {"acks": "all", "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        producer = Rdkafka({"bootstrap.servers": self._servers, **common, **self._settings})
        for number in self._paced(producer.poll):
            producer.produce(
                self._topic,
                record_of(number),
                partition=0,
                on_delivery=partial(self._delivered, number),
            )
        producer.flush(FLUSH_S)

    def _delivered(self, number: int, error: "KafkaError | None", _: "Message") -> None:
        self._note(number, failed=error is not None)


class OwnProducer(SteadyProducer):
    """A steady producer by `storage_engine.client.Producer`."""

    def _run(self) -> None:
        with Producer({"bootstrap.servers": self._servers, "linger.ms": 0}) as producer:
            for number in self._paced(time.sleep):
                future = producer.send(self._topic, record_of(number), partition=0)
                future.add_done_callback(partial(self._done, number))

    def _done(self, number: int, future: "Future[RecordMetadata]") -> None:
        self._note(number, failed=future.exception() is not None)


def lost_and_doubled(servers: str, topic: str, acknowledged: list[int]) -> tuple[int, int]:
    """Return how many acknowledged numbers are missing in the topic, and how many records in it are
    further copies of another."""
    stored: Counter[bytes] = Counter()
    with BulkReader({"bootstrap.servers": servers}) as reader:
        for split in reader.splits([topic]):
            for batch in reader.read(split):
                values = batch.column("value").to_pylist()
                stored.update(value for value in values if value and value.startswith(_MARK))
    lost = sum(record_of(number) not in stored for number in acknowledged)
    return lost, sum(count - 1 for count in stored.values())
