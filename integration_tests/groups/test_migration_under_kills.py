"""Ten members in three languages change the protocol of their group and change it back, one by one,
for ten minutes, while records are written and the group's coordinator is killed again and again."""

import contextlib
import itertools
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaException, Producer

from integration_tests.groups.aiokafka_member import AioKafkaMember
from integration_tests.groups.group_members import ConfluentMember, GroupMember
from integration_tests.groups.our_member import OurMember
from integration_tests.support.background import Background
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_until,
)
from integration_tests.support.java_clients import NEWEST, QUIET, SHORT_LIVED, compiled
from storage_engine.client import Admin, HeadraceError
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.local_cluster import LocalCluster

GROUP = TOPIC = "ten"
PARTITIONS = 12
OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = 3
SESSION_MS = 6000
LASTS_S = 600.0
RECORDS_OF_PARTITION = 84_000
"""Written within that time: a million in all."""
KILLED_EVERY_S = 10.0
RESTED_S = 6.0
"""Between the restarts of two members."""
CLOSED_S = 120.0
ASKED_S = 5.0
READ_S = 300.0
LANGUAGES = ["java"] * 3 + ["c"] * 4 + ["python"] * 3

Place = tuple[int, int]
"""A record's partition and offset."""


class Places:
    """What members have processed, by threads of theirs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seen: Counter[Place] = Counter()

    def add(self, places: list[Place]) -> None:
        with self._lock:
            self.seen.update(places)


class Polled(Background):
    """A member in this process, in a thread of its own: it commits what it has processed."""

    def __init__(self, member: GroupMember, places: Places) -> None:
        super().__init__()
        self._member = member
        self._places = places

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                polled = self._member.poll()
                self._places.add(polled)
                if polled:
                    self._member.commit()
            except (KafkaException, AioKafkaError, HeadraceError):
                # What it could not commit another may read again.
                continue
        with contextlib.suppress(KafkaException, AioKafkaError, HeadraceError):
            self._member.close()


class Java(Background):
    """Kafka's own client, as a process."""

    def __init__(self, command: list[str], places: Places) -> None:
        super().__init__()
        self._places = places
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _work(self) -> None:
        assert self._process.stdout is not None
        line = ""
        for line in map(str.strip, self._process.stdout):
            if line.startswith("read "):
                _, partition, offset = line.split()
                self._places.add([(int(partition), int(offset))])
        assert line == "closed", "it ended by itself"

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(CLOSED_S)
        finally:
            self._process.kill()
            super().end()


class Written(Background):
    """Writes numbers to all partitions by turns, evenly over the time."""

    def __init__(self, servers: str) -> None:
        super().__init__()
        settings = {"enable.idempotence": True, "message.timeout.ms": 300_000, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": servers, **settings})
        self.count = 0

    def _work(self) -> None:
        begun = time.monotonic()
        while self.count < RECORDS_OF_PARTITION and not self._stop.is_set():
            due = RECORDS_OF_PARTITION * (time.monotonic() - begun) / LASTS_S
            while self.count < min(due, RECORDS_OF_PARTITION):
                for partition in range(PARTITIONS):
                    self._producer.produce(TOPIC, b"%d" % self.count, partition=partition)
                self.count += 1
            self._producer.poll(0.01)
        assert self._producer.flush(READ_S) == 0


class Committed(Background):
    """Reads the committed offsets all the time, and notes what went back."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.offsets: dict[int, int] = {}
        self.back: list[str] = []

    def _work(self) -> None:
        # librdkafka 2.16 ends its process when the broker that it asks coordinates no more.
        with Admin({"bootstrap.servers": self._cluster.bootstrap_servers}) as client:
            while not self._stop.wait(0.1):
                try:
                    found = client.group_offsets(GROUP)
                except HeadraceError:
                    continue
                for tp, offset in found.items():
                    before = self.offsets.get(tp.partition, 0)
                    if offset < before:
                        self.back.append(f"{tp.partition}: {before} -> {offset}")
                    self.offsets[tp.partition] = offset


class Killer(Background):
    """Kills the coordinator's broker, and starts it again at once."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.kills = 0

    def _work(self) -> None:
        partition = state_partition(GROUP, OFFSETS_PARTITIONS)
        while not self._stop.wait(KILLED_EVERY_S):
            victim = leader_of(admin(self._cluster), OFFSETS, partition)
            if victim < 0:
                continue
            self._cluster.kill_broker(victim)
            self.kills += 1
            self._cluster.start_broker(victim)


class Members:
    """Makes them."""

    def __init__(self, cluster: LocalCluster, places: Places, classes: str) -> None:
        self._servers = cluster.bootstrap_servers
        self._places = places
        self._classes = classes

    def made(self, language: str, protocol: str) -> Background:
        if language == "java":
            return Java(self._java(protocol), self._places)
        return Polled(self._in_process(language, protocol), self._places)

    def _java(self, protocol: str) -> list[str]:
        session = [f"session.timeout.ms={SESSION_MS}"] if protocol == "classic" else []
        member = ["JavaMember", self._servers, GROUP, TOPIC, f"group.protocol={protocol}", *session]
        return ["java", *SHORT_LIVED, QUIET, "-Xmx96m", "-cp", self._classes, *member]

    def _in_process(self, language: str, protocol: str) -> GroupMember:
        place = (self._servers, GROUP, TOPIC)
        settings: dict[str, Any] = {"session_timeout_ms": SESSION_MS}
        if language == "c":
            if protocol == "consumer":
                return ConfluentMember(*place, group_protocol="consumer")
            return ConfluentMember(*place, partition_assignment_strategy="range", **settings)
        if protocol == "consumer":
            return OurMember(*place, group_protocol="consumer")
        ranges = (RangePartitionAssignor,)
        return AioKafkaMember(*place, partition_assignment_strategy=ranges, **settings)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    settings = (
        ("group.consumer.min.session.timeout.ms", str(SESSION_MS)),
        ("group.consumer.session.timeout.ms", str(SESSION_MS)),
        ("group.consumer.min.heartbeat.interval.ms", "500"),
        ("group.consumer.heartbeat.interval.ms", "500"),
        ("group.initial.rebalance.delay.ms", "500"),
    )
    with running_cluster(tmp_path, settings=settings) as made:
        create_topic(made, TOPIC, partitions=PARTITIONS)
        yield made


def type_of_group(cluster: LocalCluster) -> str | None:
    """None while its coordinator is not there."""
    client = admin(cluster)  # which ends with the last reference to it, and its answers never come
    try:
        found = client.list_consumer_groups(request_timeout=ASKED_S).result(CLOSED_S)
    except KafkaException:
        return None
    return next((each.type.name for each in found.valid if each.group_id == GROUP), None)


@in_full
def test_each_record_is_processed_and_no_commit_goes_back_while_ten_members_change_the_protocol(
    cluster, tmp_path
):
    places = Places()
    classes = compiled(Path(__file__).with_name("JavaMember.java"), NEWEST, tmp_path)
    members = Members(cluster, places, classes)
    expected: list[str] = []
    types: list[str] = []
    with contextlib.ExitStack() as stack:
        written = stack.enter_context(Written(cluster.bootstrap_servers))
        live = [contextlib.ExitStack() for _ in LANGUAGES]
        for member, language in zip(live, LANGUAGES, strict=True):
            stack.enter_context(member)
            member.enter_context(members.made(language, "classic"))
        committed = stack.enter_context(Committed(cluster))

        def are_read() -> bool:
            committed.check()
            return len(committed.offsets) == PARTITIONS

        wait_until(are_read, "all are read", timeout_s=CLOSED_S)
        with Killer(cluster) as killer:
            until = time.monotonic() + LASTS_S
            for protocol in itertools.cycle(("consumer", "classic")):
                if time.monotonic() > until:
                    break
                expected.append(protocol.upper())
                for member, language in zip(live, LANGUAGES, strict=True):
                    member.close()
                    member.enter_context(members.made(language, protocol))
                    time.sleep(RESTED_S)
                types.append(
                    wait_until(lambda: type_of_group(cluster), "it is listed", timeout_s=CLOSED_S)
                )
        written.end()
        ends = dict.fromkeys(range(PARTITIONS), written.count)

        def is_committed() -> bool:
            committed.check()
            return committed.offsets == ends

        wait_until(is_committed, f"all is committed up to {written.count}", timeout_s=READ_S)
    every = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    print(f"{len(every)} records, {places.seen.total() - len(every)} again, {killer.kills} kills")
    print(f"{len(types)} conversions")
    assert (types, set(places.seen) == every, committed.back) == (expected, True, [])
