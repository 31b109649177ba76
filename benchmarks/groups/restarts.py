"""Ten of Headrace's own consumers, each closed and started again: how long records wait."""

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from benchmarks.groups.brokers import TOPIC, Coordinator, Sides
from benchmarks.groups.results import Figures
from storage_engine.client import Consumer, Producer
from storage_engine.tools.errors import CommandError

CONSUMERS = 10
PARTITIONS = 20
_PAUSE_S = 0.02
"""Between two records of a partition: a wait longer than it is the group's."""
_POLL_MS = 100
_SHARED_S = 120.0
_QUIET_S = 5.0
_LOOK_S = 0.05
_STOP_S = 30.0


class Waits:
    """The longest time from when a record was written until it was read, by partition."""

    def __init__(self) -> None:
        self._longest_s = [0.0] * PARTITIONS
        self._lock = threading.Lock()

    def read(self, partition: int, written_s: float, now_s: float) -> None:
        with self._lock:
            self._longest_s[partition] = max(self._longest_s[partition], now_s - written_s)

    def take(self) -> list[float]:
        """Return the longest since the last call."""
        with self._lock:
            found, self._longest_s = self._longest_s, [0.0] * PARTITIONS
        return found


class _Thread:
    """A thread that works again and again until it is closed, and tells its error then."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._ends = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self._work()
        except Exception as error:  # noqa: BLE001 - told by `check`
            self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._ends.set()
        self._thread.join(_STOP_S)
        self.check()


class _Reading:
    """A consumer that reads in a thread of its own."""

    def __init__(self, broker: Coordinator, protocol: str, waits: Waits) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": f"restarts-{protocol}",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([TOPIC])
        self._waits = waits
        self._thread = _Thread(self._poll)

    def _poll(self) -> None:
        for record in self._consumer.poll(_POLL_MS):
            self._waits.read(record.partition, float(record.value or b""), time.monotonic())

    def owned(self) -> int:
        self._thread.check()
        return len(self._consumer.assignment)

    def close(self) -> None:
        try:
            self._thread.close()
        finally:
            self._consumer.close()


class _Group:
    """All consumers, and the producer that they read from. Use as a context manager."""

    def __init__(self, broker: Coordinator, protocol: str) -> None:
        self._broker = broker
        self._protocol = protocol
        self.waits = Waits()
        self._consumers: list[_Reading] = []
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        self._writing = _Thread(self._write)

    def _write(self) -> None:
        for partition in range(PARTITIONS):
            value = b"%.6f" % time.monotonic()
            self._producer.send(TOPIC, value, partition=partition)
        time.sleep(_PAUSE_S)

    def start(self) -> None:
        self._consumers.append(_Reading(self._broker, self._protocol, self.waits))

    def stop_oldest(self) -> None:
        self._consumers.pop(0).close()

    def wait_until_shared(self) -> None:
        until_s = time.monotonic() + _SHARED_S
        each = PARTITIONS // CONSUMERS
        while any(consumer.owned() != each for consumer in self._consumers):
            self._writing.check()
            if time.monotonic() > until_s:
                raise CommandError(f"ten consumers do not share after {_SHARED_S:.0f} s")
            time.sleep(_LOOK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._writing.close()
            for consumer in self._consumers:
                consumer.close()
        finally:
            self._producer.close()


def measure(sides: Sides, side: str, args: argparse.Namespace) -> Figures:
    """Return the figures of one side, of both protocols."""
    del args
    found: dict[str, float] = {}
    with sides.running(side, {}) as broker:
        broker.create(PARTITIONS)
        for protocol in ("classic", "consumer"):
            found |= _measured(broker, protocol)
    return found


def _measured(broker: Coordinator, protocol: str) -> Figures:
    with _Group(broker, protocol) as group:
        for _ in range(CONSUMERS):
            group.start()
        group.wait_until_shared()
        time.sleep(_QUIET_S)
        group.waits.take()
        time.sleep(_QUIET_S)
        quiet = group.waits.take()
        begun_s = time.monotonic()
        restarted: list[list[float]] = []
        for _ in range(CONSUMERS):
            group.stop_oldest()
            group.start()
            group.wait_until_shared()
            # What waited is read, too.
            time.sleep(1.0)
            restarted.append(group.waits.take())
        took_s = time.monotonic() - begun_s - CONSUMERS
    return {
        f"{protocol}: longest wait of a record when nothing changes, ms": 1000 * max(quiet),
        f"{protocol}: longest wait of a record, ms": 1000 * max(map(max, restarted)),
        f"{protocol}: longest wait at a restart, median of partitions, ms": 1000
        * statistics.median(wait_s for each in restarted for wait_s in each),
        f"{protocol}: until all ten are restarted, s": took_s,
    }
