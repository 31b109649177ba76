"""Groups with real processes: groups of clients that we did not write, whose members come, go
and are killed, and whose coordinator is; offsets, also in transactions."""

import json
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from integration_tests.forks.forked import popen
from integration_tests.groups.aiokafka_member import AioKafkaMember
from integration_tests.groups.group_members import (
    ConfluentMember,
    GroupMember,
    KafkaPythonMember,
    poll_until,
    share,
)
from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tools.cli import main
from storage_engine.tools.local.local_cluster import LocalCluster

OFFSETS = "__consumer_offsets"
PARTITIONS = 6
RECORDS = 120
LEAST_SESSION_MS = 3_000
WAIT_S = 60.0

MEMBERS = pytest.mark.parametrize("member", [ConfluentMember, KafkaPythonMember, AioKafkaMember])


def filled(cluster: LocalCluster, name: str, *, partitions: int = PARTITIONS) -> str:
    """The topic has the name of its group."""
    topic = f"groups-{name}"
    create_topic(cluster, topic, partitions=partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(WAIT_S) == 0
    return topic


def coordinator_of(cluster: LocalCluster, group: str) -> int:
    return leader_of(admin(cluster), OFFSETS, state_partition(group, COORDINATOR_PARTITIONS))


def restart(cluster: LocalCluster, broker: int, group: str) -> None:
    cluster.start_broker(broker)
    wait_for_isr(admin(cluster), OFFSETS, 3, state_partition(group, COORDINATOR_PARTITIONS))


def assigned_consumer(cluster: LocalCluster, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def committed(consumer: Consumer, topic: str, partition: int = 0) -> tuple[int, str]:
    """Offset and metadata, as soon as a coordinator tells them."""

    def ask() -> Any:
        try:
            return consumer.committed([TopicPartition(topic, partition)], timeout=10)
        except KafkaException:
            return None

    (found,) = wait_until(ask, "the offset is told")
    return found.offset, found.metadata or ""


def test_offsets_of_consumers_without_a_group_outlive_their_coordinator(cluster):
    """Spark's source commits so: assigned partitions, no generation, no member."""
    topic = filled(cluster, "assigned")
    ours = assigned_consumer(cluster, "assigned")
    ours.commit(offsets=[TopicPartition(topic, 0, 5, "five")], asynchronous=False)
    theirs = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        group_id="assigned",
        enable_auto_commit=False,
    )
    tp = KafkaPythonPartition(topic, 0)
    theirs.assign([tp])
    assert theirs.committed(tp) == 5
    theirs.seek(tp, 7)
    theirs.commit()
    assert committed(ours, topic) == (7, "")
    victim = coordinator_of(cluster, "assigned")
    cluster.kill_broker(victim)
    try:
        assert committed(ours, topic) == (7, "")
        # KIP-211: nothing is stored of the one that does not exist.
        offsets = [TopicPartition(topic, 0, 9), TopicPartition(topic, 99, 1)]
        with pytest.raises(KafkaException):
            ours.commit(offsets=offsets, asynchronous=False)
        assert committed(ours, topic) == (9, "")
    finally:
        restart(cluster, victim, "assigned")
    theirs.close()
    ours.close()


@MEMBERS
def test_members_share_the_partitions_as_they_come_and_go(cluster, member):
    topic = filled(cluster, f"shared-{member.__name__}")
    every = {(number % PARTITIONS, number // PARTITIONS) for number in range(RECORDS)}
    first = member(cluster.bootstrap_servers, topic, topic)
    # Records may come with the poll that brings the partitions.
    _, read = poll_until(
        [first], lambda: first.owned() == set(range(PARTITIONS)), "the first owns everything"
    )

    def all_read() -> bool:
        read.extend(first.poll())
        return set(read) >= every

    wait_until(all_read, "all is read")
    first.commit()
    second = member(cluster.bootstrap_servers, topic, topic)
    poll_until([first, second], lambda: share([first, second], PARTITIONS), "both have a part")
    second.close()
    _, again = poll_until(
        [first], lambda: first.owned() == set(range(PARTITIONS)), "the first owns everything again"
    )
    assert again == [], "what was committed is not read twice"
    first.close()


@MEMBERS
def test_a_member_that_is_killed_is_replaced_after_its_session(cluster, member):
    topic = filled(cluster, f"killed-{member.__name__}")
    settings = {"session_timeout_ms": LEAST_SESSION_MS}
    first = member(cluster.bootstrap_servers, topic, topic, **settings)
    command = [sys.executable, "-P", "-m", "integration_tests.groups.group_members"]
    arguments = [member.__name__, cluster.bootstrap_servers, topic, topic, str(LEAST_SESSION_MS)]
    with popen(command + arguments, stdout=subprocess.DEVNULL) as second:
        try:
            half = PARTITIONS // 2
            poll_until([first], lambda: len(first.owned()) == half, "the other has its part")
        finally:
            second.kill()
    poll_until([first], lambda: len(first.owned()) == PARTITIONS, "the dead one's part is taken")
    first.close()


@MEMBERS
def test_a_static_member_that_is_started_again_disturbs_nobody(cluster, member):
    topic = filled(cluster, f"static-{member.__name__}")

    def started(name: str) -> GroupMember:
        return member(cluster.bootstrap_servers, topic, topic, group_instance_id=name)

    first, second = started("one"), started("two")
    poll_until([first, second], lambda: share([first, second], PARTITIONS), "both have a part")
    before, part = first.rebalances, second.owned()
    # A static member does not leave when it is closed.
    second.close()
    second = started("two")
    poll_until([first, second], lambda: second.owned() == part, "it has its part again")
    assert first.rebalances == before
    first.close()
    second.close()


def test_a_group_goes_on_when_its_coordinator_is_killed(cluster):
    topic = filled(cluster, "failover")
    members = [ConfluentMember(cluster.bootstrap_servers, topic, topic) for _ in range(2)]
    poll_until(members, lambda: share(members, PARTITIONS), "both have a part")
    poll_until(members, lambda: all(m.owned() for m in members), "both read")
    rebalances = [m.rebalances for m in members]
    victim = coordinator_of(cluster, topic)
    cluster.kill_broker(victim)
    try:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        for partition in range(PARTITIONS):
            producer.produce(topic, b"after", partition=partition)
        assert producer.flush(WAIT_S) == 0
        newest = RECORDS // PARTITIONS
        seen: set[tuple[int, int]] = set()

        def all_seen() -> bool:
            for each in members:
                seen.update(each.poll())
            return seen >= {(p, newest) for p in range(PARTITIONS)}

        wait_until(all_seen, "what came afterwards is read", timeout_s=180)

        def commit() -> bool:
            try:
                for each in members:
                    each.commit()
            except KafkaException:
                return False
            return True

        poll_until(members, commit, "the new coordinator stores their offsets")
        assert [m.rebalances for m in members] == rebalances
    finally:
        restart(cluster, victim, topic)
    for each in members:
        each.close()
    consumer = assigned_consumer(cluster, topic)
    assert {committed(consumer, topic, p)[0] for p in range(PARTITIONS)} == {newest + 1}
    consumer.close()


def test_the_command_line_tells_lag_and_lets_a_group_read_on_from_elsewhere(cluster, capsys):
    topic = filled(cluster, "told")
    each = RECORDS // PARTITIONS
    member = ConfluentMember(cluster.bootstrap_servers, topic, topic)
    poll_until([member], lambda: len(member.owned()) == PARTITIONS, "it owns everything")
    offsets = [TopicPartition(topic, p, each - p) for p in range(PARTITIONS)]
    member.consumer.commit(offsets=offsets, asynchronous=False)

    def headrace(*arguments: str) -> Any:
        capsys.readouterr()
        servers = ["--bootstrap-server", cluster.bootstrap_servers]
        status = main([*arguments, *servers, "--json"])
        output = capsys.readouterr()
        return json.loads(output.out) if status == 0 else output.err

    (row,) = [row for row in headrace("groups", "list") if row["group"] == topic]
    assert (row["state"], row["coordinator"]) == ("Stable", coordinator_of(cluster, topic))
    told = headrace("groups", "describe", topic)
    assert [row["lag"] for row in told["partitions"]] == list(range(PARTITIONS))
    assert {row["member"] for row in told["partitions"]} == {told["members"][0]["member"]}
    reset = ["groups", "reset-offsets", topic]
    assert "has 1 members" in headrace(*reset, "--to-earliest")
    member.close()
    for where, offset in (
        (["--to-earliest"], 0),
        (["--to-latest"], each),
        (["--to-offset", "7"], 7),
        (["--shift-by", "-3"], 4),
        (["--shift-by", "1000"], each),
        (["--to-time", "2100-01-01"], each),
        (["--to-time", "0", "--topic", topic], 0),
    ):
        planned = headrace(*reset, *where, "--dry-run")
        assert {row["new_offset"] for row in planned["partitions"]} == {offset}, where
        done = headrace(*reset, *where)
        assert {**done, "done": False} == planned
        again = headrace("groups", "describe", topic)
        assert [row["offset"] for row in again["partitions"]] == [offset] * PARTITIONS
    ends = headrace("get-offsets", "--topic", topic)
    assert [row["offset"] for row in ends] == [each] * PARTITIONS
    assert main(["groups", "delete", topic, "--bootstrap-server", cluster.bootstrap_servers]) == 0
    assert "there is no group" in headrace("groups", "describe", topic)
