"""Measures what clients see of a failover, by the metadata of the remaining brokers and a steady
producer.

Each broker is asked over a connection of its own, so that one which is late is not covered by
another.
"""

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self

from benchmarks.support.log_batches import sealed_batch
from storage_engine.broker.controller.watches import BROKERS_WATCH_FIRED
from storage_engine.client.addresses import Address
from storage_engine.client.closing import Closing
from storage_engine.client.cluster import Cluster
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.net.limits import BufferPool
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import (
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
)
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.records.record_encoder import EncodedBatch
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.local_cluster import LocalCluster

BATCH_BYTES = 256

_POLL_S = 0.05
_TIMEOUT_MS = 60_000
_SEND_INTERVAL_MS = 5
_LOG_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ")


class Survivors(Closing):
    """The brokers that are left, each over its own connection."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self.bootstrap_servers = ",".join(f"{host}:{port}" for host, port in addresses)
        self._connections = [
            BrokerConnection.open(each, "bench", Deadline.after(_TIMEOUT_MS), BufferPool())
            for each in addresses
        ]

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def controller_id(self) -> int:
        """Return the controller, according to the first of the brokers."""
        return _ask(self._connections[0], []).controller_id

    def metadata_size(self) -> int:
        """Return the bytes of an answer with all topics, of the first of the brokers."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        connection = self._connections[0]
        deadline = Deadline.after(_TIMEOUT_MS)
        connection.send(METADATA, request, deadline, answered=False)
        return len(connection.socket.receive(deadline))

    def until_controller_is_not(self, old: int, deadline: Deadline) -> None:
        """Wait until all brokers name another live controller."""
        for connection in self._connections:
            while not _has_controller(_ask(connection, []), old):
                _pause(deadline, "a new controller was named")

    def until_led(
        self,
        topic: str,
        partitions: int,
        deadline: Deadline,
        as_wanted: Callable[[MetadataPartition], bool],
    ) -> None:
        """Wait until each broker's metadata has a live leader for all partitions, and each
        partition is as wanted."""
        for connection in self._connections:
            while True:
                answer = _ask(connection, [topic])
                live = {broker.broker_id for broker in answer.brokers}
                rows = [row for each in answer.topics for row in each.partitions]
                if len(rows) == partitions and all(
                    row.leader in live and as_wanted(row) for row in rows
                ):
                    break
                _pause(deadline, f"all {partitions} partitions had their leaders")

    def write_to_all(self, topic: str, deadline: Deadline) -> None:
        """Wait until each partition has acknowledged a batch for all its replicas."""
        left: set[int] | None = None
        while left is None or left:
            answer = _ask(self._connections[0], [topic])
            at = {broker.broker_id: (broker.host, broker.port) for broker in answer.brokers}
            led: dict[Address, list[int]] = {}
            for row in answer.topics[0].partitions:
                if row.leader in at and (left is None or row.partition in left):
                    led.setdefault(at[row.leader], []).append(row.partition)
            if left is None:
                left = {row.partition for row in answer.topics[0].partitions}
            left -= self._write(topic, led)
            if left:
                _pause(deadline, "all partitions accepted writes")

    def _write(self, topic: str, led: dict[Address, list[int]]) -> set[int]:
        """Return the partitions that acknowledged a batch, of those that each broker leads."""
        batch = sealed_batch(BATCH_BYTES)
        asked = [each for each in self._connections if each.address in led]
        for connection in asked:
            rows = [ProducePartition(topic, p, batch) for p in led[connection.address]]
            request = ProduceRequest(None, -1, _TIMEOUT_MS, rows)
            connection.send(PRODUCE, request, Deadline.after(_TIMEOUT_MS))
        done: set[int] = set()
        for connection in asked:
            answer = connection.receive(Deadline.after(_TIMEOUT_MS))
            done.update(row.partition for row in answer.partitions if not row.error_code)
        return done


class Watched:
    """A cluster whose brokers come and go, as clients see it."""

    def __init__(self, cluster: LocalCluster, ready_ms: int) -> None:
        """`ready_ms`: the limit for a killed broker to check its logs and get in sync."""
        self.cluster = cluster
        self.ready_ms = ready_ms

    def survivors(self, but: int | None = None) -> Survivors:
        """Return connections to all brokers but one."""
        brokers = self.cluster.state.brokers
        return Survivors([(each.host, each.port) for each in brokers if each.id != but])

    def controller(self) -> int:
        with self.survivors() as everybody:
            return everybody.controller_id()

    def not_controller(self) -> int:
        controller = self.controller()
        return next(each.id for each in self.cluster.state.brokers if each.id != controller)

    def start(self, broker: int) -> None:
        self.cluster.start_broker(broker, timeout_s=self.ready_ms / 1000)

    def until_writable(self, topic: str, but: int | None = None) -> None:
        """Write with acks=all: metadata have leaders before all the logs exist."""
        with self.survivors(but) as brokers:
            brokers.write_to_all(topic, Deadline.after(self.ready_ms))

    def until_led(
        self, topic: str, partitions: int, as_wanted: Callable[[MetadataPartition], bool]
    ) -> None:
        with self.survivors() as everybody:
            everybody.until_led(topic, partitions, Deadline.after(self.ready_ms), as_wanted)


def _ask(connection: BrokerConnection, topics: list[str]) -> MetadataResponse:
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return connection.exchange(METADATA, request, Deadline.after(_TIMEOUT_MS))


def _has_controller(answer: MetadataResponse, old: int) -> bool:
    live = {broker.broker_id for broker in answer.brokers}
    return answer.controller_id != old and answer.controller_id in live


def _pause(deadline: Deadline, what: str) -> None:
    deadline.check(what)
    time.sleep(_POLL_S)


class TimedProducer(Closing):
    """Sends a small batch every few milliseconds, acks=all and idempotent, to some partitions in
    turn; notes the longest time between two acknowledgements of a partition."""

    def __init__(self, servers: str, topic: str, partitions: Iterable[int]) -> None:
        self._servers = servers
        self._partitions = [TopicPartition(topic, p) for p in partitions]
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._acknowledged_ms: dict[TopicPartition, int] = {}
        self._longest_gap_ms = 0
        self._sent_ms: dict[TopicPartition, deque[float]] = {tp: deque() for tp in self._partitions}
        self._latencies_ms: list[float] = []
        self.failed = 0
        """The number of batches that were given up."""
        self._sent = 0
        self._delivered = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-producer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(_TIMEOUT_MS / 1000):
            raise CommandError("nothing was acknowledged to a producer within a minute")
        return self

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def take_longest_gap_ms(self) -> int:
        """Return the longest gap since the last call; an open one counts with its length so far."""
        now_ms = monotonic_ms()
        with self._lock:
            open_ms = now_ms - min(self._acknowledged_ms.values(), default=now_ms)
            longest_ms, self._longest_gap_ms = max(self._longest_gap_ms, open_ms), 0
        return longest_ms

    def take_latencies_ms(self) -> list[float]:
        """Return the times from append to acknowledgement of the batches since the last call."""
        with self._lock:
            latencies, self._latencies_ms = self._latencies_ms, []
        return latencies

    def _run(self) -> None:
        with Cluster(self._servers) as cluster:
            writer = BatchWriter(cluster, on_delivered=self._on_delivered)
            try:
                self._send_on(writer)
                writer.close()
            except HeadraceError:
                writer.abandon()
            self.failed = self._sent - self._delivered

    def _send_on(self, writer: BatchWriter) -> None:
        batch = sealed_batch(BATCH_BYTES)
        records = max(1, BATCH_BYTES // 100)
        while not self._stop.is_set():
            tp = self._partitions[self._sent % len(self._partitions)]
            self._sent += 1
            self._sent_ms[tp].append(time.monotonic() * 1000)
            writer.append(tp, EncodedBatch(data=memoryview(bytearray(batch)), record_count=records))
            due_ms = monotonic_ms() + _SEND_INTERVAL_MS
            while (left_ms := due_ms - monotonic_ms()) > 0:
                writer.poll(left_ms)

    def _on_delivered(self, tp: TopicPartition, base_offset: int, records: int) -> None:
        now_ms = monotonic_ms()
        with self._lock:
            self._delivered += 1
            gap_ms = now_ms - self._acknowledged_ms.get(tp, now_ms)
            self._longest_gap_ms = max(self._longest_gap_ms, gap_ms)
            self._acknowledged_ms[tp] = now_ms
            # In order within a partition.
            self._latencies_ms.append(time.monotonic() * 1000 - self._sent_ms[tp].popleft())
            if len(self._acknowledged_ms) == len(self._partitions):
                self._started.set()


def watch_fired_s(log_file: Path, *, after_s: float) -> float:
    """Return when ZooKeeper notified the controller that brokers came or went, in seconds since
    1970; the first time after `after_s`. `log_file` is the controller's."""
    for line in log_file.read_text("utf-8", "replace").splitlines():
        found = _LOG_TIME.match(line)
        if found is None or BROKERS_WATCH_FIRED not in line:
            continue
        fired_s = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()
        if fired_s >= after_s:
            return fired_s
    raise CommandError(
        f"'{log_file}' does not say that the controller noticed the loss of a broker"
    )
