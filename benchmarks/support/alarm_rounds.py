"""False alarms: load, descriptors that run out and full accept queues, of brokers that live."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient

from benchmarks.support.failover_clients import TimedProducer
from benchmarks.support.rounds import Goal, Result, alone
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.net.limits import LISTEN_BACKLOG
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.zookeeper.znodes.broker_znodes import BrokerIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode

NONE = Goal(most=0.0)

_BROKERS = (1, 2, 3)
_TOPIC = "bench"
_PARTITIONS = 12
_CYCLE_S = 30.0
_STARVED_S = 15.0
"""Of each cycle: longer than a session with ZooKeeper lasts."""
_SPARE_DESCRIPTORS = 4
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmPlan:
    """The amount of work of the benchmark."""

    folder: Path
    minutes: int
    load: int
    progress: Callable[[str], None]


def measure(plan: AlarmPlan) -> Iterator[Result]:
    """All figures, at the end."""
    with ExitStack() as stack:
        request = UpRequest(brokers=len(_BROKERS), port=0)
        cluster = stack.enter_context(LocalCluster.running(plan.folder / "cluster", request))
        with Cluster(cluster.bootstrap_servers) as client:
            create_topic(client, _TOPIC, _PARTITIONS, len(_BROKERS))
        watch = stack.enter_context(_watch(cluster.state.zookeeper))
        producer = stack.enter_context(
            TimedProducer(cluster.bootstrap_servers, _TOPIC, range(_PARTITIONS))
        )
        stack.enter_context(_busy(plan.load))
        end_s = time.monotonic() + 60 * plan.minutes
        starved = 0
        while time.monotonic() < end_s:
            broker = _BROKERS[starved % len(_BROKERS)]
            starved += 1
            with _starved(cluster, broker) as clients:
                _look_for(watch, min(_STARVED_S, end_s - time.monotonic()))
                load = os.getloadavg()[0]
            plan.progress(
                f"broker {broker} out of descriptors with {clients} clients, load {load:.0f}: "
                f"{watch.deposed} deposed so far"
            )
            _look_for(watch, min(_CYCLE_S - _STARVED_S, end_s - time.monotonic()))
        gap_ms = producer.take_longest_gap_ms()
        what = f"{plan.minutes} minutes at load {plan.load}, descriptors ran out {starved} times"
        yield alone(f"{what}: registrations of living brokers lost", watch.deposed, goal=NONE)
        yield alone(f"{what}: changes of leaders", watch.moved, goal=NONE)
    yield alone(f"{what}: longest gap between acks, s", gap_ms / 1000)
    yield alone(f"{what}: failed sends", producer.failed, goal=NONE)


def _look_for(watch: "_Registrations", seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        watch.look()
        time.sleep(_LOOK_S)


class _Registrations:
    """What ZooKeeper says of the brokers, all of which live, and of who leads."""

    def __init__(self, zookeeper: KazooClient) -> None:
        self._zookeeper = zookeeper
        self._known = {broker: self._incarnation(broker) for broker in _BROKERS}
        self._epochs = {number: self._leader_epoch(number) for number in range(_PARTITIONS)}
        self.deposed = 0
        self.moved = 0

    def _incarnation(self, broker: int) -> int:
        stat = self._zookeeper.exists(f"{BrokerIdZNode.PARENT}/{broker}")
        return 0 if stat is None else int(stat.czxid)

    def _leader_epoch(self, number: int) -> int:
        data, _ = self._zookeeper.get(PartitionStateZNode.path(_TOPIC, number))
        return int(PartitionStateZNode.decode(_TOPIC, number, data).leader_epoch)

    def look(self) -> None:
        """Count what has changed since the last look."""
        for broker, known in self._known.items():
            now = self._incarnation(broker)
            # One that is gone is counted when it goes, not again when it is back.
            self.deposed += now != known and known != 0
            self._known[broker] = now
        for number, epoch in self._epochs.items():
            now = self._leader_epoch(number)
            self.moved += now != epoch
            self._epochs[number] = now


@contextmanager
def _watch(servers: str) -> Iterator[_Registrations]:
    zookeeper = KazooClient(hosts=servers, timeout=60.0)
    zookeeper.start()
    try:
        yield _Registrations(zookeeper)
    finally:
        zookeeper.stop()
        zookeeper.close()


@contextmanager
def _busy(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def _starved(cluster: LocalCluster, broker: int) -> Iterator[int]:
    """The broker gets no more descriptors, and more clients than its queue holds; how many."""
    entry = cluster.state.broker(broker)
    if entry.pid is None:
        raise CommandError(f"broker {broker} has ended")
    before = resource.prlimit(entry.pid, resource.RLIMIT_NOFILE)
    used = len(list(Path(f"/proc/{entry.pid}/fd").iterdir()))
    resource.prlimit(entry.pid, resource.RLIMIT_NOFILE, (used + _SPARE_DESCRIPTORS, before[1]))
    clients: list[socket.socket] = []
    try:
        # Those beyond the queue stay in the middle of their handshakes.
        for _ in range(LISTEN_BACKLOG + 200):
            client = socket.socket()
            client.setblocking(False)
            with contextlib.suppress(OSError):
                client.connect((entry.host, entry.port))
            clients.append(client)
        yield len(clients)
    finally:
        for client in clients:
            client.close()
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(entry.pid, resource.RLIMIT_NOFILE, before)
