"""The rounds of the benchmark of kills: a topic and a producer for each, read back afterwards."""

import argparse
import importlib.util
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.support.failover_clients import Watched
from benchmarks.support.rounds import Goal, Result, alone
from benchmarks.support.steady_producers import (
    OwnProducer,
    RdkafkaProducer,
    SteadyProducer,
    lost_and_doubled,
)
from storage_engine.client.admin.topics import create_topic, delete_topics
from storage_engine.client.cluster import Cluster
from storage_engine.net.deadline import Deadline
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.table import report_line

LEADER_GOAL = Goal(most=1.0)
CONTROLLER_GOAL = Goal(most=1.5)
PARTITIONS_GOAL = Goal(most=1.5)
STOPPED_SLACK_S = 0.5
NONE = Goal(most=0.0)

_BROKERS = (1, 2, 3)
_READY_MS = 180_000
"""The limit for a killed broker to check its logs and get in sync."""
_STEADY_S = 1.0
"""How long a producer runs before and after its leader is harmed."""
_RECOVERY_S = 60.0
HAS_RDKAFKA = importlib.util.find_spec("confluent_kafka") is not None
HANGS = {"socket.timeout.ms": 1000}
_BOUNDS_S = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0, 10.0)
"""Upper bounds of the histogram of gaps."""


def measure_rows(folder: Path, args: argparse.Namespace, rows: Sequence[str]) -> Iterator[Result]:
    """Yield one result after the other."""
    with _cluster(folder, args) as cluster:
        rounds = _KillRounds(cluster, args)
        if "leader" in rows:
            yield from rounds.of_leader()
        if "controller" in rows:
            yield from rounds.of_controller()
        if "stopped" in rows:
            yield from rounds.of_stopped_leader()
        yield from rounds.damage()
        if "partitions" in rows:
            yield from rounds.of_partitions()


def under_one_producer(folder: Path, args: argparse.Namespace) -> Iterator[Result]:
    """Kill one leader after the other while one producer goes on."""
    kills = args.kills
    with _cluster(folder, args) as cluster:
        rounds = _KillRounds(cluster, args)
        topic = rounds.new_topic(_BROKERS)
        gaps_s: dict[bool, list[float]] = {False: [], True: []}
        """The gaps, by whether the leader was the controller."""
        with rounds.producer(topic) as producer:
            for number in range(1, kills + 1):
                time.sleep(_STEADY_S)
                leader = rounds.until_in_sync(topic, 1)
                is_controller = leader == rounds.watched.controller()
                gap_s = gap_of(producer, partial(cluster.kill_broker, leader))
                gaps_s[is_controller].append(gap_s)
                role = ", the controller" if is_controller else ""
                report_line(f"kill {number} of {kills}, broker {leader}{role}: {gap_s:.3f} s")
                rounds.watched.start(leader)
        for is_controller, found_s in gaps_s.items():
            goal = CONTROLLER_GOAL if is_controller else LEADER_GOAL
            role = " that is the controller" if is_controller else ""
            what = f"{len(found_s)} SIGKILLs of a leader{role}"
            if found_s:
                yield alone(f"{what}: longest gap, s", max(found_s), goal=goal)
            for bound_s, count in sorted(histogram(found_s).items()):
                yield alone(f"{what}: gaps up to {bound_s} s", count)
        acknowledged = producer.numbers()
        lost, doubled = lost_and_doubled(cluster.bootstrap_servers, topic, acknowledged)
        what = f"{kills} SIGKILLs, {len(acknowledged)} acknowledged records"
        yield alone(f"{what}: lost", lost, goal=NONE)
        yield alone(f"{what}: doubled", doubled, goal=NONE)
        yield alone(f"{what}: sends that failed", producer.failed, goal=NONE)


def gap_of(producer: SteadyProducer, harm: Callable[[], None]) -> float:
    """Return the longest gap from `harm` until the producer is steady again."""
    began_s = time.time()
    harm()
    # Batches under way at the kill may still be acknowledged.
    time.sleep(0.05)
    producer.until_acknowledged(time.time(), _RECOVERY_S)
    time.sleep(_STEADY_S)
    return producer.longest_gap_s(began_s)


def histogram(gaps_s: Sequence[float]) -> Counter[float]:
    """Return how many gaps are up to each bound, and above the one before."""
    return Counter(next((b for b in _BOUNDS_S if gap <= b), float("inf")) for gap in gaps_s)


@contextmanager
def _cluster(folder: Path, args: argparse.Namespace) -> Iterator[LocalCluster]:
    settings = (("zookeeper.session.timeout.ms", str(args.session_timeout_ms)),)
    request = UpRequest(brokers=len(_BROKERS), port=0, settings=settings)
    with LocalCluster.running(folder / "cluster", request) as cluster:
        yield cluster


class _KillRounds:
    """The rounds of all rows, on one cluster."""

    def __init__(self, cluster: LocalCluster, args: argparse.Namespace) -> None:
        self._cluster = cluster
        self.watched = Watched(cluster, _READY_MS)
        self._args = args
        self._topics = 0
        self._lost = self._doubled = self._failed = self._acknowledged = 0

    # -- the rows ----------------------------------------------------------------------------------

    def of_leader(self) -> Iterator[Result]:
        """Kill a leader that is not the controller."""
        gaps_s = [
            self._killed(self.watched.not_controller(), f"leader, {number}")
            for number in range(1, self._args.rounds + 1)
        ]
        yield alone(
            f"SIGKILL of a leader: longest gap of {producer_name()}, s",
            max(gaps_s),
            goal=LEADER_GOAL,
        )

    def of_controller(self) -> Iterator[Result]:
        """Kill a leader that is the controller."""
        gaps_s = [
            self._killed(self.watched.controller(), f"controller, {number}")
            for number in range(1, self._args.rounds + 1)
        ]
        yield alone(
            f"SIGKILL of a leader that is the controller: longest gap of {producer_name()}, s",
            max(gaps_s),
            goal=CONTROLLER_GOAL,
        )

    def of_stopped_leader(self) -> Iterator[Result]:
        """Suspend a leader by SIGSTOP: its session's timeout decides."""
        session_s = self._args.session_timeout_ms / 1000
        goal = Goal(most=session_s + STOPPED_SLACK_S)
        gaps_s: dict[str, list[float]] = {}
        for number in range(1, self._args.rounds + 1):
            for kind in ("librdkafka's producer", "Headrace's producer")[not HAS_RDKAFKA :]:
                gap_s = self._stopped(kind)
                gaps_s.setdefault(kind, []).append(gap_s)
                report_line(f"stopped, round {number}, {kind}: {gap_s:.3f} s")
        for kind, found_s in gaps_s.items():
            yield alone(
                f"SIGSTOP of a leader, session {session_s:g} s: longest gap of {kind}, s",
                max(found_s),
                goal=goal,
            )

    def of_partitions(self) -> Iterator[Result]:
        """Kill the leader of many partitions, and wait until all accept acks=all."""
        count = self._args.partitions
        written_s = []
        for number in range(1, self._args.rounds + 1):
            written_s.append(self._failed_over(count))
            report_line(f"{count} partitions, round {number}: {written_s[-1]:.3f} s")
        yield alone(
            f"SIGKILL of the leader of {count} partitions: until all accept acks=all, s",
            max(written_s),
            goal=PARTITIONS_GOAL,
        )

    def damage(self) -> Iterator[Result]:
        """Yield the lost, doubled and failed records of the rounds with a producer."""
        what = f"{self._acknowledged} records acknowledged in these rounds"
        yield alone(f"{what}: lost", self._lost, goal=NONE)
        yield alone(f"{what}: doubled", self._doubled, goal=NONE)
        yield alone(f"{what}: sends that failed", self._failed, goal=NONE)

    # -- steps -------------------------------------------------------------------------------------

    def _killed(self, leader: int, what: str) -> float:
        topic = self.new_topic(_led_by(leader))
        with self.producer(topic) as producer:
            time.sleep(_STEADY_S)
            gap_s = gap_of(producer, lambda: self._cluster.kill_broker(leader))
        report_line(f"{what}: {gap_s:.3f} s")
        self._read_back(topic, producer)
        self.watched.start(leader)
        self.until_in_sync(topic, 1)
        return gap_s

    def _failed_over(self, count: int) -> float:
        leader = self.watched.not_controller()
        topic = self.new_topic(_led_by(leader), partitions=count)
        self.watched.until_writable(topic)
        with self.watched.survivors(but=leader) as survivors:
            started_s = time.monotonic()
            self._cluster.kill_broker(leader)
            survivors.write_to_all(topic, Deadline.after(_READY_MS))
            taken_s = time.monotonic() - started_s
        self.watched.start(leader)
        self.until_in_sync(topic, count)
        with Cluster(self._cluster.bootstrap_servers) as client:
            # Or the next round would have so many more partitions.
            delete_topics(client, [topic])
        return taken_s

    def _stopped(self, kind: str) -> float:
        leader = self.watched.not_controller()
        topic, pid = self.new_topic(_led_by(leader)), self._cluster.state.broker(leader).pid
        assert pid is not None, "it was started"
        servers = self._cluster.bootstrap_servers
        producer: SteadyProducer = OwnProducer(servers, topic)
        if kind.startswith("librdkafka"):
            producer = RdkafkaProducer(servers, topic, HANGS)
        with producer:
            time.sleep(_STEADY_S)
            try:
                gap_s = gap_of(producer, lambda: os.kill(pid, signal.SIGSTOP))
            finally:
                os.kill(pid, signal.SIGCONT)
        self._read_back(topic, producer)
        self.until_in_sync(topic, 1)
        return gap_s

    def producer(self, topic: str) -> SteadyProducer:
        return producer_of(self._cluster.bootstrap_servers, topic)

    def _read_back(self, topic: str, producer: SteadyProducer) -> None:
        acknowledged = producer.numbers()
        lost, doubled = lost_and_doubled(self._cluster.bootstrap_servers, topic, acknowledged)
        self._lost += lost
        self._doubled += doubled
        self._failed += producer.failed
        self._acknowledged += len(acknowledged)

    def new_topic(self, replicas: Sequence[int], partitions: int = 1) -> str:
        self._topics += 1
        topic = f"bench-{self._topics}"
        with Cluster(self._cluster.bootstrap_servers) as client:
            create_topic(client, topic, assignment=dict.fromkeys(range(partitions), replicas))
        self.until_in_sync(topic, partitions)
        return topic

    def until_in_sync(self, topic: str, partitions: int) -> int:
        """Wait until every replica is in sync, and return the leader of partition 0."""
        self.watched.until_led(topic, partitions, lambda row: len(row.isr) == len(_BROKERS))
        with Cluster(self._cluster.bootstrap_servers) as client:
            return int(client.metadata([topic]).topics[topic].partitions[0].leader)


def _led_by(leader: int) -> list[int]:
    return [leader, *(broker for broker in _BROKERS if broker != leader)]


def producer_of(servers: str, topic: str) -> SteadyProducer:
    """Return librdkafka's producer, or Headrace's own where there is none."""
    return RdkafkaProducer(servers, topic) if HAS_RDKAFKA else OwnProducer(servers, topic)


def producer_name() -> str:
    """Return whose producer is measured."""
    return "librdkafka's producer" if HAS_RDKAFKA else "Headrace's producer"
