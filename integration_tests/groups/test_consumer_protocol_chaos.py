"""One group of members of both protocols, librdkafka's and Java's, that come and go at random while
its coordinator is killed again and again: each record is read once."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.groups.test_consumer_protocol import (
    PARTITIONS,
    SETTINGS,
    JavaMember,
    Member,
    Place,
    committed_everywhere,
    coordinator_of,
    every,
    restart,
    write,
)
from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until
from integration_tests.support.java_clients import NEWEST, compiled
from storage_engine.tests.sampling import SEED, in_full
from storage_engine.tools.local.local_cluster import LocalCluster

LASTS_S = 600.0
WRITE_S = 2.0
RECORDS = 20 * PARTITIONS
"""The records that are written every WRITE_S."""
DOWN_S = 5.0
READ_S = 180.0
MOST_OURS, MOST_JAVA = 3, 2
TOPIC = "chaos"


class Group:
    """The members of now, and what all of them have read."""

    def __init__(self, cluster: LocalCluster, classes: str, chance: random.Random) -> None:
        self._cluster, self._classes, self._chance = cluster, classes, chance
        self.seen: Counter[Place] = Counter()
        self.changes = 0
        self.members: list[Member] = []
        self._javas: list[JavaMember] = []
        self.join()
        self.join_java()

    def join(self) -> None:
        chosen = {"group_protocol": "consumer"}
        if self._chance.random() < 0.4:
            assignor = self._chance.choice(["range", "cooperative-sticky"])
            chosen = {"group_protocol": "classic", "partition_assignment_strategy": assignor}
        self.members.append(Member(self._cluster, TOPIC, **chosen))

    def join_java(self) -> None:
        self._javas.append(JavaMember(self._cluster, TOPIC, self._classes))

    def leave(self) -> None:
        self.members.pop(self._chance.randrange(len(self.members))).close()

    def leave_java(self) -> None:
        self.seen.update(self._javas.pop(0).close())

    def kill_java(self) -> None:
        """Kill what is left after a failure."""
        for member in self._javas:
            member.kill()

    def change(self) -> None:
        """Have one member come or go."""
        possible: list[Callable[[], None]] = []
        possible += [self.join] * (len(self.members) < MOST_OURS)
        possible += [self.leave] * (len(self.members) > 1)
        possible += [self.join_java] * (len(self._javas) < MOST_JAVA)
        # One member of the consumer protocol stays: a group of classic members alone whose assignor
        # has user data is not converted again.
        possible += [self.leave_java] * (len(self._javas) > 1 and self._javas[-1].has_joined())
        self._chance.choice(possible)()
        self.changes += 1

    def read(self) -> None:
        for member in self.members:
            self.seen.update(member.read_one())

    def end(self, count: int) -> None:
        """Read to the end, and leave."""
        while len(self.members) > 1:
            self.leave()

        def is_read() -> bool:
            self.read()
            return committed_everywhere(self.members[0], TOPIC, count // PARTITIONS)

        wait_until(is_read, "all is read and committed", timeout_s=READ_S)
        while self._javas:
            self.leave_java()
        self.leave()


class Coordinator:
    """Kills the group's coordinator, and starts it again after a while."""

    def __init__(self, cluster: LocalCluster, chance: random.Random) -> None:
        self._cluster, self._chance = cluster, chance
        self._down: int | None = None
        self.kills = 0
        self._next_s = time.monotonic() + DOWN_S

    def kill_or_start(self) -> None:
        if time.monotonic() < self._next_s:
            return
        if self._down is None:
            self._down = coordinator_of(self._cluster, TOPIC)
            self._cluster.kill_broker(self._down)
            self.kills += 1
            self._next_s = time.monotonic() + DOWN_S
        else:
            self.start()
            self._next_s = time.monotonic() + self._chance.uniform(DOWN_S / 2, DOWN_S * 2)

    def start(self) -> None:
        if self._down is not None:
            restart(self._cluster, self._down, TOPIC)
            self._down = None


@in_full
@pytest.mark.parametrize("seed", [SEED])
def test_each_record_is_read_once_whatever_happens_to_a_group_of_both_protocols(tmp_path, seed):
    chance = random.Random(seed)
    source = Path(__file__).with_name("JavaMember.java")
    classes = compiled(source, NEWEST, tmp_path)
    with (
        running_cluster(tmp_path / "cluster", settings=SETTINGS) as cluster,
        contextlib.ExitStack() as stack,
    ):
        create_topic(cluster, TOPIC, partitions=PARTITIONS)
        group, coordinator = Group(cluster, classes, chance), Coordinator(cluster, chance)
        stack.callback(group.kill_java)
        written = 0
        next_write = next_change = begun = time.monotonic()
        while time.monotonic() < begun + LASTS_S:
            if time.monotonic() >= next_write:
                write(cluster, TOPIC, RECORDS)
                written += RECORDS
                next_write = time.monotonic() + WRITE_S
            if time.monotonic() >= next_change:
                group.change()
                next_change = time.monotonic() + chance.uniform(2, 5)
            group.read()
            coordinator.kill_or_start()
        coordinator.start()
        group.end(written)
    print(f"{written} records, {group.changes} changes of members, {coordinator.kills} kills")
    assert every(written) - set(group.seen) == set()
    assert [place for place, count in group.seen.items() if count > 1] == []
