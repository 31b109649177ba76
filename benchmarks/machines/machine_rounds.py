"""The rounds of the benchmark of kills where each broker has a machine of its own, with a server of
ZooKeeper beside it."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.machines.machine_cluster import MachineCluster, machine_cluster
from benchmarks.machines.machines import why_not
from benchmarks.support.kill_rounds import (
    HANGS,
    HAS_RDKAFKA,
    LEADER_GOAL,
    NONE,
    gap_of,
    histogram,
    producer_name,
)
from benchmarks.support.rounds import Goal, Result, alone, percentile
from benchmarks.support.steady_producers import (
    OwnProducer,
    RdkafkaProducer,
    SteadyProducer,
    lost_and_doubled,
)
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line

DARK_GOAL = Goal(most=3.5)
DARK_WITH_ZOOKEEPER_GOAL = Goal(most=7.0)

_BROKERS = (1, 2, 3)
_IN_SYNC_S = 180.0
_PERCENTS = (50, 90, 99)
_LOOPS = 16
_LOOP = "while True: pass"
_WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
block = os.urandom(1 << 20)
while True:
    for place in range(64):
        os.pwrite(file, block, place << 20)
        os.fsync(file)
"""
_LOST = "zookeeper session state=lost"
_SILENCE = "headrace_zookeeper_longest_silence_seconds"


def measure_on_machines(
    folder: Path, args: argparse.Namespace, rows: Sequence[str]
) -> Iterator[Result]:
    """Yield one result after the other. CommandError where there can be no machines."""
    if reason := why_not():
        raise CommandError(f"--machines: {reason}")
    settings = {
        "zookeeper.session.timeout.ms": str(args.session_timeout_ms),
        "default.replication.factor": "3",
        "offsets.topic.num.partitions": "3",
    }
    with machine_cluster(
        folder, settings, tick_ms=args.tick_ms, sync_limit_ms=args.sync_limit_ms
    ) as cluster:
        rounds = _MachineRounds(cluster, args)
        if "killed" in rows:
            yield from rounds.of_killed()
        if "unplugged" in rows:
            yield from rounds.of_unplugged(with_zookeeper=False)
        if "unplugged-zookeeper" in rows:
            yield from rounds.of_unplugged(with_zookeeper=True)
        if "load" in rows:
            yield from rounds.of_load(folder)
        yield from rounds.damage()


class _MachineRounds:
    """The rounds of all rows, on one cluster."""

    def __init__(self, cluster: MachineCluster, args: argparse.Namespace) -> None:
        self._cluster = cluster
        self._args = args
        self._session = f"session {args.session_timeout_ms / 1000:g} s"
        self._topics = 0
        self._lost = self._doubled = self._failed = self._acknowledged = 0

    # -- the rows ----------------------------------------------------------------------------------

    def of_killed(self) -> Iterator[Result]:
        """Kill one leader after the other while one producer goes on."""
        cluster, kills = self._cluster, self._args.kills or self._args.rounds
        topic = self._new_topic(_BROKERS)
        gaps_s: list[float] = []
        producer = self._producer(topic)
        with producer:
            for number in range(1, kills + 1):
                time.sleep(1)
                leader = self._until_in_sync(topic)
                gaps_s.append(gap_of(producer, partial(cluster.kill_broker, leader)))
                report_line(f"kill {number} of {kills}, broker {leader}: {gaps_s[-1]:.3f} s")
                cluster.start_broker(leader)
        self._read_back(topic, producer)
        what = f"SIGKILL of a leader on a machine of its own, {self._session}"
        yield from _told(what, gaps_s, LEADER_GOAL)

    def of_unplugged(self, *, with_zookeeper: bool) -> Iterator[Result]:
        """Unplug the machine of a leader, and plug it in again when the others have gone on."""
        gaps_s: list[float] = []
        deposed = 0
        for number in range(1, self._args.rounds + 1):
            leading = self._cluster.zookeeper_leader()
            others = [each for each in _BROKERS if each != leading]
            dark = leading if with_zookeeper else others[number % 2]
            living = [each for each in _BROKERS if each != dark]
            before = self._sessions_lost(living)
            topic = self._new_topic([dark, *living])
            with self._producer(topic, hangs=True) as producer:
                time.sleep(1)
                try:
                    gaps_s.append(gap_of(producer, self._cluster.machine(dark).unplug))
                finally:
                    self._cluster.machine(dark).plug_in()
                self._until_in_sync(topic)
            deposed += self._sessions_lost(living) - before
            self._read_back(topic, producer)
            role = ", with ZooKeeper's leader" if with_zookeeper else ""
            report_line(f"unplugged {number}, machine {dark}{role}: {gaps_s[-1]:.3f} s")
            self._cluster.until_zookeeper_serves()
        role = " with ZooKeeper's leader" if with_zookeeper else ""
        goal = DARK_WITH_ZOOKEEPER_GOAL if with_zookeeper else DARK_GOAL
        what = f"a machine{role} unplugged, {self._session}"
        yield from _told(what, gaps_s, goal)
        yield alone(f"{what}: brokers of the other machines deposed", deposed, goal=NONE)

    def of_load(self, folder: Path) -> Iterator[Result]:
        """Keep the processors and the disk busy, and count the living brokers that are deposed."""
        before, known_before = self._sessions_lost(_BROKERS), self._cluster.departures()
        topic = self._new_topic(_BROKERS)
        commands = [["-c", _LOOP]] * _LOOPS + [["-c", _WRITER, str(folder / "load")]]
        with self._producer(topic) as producer:
            loads = [subprocess.Popen([sys.executable, *each]) for each in commands]
            try:
                began_s = time.time()
                while time.time() < began_s + self._args.load_s:
                    time.sleep(1)
                gap_s = producer.longest_gap_s(began_s)
            finally:
                for load in loads:
                    load.kill()
                    load.wait()
        lost = self._sessions_lost(_BROKERS) - before
        deposed = self._cluster.departures() - known_before
        silence_s = max(self._cluster.metric(each, _SILENCE) for each in _BROKERS)
        self._until_in_sync(topic)
        self._read_back(topic, producer)
        cores = os.cpu_count()
        seconds = self._args.load_s
        what = f"{seconds} s of {_LOOPS} busy loops and synced writes on {cores} cores"
        what = f"{what}, {self._session}"
        yield alone(f"{what}: longest time without an answer of ZooKeeper, s", silence_s)
        yield alone(f"{what}: sessions lost", lost, goal=NONE)
        yield alone(f"{what}: living brokers deposed", deposed, goal=NONE)
        yield alone(f"{what}: longest gap of a producer, s", gap_s)

    def damage(self) -> Iterator[Result]:
        """Yield the lost, doubled and failed records of all rounds."""
        what = f"{self._acknowledged} records acknowledged in these rounds"
        yield alone(f"{what}: lost", self._lost, goal=NONE)
        yield alone(f"{what}: doubled", self._doubled, goal=NONE)
        yield alone(f"{what}: sends that failed", self._failed, goal=NONE)

    # -- steps -------------------------------------------------------------------------------------

    def _sessions_lost(self, broker_ids: Sequence[int]) -> int:
        return sum(self._cluster.log(each).count(_LOST) for each in broker_ids)

    def _producer(self, topic: str, *, hangs: bool = False) -> SteadyProducer:
        servers = self._cluster.bootstrap_servers
        if not HAS_RDKAFKA:
            return OwnProducer(servers, topic)
        return RdkafkaProducer(servers, topic, HANGS if hangs else None)

    def _new_topic(self, replicas: Sequence[int]) -> str:
        self._topics += 1
        topic = f"bench-{self._topics}"
        with Cluster(self._cluster.bootstrap_servers) as client:
            create_topic(client, topic, assignment={0: replicas})
        self._until_in_sync(topic)
        return topic

    def _until_in_sync(self, topic: str) -> int:
        """Wait until every replica is in sync, and return the leader."""
        deadline_s = time.monotonic() + _IN_SYNC_S
        while time.monotonic() < deadline_s:
            try:
                with Cluster(self._cluster.bootstrap_servers) as client:
                    found = client.metadata([topic]).topics[topic].partitions[0]
                    if len(found.isr) == len(_BROKERS) and found.leader > 0:
                        return int(found.leader)
            except (HeadraceError, KeyError):
                pass  # a broker that has just come back
            time.sleep(0.1)
        raise CommandError(f"the replicas of {topic} were not in sync after {_IN_SYNC_S:.0f} s")

    def _read_back(self, topic: str, producer: SteadyProducer) -> None:
        acknowledged = producer.numbers()
        lost, doubled = lost_and_doubled(self._cluster.bootstrap_servers, topic, acknowledged)
        self._lost += lost
        self._doubled += doubled
        self._failed += producer.failed
        self._acknowledged += len(acknowledged)


def _told(what: str, gaps_s: Sequence[float], goal: Goal) -> Iterator[Result]:
    count = f"{what}, {len(gaps_s)} times"
    yield alone(f"{count}: longest gap of {producer_name()}, s", max(gaps_s), goal=goal)
    for percent in _PERCENTS:
        yield alone(f"{count}: p{percent} of the gaps, s", percentile(gaps_s, percent))
    for bound_s, found in sorted(histogram(gaps_s).items()):
        yield alone(f"{count}: gaps up to {bound_s} s", found)
