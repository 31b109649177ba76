"""A group of many members of several makes, of which some are killed, and its coordinator with
them: 50 members on 200 partitions with HEADRACE_FAULTS=full, else 6 on 20.

No partition has two owners in one generation, commits of an older generation are refused, no
committed offset is lost, and no partition is left without an owner.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Self

import pytest
from confluent_kafka import Producer

from integration_tests.forks.forked import popen
from integration_tests.groups.ownership import (
    Event,
    lost_offsets,
    owners_of,
    stale_commits,
    two_owners,
    unowned_s,
)
from integration_tests.support.background import Background
from integration_tests.support.cluster_support import (
    HEALED_S,
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
    wait_while_lacking,
)
from storage_engine.client import Admin
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tests.sampling import ALL_FAULTS, SEED
from storage_engine.tools.local.local_cluster import LocalCluster

OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = 3
SESSION_MS = 6_000
PARTITIONS = 200 if ALL_FAULTS else 20
PROCESSES = 10 if ALL_FAULTS else 3
MAKES = (
    ("ours", "ours", "ours", "confluent", "kafka-python") if ALL_FAULTS else ("ours", "confluent")
)
"""Of each process's members."""
KILLS = 6 if ALL_FAULTS else 1
COORDINATOR_KILLS = 2 if ALL_FAULTS else 1
PROMISED_SLACK_S = 2.0
"""Beyond a session, of a machine that does nothing else (measured: 0.8 s with 50 members)."""
SAMPLE_SLACK_S = 15.0


def slack_s() -> float:
    """Of the full test, by what each processor has to do beside it; called before it begins. The
    sample runs beside other tests; it shows that a session has ended, and no longer timeout."""
    others = os.getloadavg()[0] / (os.cpu_count() or 1)
    return PROMISED_SLACK_S * max(1.0, others) if ALL_FAULTS else SAMPLE_SLACK_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    settings = (
        ("group.initial.rebalance.delay.ms", "500"),
        ("group.min.session.timeout.ms", "3000"),
    )
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings=settings) as made:
        yield made


class Writing(Background):
    """A record into every partition, again and again."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        self._topic = topic

    def _work(self) -> None:
        while not self._stop.wait(0.5):
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"x", partition=partition)
            self._producer.flush(60)


class Members:
    """A process of them."""

    def __init__(self, cluster: LocalCluster, topic: str, name: str, makes: tuple[str, ...]):
        self.name = name
        self.events: list[Event] = []
        self.members = [f"{name}/{number}" for number in range(len(makes))]
        command = [sys.executable, "-P", "-m", "integration_tests.groups.many_members"]
        arguments = [cluster.bootstrap_servers, topic, topic, str(SESSION_MS), name, *makes]
        self._process = popen(command + arguments, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # else it was killed while it wrote
                self.events.append(json.loads(line))

    def check(self) -> None:
        assert self._process.poll() is None, f"a member of {self.name} failed"

    def kill(self) -> None:
        self._process.kill()
        at_s = time.monotonic()
        self._process.wait()
        self._thread.join()
        for member in self.members:
            self.events.append({"at_s": at_s, "member": member, "what": "killed"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Group:
    """All that there ever were."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        self.live: list[Members] = []
        self.dead: list[Members] = []

    def start(self, makes: tuple[str, ...] = MAKES) -> None:
        name = f"p{len(self.live) + len(self.dead)}"
        self.live.append(Members(self.cluster, self.topic, name, makes))

    def kill(self, generator: random.Random) -> None:
        victim = generator.choice(self.live)
        self.live.remove(victim)
        self.dead.append(victim)
        victim.kill()

    def events(self) -> list[Event]:
        every = [event for each in (*self.live, *self.dead) for event in [*each.events]]
        return sorted(every, key=lambda event: event["at_s"])

    def wait_until_shared(self) -> None:
        """By all that live: one that is killed while it joins costs the others another session, by
        the protocol."""

        wait_while_lacking(self.unshared, timeout_s=HEALED_S)

    def unshared(self) -> list[str]:
        """Partitions that have no owner or many, and members that own nothing."""
        for each in self.live:
            each.check()
        owners = owners_of(self.events())
        members = {member for each in self.live for member in each.members}
        busy = {owner for each in owners.values() for owner in each}
        missing = set(range(PARTITIONS)) - owners.keys()
        return [
            *(f"partition {p} of {sorted(each)}" for p, each in owners.items() if len(each) != 1),
            *(f"partition {p} of nobody" for p in sorted(missing)),
            *(f"{member} owns nothing" for member in sorted(members - busy)),
            *(f"{member} is dead and owns" for member in sorted(busy - members)),
        ]

    def wait_until_committed(self) -> None:
        """Of every partition, anew."""
        since_s = time.monotonic()

        def committed() -> bool:
            later = [e for e in self.events() if e["what"] == "committed" and e["at_s"] > since_s]
            return {partition for e in later for partition, _ in e["offsets"]} == set(
                range(PARTITIONS)
            )

        wait_until(committed, "every partition is committed", timeout_s=HEALED_S)

    def close(self) -> None:
        for each in self.live:
            each.kill()


def test_a_group_keeps_its_promises_while_members_and_coordinators_are_killed(cluster):
    topic = "many"
    allowed_s = SESSION_MS / 1000 + slack_s()
    create_topic(cluster, topic, partitions=PARTITIONS)
    generator = random.Random(SEED)
    happenings = ["members"] * KILLS + ["coordinator"] * COORDINATOR_KILLS
    generator.shuffle(happenings)
    client = admin(cluster)
    partition = state_partition(topic, OFFSETS_PARTITIONS)
    group = Group(cluster, topic)
    with Writing(cluster, topic):
        try:
            for _ in range(PROCESSES):
                group.start()
            group.wait_until_shared()
            since_s = time.monotonic()
            for what in happenings:
                if what == "members":
                    group.kill(generator)
                    group.wait_until_shared()
                    group.start()
                else:
                    victim = leader_of(client, OFFSETS, partition)
                    cluster.kill_broker(victim)
                    wait_until(
                        lambda victim=victim: leader_of(client, OFFSETS, partition) != victim,
                        "there is another coordinator",
                    )
                    cluster.start_broker(victim)
                    wait_for_isr(client, OFFSETS, 3, partition)
                group.wait_until_shared()
            until_s = time.monotonic()
            group.wait_until_committed()
        finally:
            group.close()
    events = group.events()
    lived = [event for event in events if event["at_s"] <= until_s]
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as ours:
        stored = {
            each.tp.partition: each.offset
            for each in ours.describe_group(topic).partitions
            if each.offset is not None
        }
    longest_s = unowned_s(lived, PARTITIONS, since_s)
    print(f"unowned: {longest_s:.1f} s, allowed: {allowed_s:.1f} s, events: {len(events)}")
    assert two_owners(events) == []
    assert stale_commits(events) == []
    assert lost_offsets(events, stored) == []
    assert longest_s <= allowed_s
