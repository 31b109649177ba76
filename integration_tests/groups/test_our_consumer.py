"""R-CLI2: what `Consumer` reads is what a client that we did not write has written, alone and in
groups that it shares with such a client, also when a member or the coordinator is killed."""

import re
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import Producer

from integration_tests.forks.forked import popen
from integration_tests.groups.group_members import ConfluentMember, GroupMember, poll_until, share
from integration_tests.groups.our_member import OurMember
from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.transactional_clients import Confluent
from storage_engine.client import (
    CommitRefusedError,
    Consumer,
    ConsumerRecord,
    NoOffsetError,
    TopicPartition,
)
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tools.local.local_cluster import LocalCluster

OFFSETS = "__consumer_offsets"
PARTITIONS = 4
RECORDS = 200
LEAST_SESSION_MS = 3_000


def filled(cluster: LocalCluster, topic: str) -> str:
    """Number n is in partition n % PARTITIONS, at n seconds."""
    create_topic(cluster, topic, partitions=PARTITIONS, config={"retention.ms": "-1"})
    write(cluster, topic)
    return topic


def write(cluster: LocalCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(
            topic,
            b"%d" % number,
            b"key" if number % 2 else None,
            partition=number % PARTITIONS,
            timestamp=1000 * number + 1,
            headers=[("h", b"x"), ("h", None)] if number % 3 else None,
        )
    assert producer.flush(60) == 0


def consumer(cluster: LocalCluster, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "auto.offset.reset": "earliest",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def read(ours: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []

    def all_there() -> bool:
        records.extend(ours.poll(200))
        return len(records) >= count

    wait_until(all_there, f"{count} records are read")
    assert len(records) == count
    return records


def test_records_and_tables_are_what_was_written(cluster):
    topic = filled(cluster, "written")
    with consumer(cluster) as ours:
        partitions = ours.partitions_of(topic)
        ours.assign(partitions)
        records = sorted(read(ours, RECORDS), key=lambda r: r.timestamp_ms)
        for number, record in enumerate(records):
            assert record == ConsumerRecord(
                topic,
                number % PARTITIONS,
                number // PARTITIONS,
                1000 * number + 1,
                0,
                b"key" if number % 2 else None,
                b"%d" % number,
                (("h", b"x"), ("h", None)) if number % 3 else (),
            )
        each = RECORDS // PARTITIONS
        assert {ours.position(tp) for tp in partitions} == {each}
        ours.seek_to_beginning()
        rows: list[dict[str, Any]] = []
        for table in ours.tables():
            rows += table.to_pylist()
            if len(rows) == RECORDS:
                break
        assert [row["value"] for row in sorted(rows, key=lambda row: row["timestamp"])] == [
            record.value for record in records
        ]
        assert {(r["topic"], r["partition"], r["offset"]) for r in rows} == {
            (r.topic, r.partition, r.offset) for r in records
        }


def test_a_consumer_goes_where_it_is_sent(cluster):
    topic = filled(cluster, "sent")
    each = RECORDS // PARTITIONS
    with consumer(cluster) as ours:
        partitions = first, second, *rest = ours.partitions_of(topic)
        ours.assign([first, second])
        times = ours.offsets_for_times({first: 40_000, second: 10**12})
        assert times == {first: 10, second: None}
        assert set(ours.beginning_offsets(partitions).values()) == {0}
        assert set(ours.end_offsets(partitions).values()) == {each}
        ours.seek(first, each - 2)
        ours.pause([second])
        assert [(r.partition, r.offset) for r in read(ours, 2)] == [(0, each - 2), (0, each - 1)]
        assert ours.poll(300) == []
        ours.resume([second])
        # Iteration: what was handed out last counts as read.
        for record in ours:
            if record.offset == 4:
                break
        assert (ours.position(second), ours.position(first)) == (5, each)
        assert [r.offset for r in ours.poll(5_000, 3)] == [5, 6, 7]
        # Another end, and one that does not exist.
        ours.assign([second, *rest])
        assert ours.position(second) == 8
        ours.seek_to_end()
        assert ours.poll(300) == []
        ours.seek(rest[0], each + 100)
        assert len(read(ours, each)) == each, "auto.offset.reset is earliest"
    with consumer(cluster, auto_offset_reset="none", group_id="nothing") as ours:
        ours.assign([first])
        with pytest.raises(NoOffsetError):
            wait_until(lambda: ours.poll(500), "it complains")


def test_what_is_committed_is_where_the_next_one_goes_on(cluster):
    topic = filled(cluster, "committed")
    with consumer(cluster, group_id=topic, enable_auto_commit=False) as ours:
        ours.assign(partitions := ours.partitions_of(topic))
        read(ours, RECORDS)
        ours.commit({tp: tp.partition + 1 for tp in partitions})
        outcomes: list[object] = []
        ours.commit({partitions[3]: 9}, asynchronous=True, callback=outcomes.append)
        ours.poll(0)
        wait_until(lambda: ours.poll(0) == [] and outcomes, "the callback hears of it")
        assert outcomes == [None]
        assert ours.committed(partitions) == dict(zip(partitions, (1, 2, 3, 9), strict=True))
    with consumer(cluster, group_id=topic) as ours:
        ours.assign(partitions)
        assert {tp: ours.position(tp) for tp in partitions} == ours.committed(partitions)
        read(ours, RECORDS - 15)
    with consumer(cluster, group_id=topic) as ours:
        every = dict.fromkeys(partitions, RECORDS // PARTITIONS)
        assert ours.committed(partitions) == every, "committed when it was closed"
    settings = {"group_id": topic, "auto_commit_interval_ms": 600_000}
    with pytest.raises(ZeroDivisionError), consumer(cluster, **settings) as ours:
        ours.assign(partitions)
        ours.seek_to_beginning()
        ours.poll(5_000)
        raise ZeroDivisionError
    with consumer(cluster, group_id=topic) as ours:
        assert ours.committed(partitions) == every, "not committed after an error"


def test_aborted_transactions_are_left_out(cluster):
    topic = "aborted"
    create_topic(cluster, topic)
    producer = Confluent(cluster.bootstrap_servers, topic)
    for number in range(6):
        producer.begin()
        producer.write(topic, 0, b"%d" % number)
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    producer.begin()
    producer.write(topic, 0, b"open")
    tp = TopicPartition(topic, 0)
    with consumer(cluster, isolation_level="read_committed") as ours:
        ours.assign([tp])
        assert [r.value for r in read(ours, 3)] == [b"0", b"2", b"4"]
        wait_until(lambda: ours.poll(50) == [] and ours.position(tp) == 12, "markers are passed")
    with consumer(cluster) as ours:
        ours.assign([tp])
        assert len(read(ours, 7)) == 7
    producer.abort()


def until_shared(*members: GroupMember) -> None:
    poll_until(members, lambda: share(members, PARTITIONS), "everybody has a part")


def until_read(member: GroupMember, seen: set[tuple[int, int]], count: int) -> None:
    def there() -> bool:
        seen.update(member.poll())
        return len(seen) == count

    wait_until(there, f"{count} records are read", timeout_s=180)


def test_a_group_is_shared_with_another_client(cluster):
    topic = filled(cluster, "shared")
    servers = cluster.bootstrap_servers
    first = OurMember(servers, topic, topic)
    until_read(first, set(), RECORDS)
    first.commit()
    # Ours leads; it is the other that leads where the coordinator is killed.
    second = ConfluentMember(servers, topic, topic, heartbeat_interval_ms=500)
    until_shared(first, second)
    third = OurMember(servers, topic, topic)
    until_shared(first, second, third)
    second.close()
    until_shared(first, third)
    third.close()
    _, again = poll_until(
        [first], lambda: len(first.owned()) == PARTITIONS, "the first owns everything again"
    )
    assert again == [], "what was committed is not read twice"
    first.close()


def test_who_does_not_poll_loses_its_part_and_gets_it_again(cluster):
    topic = filled(cluster, "lapsed")
    heard: list[str] = []
    with consumer(cluster, group_id=topic, max_poll_interval_ms=1_000) as ours:
        ours.subscribe(
            [topic],
            on_assigned=lambda _: heard.append("assigned"),
            on_revoked=lambda _: heard.append("revoked"),
            on_lost=lambda _: heard.append("lost"),
        )
        wait_until(lambda: ours.poll(50, max_records=1), "it has read something of its part")
        client = admin(cluster)

        def members() -> int:
            return len(client.describe_consumer_groups([topic])[topic].result().members)

        wait_until(lambda: members() == 0, "it has left")
        with pytest.raises(CommitRefusedError):
            ours.commit({TopicPartition(topic, 0): 1})
        before = len(heard)
        # What it has fetched and not handed out is another's to read by now.
        assert ours.poll(0) == []
        assert heard[before:] == ["lost"]

        def is_back() -> bool:
            ours.poll(50)
            return heard[before:][:2] == ["lost", "assigned"]

        wait_until(is_back, "it is back")
    assert heard[-1] == "revoked"


def test_patterns_find_topics_that_are_made_later(cluster):
    filled(cluster, "pattern-1")
    ours = consumer(cluster, group_id="patterns", metadata_max_age_ms=500)
    ours.subscribe(re.compile("pattern-.*"))
    with ours:
        read(ours, RECORDS)
        filled(cluster, "pattern-2")
        assert {record.topic for record in read(ours, RECORDS)} == {"pattern-2"}
        assert len(ours.assignment) == 2 * PARTITIONS


def test_a_member_of_ours_that_is_killed_is_replaced_and_nothing_is_left_out(cluster):
    topic = filled(cluster, "killed-member")
    servers = cluster.bootstrap_servers
    command = [sys.executable, "-P", "-m", "integration_tests.groups.our_member"]
    arguments = [servers, topic, topic, str(LEAST_SESSION_MS)]
    seen: set[tuple[int, int]] = set()
    with popen(command + arguments, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        for line in victim.stdout:
            partition, offset = map(int, line.split())
            seen.add((partition, offset))
            if len(seen) == RECORDS // 2:
                victim.kill()
        # The pipe may hold more than was seen when it was killed, and that may be committed.
    assert len(seen) >= RECORDS // 2
    write(cluster, topic)
    heir = ConfluentMember(servers, topic, topic)
    until_read(heir, seen, 2 * RECORDS)
    heir.close()


def test_members_go_on_when_their_coordinator_is_killed(cluster):
    topic = filled(cluster, "killed-coordinator")
    servers = cluster.bootstrap_servers
    theirs = ConfluentMember(servers, topic, topic, heartbeat_interval_ms=500)
    until_shared(theirs)
    ours = OurMember(servers, topic, topic)
    until_shared(ours, theirs)
    rebalances = ours.rebalances
    partition = state_partition(topic, COORDINATOR_PARTITIONS)
    victim = leader_of(admin(cluster), OFFSETS, partition)
    cluster.kill_broker(victim)
    try:
        offsets = {tp: tp.partition + 1 for tp in ours.consumer.assignment}
        ours.consumer.commit(offsets)
        assert ours.consumer.committed(offsets) == offsets
        until_shared(ours, theirs)
        assert ours.rebalances == rebalances
    finally:
        cluster.start_broker(victim)
        wait_for_isr(admin(cluster), OFFSETS, 3, partition)
    ours.close()
    theirs.close()
