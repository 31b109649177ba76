"""Members of KIP-848's consumer groups that we did not write, at real brokers: they share out
partitions, come, go and follow patterns, and read each record once, whoever is killed."""

import contextlib
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from integration_tests.groups.group_members import ConfluentMember, poll_until, share
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.java_clients import NEWEST, QUIET, SHORT_LIVED, compiled
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tools.local.local_cluster import LocalCluster

OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = 4
PARTITIONS = 6
RECORDS = 600
WAIT_S = 120.0
LINES_LIMIT_S = 60.0
COMMIT_S = 10.0
"""How long a member tries to commit a record before it reads it again."""

Place = tuple[int, int]
"""A record's partition and offset."""


SETTINGS = (
    ("offsets.topic.num.partitions", str(OFFSETS_PARTITIONS)),
    ("group.initial.rebalance.delay.ms", "200"),
    ("group.consumer.min.session.timeout.ms", "6000"),
    ("group.consumer.session.timeout.ms", "6000"),
    ("group.consumer.min.heartbeat.interval.ms", "500"),
    ("group.consumer.heartbeat.interval.ms", "500"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings=SETTINGS) as made:
        yield made


class Member(ConfluentMember):
    """librdkafka's, of the consumer protocol; it commits each record before it counts."""

    def __init__(self, cluster: LocalCluster, topic: str, **settings: Any) -> None:
        group = {"group_protocol": "consumer", **settings}
        super().__init__(cluster.bootstrap_servers, topic, topic, **group)

    def read_one(self) -> list[Place]:
        message = self.consumer.poll(0.05)
        if message is None or message.error() is not None:
            return []
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        next_one = ConfluentPartition(str(message.topic()), partition, offset + 1)
        deadline_s = time.monotonic() + COMMIT_S
        while partition in self.owned() and time.monotonic() < deadline_s:
            try:
                self.consumer.commit(offsets=[next_one], asynchronous=False)
            except KafkaException:
                # The coordinator is not there, or the member has another epoch by now.
                continue
            return [(partition, offset)]
        # It has lost the partition, and hears of that with the next poll; else it reads it again.
        with contextlib.suppress(KafkaException):
            self.consumer.seek(ConfluentPartition(str(message.topic()), partition, offset))
        return []


class JavaMember:
    """Kafka's own, as a process."""

    def __init__(self, cluster: LocalCluster, topic: str, classes: str) -> None:
        command = ["java", *SHORT_LIVED, QUIET, "-Xmx128m", "-cp", classes, "JavaMember"]
        # Files: a pipe that nobody empties would halt it after some thousand records.
        self._folder = tempfile.TemporaryDirectory()
        self._output, self._errors = (Path(self._folder.name, name) for name in ("out", "err"))
        with self._output.open("w") as output, self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [*command, cluster.bootstrap_servers, topic, topic],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
            )

    def has_joined(self) -> bool:
        return self._output.stat().st_size > 0

    def close(self) -> list[Place]:
        """Leave the group; return what was read."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(LINES_LIMIT_S)
        # Beside what it says itself there may be lines of its log.
        lines = [line.split() for line in self._output.read_text().splitlines()]
        assert ["closed"] in lines, self._errors.read_text()[-4_000:]
        self._folder.cleanup()
        return [(int(line[1]), int(line[2])) for line in lines if line[:1] == ["read"]]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


@pytest.fixture(scope="module")
def java(tmp_path_factory) -> str:
    source = Path(__file__).with_name("JavaMember.java")
    return compiled(source, NEWEST, tmp_path_factory.mktemp("classes"))


def write(cluster: LocalCluster, topic: str, count: int = RECORDS) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def every(count: int) -> set[Place]:
    return {(number % PARTITIONS, number // PARTITIONS) for number in range(count)}


def committed_everywhere(member: Member, topic: str, offset: int) -> bool:
    """Whether the group has committed this offset of each partition."""
    partitions = [ConfluentPartition(topic, number) for number in range(PARTITIONS)]
    try:
        found = member.consumer.committed(partitions, timeout=10)
    except KafkaException:
        # The member's epoch is another one by now, or the coordinator.
        return False
    return all(each.offset == offset for each in found)


def coordinator_of(cluster: LocalCluster, group: str) -> int:
    return leader_of(admin(cluster), OFFSETS, state_partition(group, OFFSETS_PARTITIONS))


def restart(cluster: LocalCluster, broker: int, group: str) -> None:
    cluster.start_broker(broker)
    wait_for_isr(admin(cluster), OFFSETS, 3, state_partition(group, OFFSETS_PARTITIONS))


def test_members_share_the_partitions_as_they_come_and_go(cluster):
    topic = "comes-and-goes"
    create_topic(cluster, topic, partitions=PARTITIONS)
    first, second = Member(cluster, topic), Member(cluster, topic)
    poll_until([first, second], lambda: share([first, second], PARTITIONS), "both have a part")
    second.close()
    poll_until([first], lambda: len(first.owned()) == PARTITIONS, "the first owns everything")
    first.close()


def test_a_member_that_keeps_its_partitions_reads_on_while_another_joins(cluster):
    topic = "reads-on"
    create_topic(cluster, topic, partitions=PARTITIONS)
    first = Member(cluster, topic)
    poll_until([first], lambda: len(first.owned()) == PARTITIONS, "the first owns everything")
    before = first.owned()
    second = Member(cluster, topic)
    lost: set[int] = set()

    def is_shared() -> bool:
        lost.update(before - first.owned())
        return share([first, second], PARTITIONS)

    poll_until([first, second], is_shared, "both have a part")
    assert len(lost) == PARTITIONS / 2
    first.close()
    second.close()


def test_a_static_member_that_is_started_again_has_its_part_again(cluster):
    topic = "static"
    create_topic(cluster, topic, partitions=PARTITIONS)
    first, second = (Member(cluster, topic, group_instance_id=name) for name in ("one", "two"))
    poll_until([first, second], lambda: share([first, second], PARTITIONS), "both have a part")
    before, part = first.rebalances, second.owned()
    second.close()
    second = Member(cluster, topic, group_instance_id="two")
    poll_until([first, second], lambda: second.owned() == part, "it has its part again")
    assert first.rebalances == before
    first.close()
    second.close()


def test_a_pattern_is_followed_to_topics_that_come_later(cluster):
    create_topic(cluster, "pattern-1", partitions=2)
    member = ConfluentMember(
        cluster.bootstrap_servers, "pattern", "^pattern-.*", group_protocol="consumer"
    )
    poll_until([member], lambda: len(member.consumer.assignment()) == 2, "the first is there")
    create_topic(cluster, "pattern-2", partitions=3)
    poll_until([member], lambda: len(member.consumer.assignment()) == 5, "the second is there")
    member.close()


def test_a_group_has_settings_that_librdkafka_changes_and_reads(cluster):
    client = admin(cluster)
    entry = ConfigEntry(
        "consumer.session.timeout.ms",
        "50000",
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.GROUP, "set/up", incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(WAIT_S)
    wanted = ConfigResource(ResourceType.GROUP, "set/up")
    found = client.describe_configs([wanted])[wanted].result(WAIT_S)
    assert {name: each.value for name, each in found.items()} == {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "500",
    }


def type_of(cluster: LocalCluster, group: str) -> str | None:
    """The protocol of a group, as librdkafka lists it."""
    client = admin(cluster)
    found = client.list_consumer_groups().result(WAIT_S)
    return next((each.type.name for each in found.valid if each.group_id == group), None)


def test_a_group_changes_its_protocol_and_back_member_by_member(cluster):
    topic = "migrates"
    create_topic(cluster, topic, partitions=PARTITIONS)
    # Those who share are always two: one that goes is followed by one of the other protocol.
    protocols = ["classic", "classic", "consumer", "consumer", "classic", "classic"]
    members: list[Member] = []
    types = []
    for protocol in protocols:
        if len(members) == 2:
            members.pop(0).close()
        assignor = {"partition_assignment_strategy": "range"} if protocol == "classic" else {}
        members.append(Member(cluster, topic, group_protocol=protocol, **assignor))
        poll_until(
            members,
            lambda: (
                sum(len(each.owned()) for each in members) == PARTITIONS
                and all(each.owned() for each in members)
            ),
            f"all have a part after a member of {protocol}",
        )
        types.append(type_of(cluster, topic))
    assert types == ["CLASSIC", "CLASSIC", "CONSUMER", "CONSUMER", "CONSUMER", "CLASSIC"]
    for member in members:
        member.close()


def test_each_record_is_read_once_while_members_come_and_go_and_coordinators_are_killed(
    cluster, java
):
    topic = "once"
    create_topic(cluster, topic, partitions=PARTITIONS)
    seen: Counter[Place] = Counter()
    first, third = Member(cluster, topic), JavaMember(cluster, topic, java)

    def read(count: int, *members: Member) -> None:
        """Until these members have read as many together."""
        goal = seen.total() + count

        def is_read() -> bool:
            for member in members:
                seen.update(member.read_one())
            return seen.total() >= goal

        wait_until(is_read, f"{count} records are read", timeout_s=WAIT_S)

    write(cluster, topic)
    read(60, first)
    victim = coordinator_of(cluster, topic)
    cluster.kill_broker(victim)
    second = Member(cluster, topic)
    read(120, first, second)
    restart(cluster, victim, topic)
    seen.update(third.close())
    third = JavaMember(cluster, topic, java)
    victim = coordinator_of(cluster, topic)
    cluster.kill_broker(victim)
    write(cluster, topic)
    read(60, second, first)
    first.close()
    read(60, second)
    restart(cluster, victim, topic)

    def is_committed() -> bool:
        seen.update(second.read_one())
        return committed_everywhere(second, topic, 2 * RECORDS // PARTITIONS)

    wait_until(is_committed, "all is read and committed", timeout_s=WAIT_S)
    seen.update(third.close())
    second.close()
    assert set(seen) == every(2 * RECORDS)
    assert [place for place, count in seen.items() if count > 1] == []
