"""R-CLI2: our consumer is a member of a consumer group (KIP-848), beside librdkafka's of the same
protocol: members come and go, and each record is read once. Brokers are ours and Apache Kafka 4."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from benchmarks.arguments import default_folder
from benchmarks.beside_kafka.jars import KRAFT, fetch_jars
from benchmarks.beside_kafka.kraft_cluster import running_kraft
from integration_tests.forks.forked import popen
from integration_tests.groups.group_members import ConfluentMember, GroupMember, poll_until, share
from integration_tests.groups.our_member import OurMember
from integration_tests.support.cluster_support import (
    admin,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from storage_engine.client import (
    EARLIEST,
    Admin,
    AsyncConsumer,
    Consumer,
    GroupError,
    KafkaError,
    NewTopic,
    TopicPartition,
)
from storage_engine.client import Producer as OurProducer
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.local_cluster import LocalCluster

OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = 4
PARTITIONS = 6
RECORDS = 300
HEARTBEAT_MS = "500"
SETTINGS = (
    ("group.consumer.min.heartbeat.interval.ms", HEARTBEAT_MS),
    ("group.consumer.heartbeat.interval.ms", HEARTBEAT_MS),
    ("group.consumer.min.session.timeout.ms", "3000"),
    ("group.consumer.session.timeout.ms", "6000"),
)
SETTLED_S = 3.0
"""Time for several heartbeats."""


@pytest.fixture(scope="module")
def ours_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = (*SETTINGS, ("offsets.topic.num.partitions", str(OFFSETS_PARTITIONS)))
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=3, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        jars = fetch_jars(default_folder(), KRAFT)
    except CommandError as error:
        pytest.skip(str(error))
    with running_kraft(tmp_path_factory.mktemp("kraft") / "kafka", jars, SETTINGS) as brokers:
        yield brokers.bootstrap_servers


@pytest.fixture(params=["headrace", pytest.param("kafka", marks=in_full)])
def servers(request: pytest.FixtureRequest) -> str:
    if request.param == "kafka":
        return str(request.getfixturevalue("kafka_running"))
    cluster: LocalCluster = request.getfixturevalue("ours_running")
    return cluster.bootstrap_servers


def made(servers: str, topic: str, *, replicas: int = 1) -> str:
    new = NewTopic(name=topic, partitions=PARTITIONS, replication_factor=replicas)
    with Admin({"bootstrap.servers": servers}) as client:
        client.create_topics([new])
    write(servers, topic)
    return topic


def write(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def ours(servers: str, topic: str) -> OurMember:
    return OurMember(servers, topic, topic, group_protocol="consumer")


def theirs(servers: str, topic: str) -> ConfluentMember:
    return ConfluentMember(servers, topic, topic, group_protocol="consumer")


class Readers:
    """Members of one group that commit what each poll has brought before the next one."""

    def __init__(self, *members: GroupMember) -> None:
        self.members = list(members)
        self.seen: list[tuple[int, int]] = []

    def turn(self) -> None:
        for member in self.members:
            if read := member.poll():
                self.seen += read
                # librdkafka's tells of an epoch that has just gone on; the next one has it.
                with contextlib.suppress(KafkaException):
                    member.commit()

    def until_read(self, count: int) -> None:
        def there() -> bool:
            self.turn()
            return len(self.seen) >= count

        wait_until(there, f"{count} records are read", timeout_s=90)

    def until_shared(self) -> None:
        def shared() -> bool:
            self.turn()
            return share(self.members, PARTITIONS)

        wait_until(shared, "everybody has a part", timeout_s=90)


def test_members_come_and_go_and_each_record_is_read_once(servers: str) -> None:
    topic = made(servers, "come-and-go")
    first = ours(servers, topic)
    readers = Readers(first)
    readers.until_read(RECORDS)
    rounds = 1
    for join in (theirs, ours, theirs):
        readers.members.append(join(servers, topic))
        readers.until_shared()
        write(servers, topic)
        rounds += 1
        readers.until_read(rounds * RECORDS)
    while len(readers.members) > 1:
        readers.members.pop(0).close()
        readers.until_shared()
        write(servers, topic)
        rounds += 1
        readers.until_read(rounds * RECORDS)
    end_s = time.monotonic() + SETTLED_S
    while time.monotonic() < end_s:
        readers.turn()
    readers.members[0].close()
    wanted = {(n % PARTITIONS, n // PARTITIONS) for n in range(rounds * RECORDS)}
    assert sorted(readers.seen) == sorted(wanted)


def test_what_keeps_its_owner_is_read_on_while_another_joins(servers: str) -> None:
    topic = made(servers, "read-on")
    heard: list[tuple[str, list[TopicPartition]]] = []
    # Nothing is committed: what is looked up again is read again.
    with Consumer(config(servers, topic, **{"enable.auto.commit": False})) as consumer:
        consumer.subscribe(
            [topic],
            on_assigned=lambda partitions: heard.append(("assigned", partitions)),
            on_revoked=lambda partitions: heard.append(("revoked", partitions)),
        )
        until_read(consumer, RECORDS)
        before = consumer.assignment
        other = theirs(servers, topic)

        def has_joined() -> bool:
            assert consumer.poll(50) == []
            other.poll()
            return len(heard) == 2 and len(other.owned()) == PARTITIONS // 2

        wait_until(has_joined, "the other has a part", timeout_s=60)
        assert heard[1] == ("revoked", sorted(before - consumer.assignment))
        other.close()


def test_a_pattern_is_found_by_the_broker_also_in_a_topic_that_is_made_later(servers: str) -> None:
    made(servers, "pattern-1")
    with Consumer(config(servers, "patterns")) as consumer:
        consumer.subscribe(re.compile("pattern-.*"))
        until_read(consumer, RECORDS)
        made(servers, "pattern-2")
        assert until_read(consumer, RECORDS) == {"pattern-2"}
        consumer.subscribe(["pattern-1"])
        wait_until(
            lambda: consumer.poll(50) == [] and len(consumer.assignment) == PARTITIONS,
            "it has left the other topic",
            timeout_s=60,
        )
        # Python knows it, and RE2 does not.
        consumer.subscribe(re.compile("(?=pattern-)"))
        with pytest.raises(GroupError, match=r"group 'patterns': .*\(\?="):
            wait_until(lambda: consumer.poll(50), "the broker refuses the pattern")


def test_a_static_member_that_comes_back_has_its_part_again(servers: str) -> None:
    topic = made(servers, "static")
    other = theirs(servers, topic)
    name = {"group.instance.id": "one"}
    with Consumer(config(servers, topic, **name)) as consumer:
        consumer.subscribe([topic])

        def is_halved() -> bool:
            consumer.poll(50)
            return len(consumer.assignment) == len(other.owned()) == PARTITIONS // 2

        poll_until([other], is_halved, "each has a half")
        part = consumer.assignment
    rebalances = other.rebalances
    with Consumer(config(servers, topic, **name)) as consumer:
        consumer.subscribe([topic])
        poll_until([other], lambda: consumer.poll(50) == [] and consumer.assignment, "again")
        assert consumer.assignment == part
    assert other.rebalances == rebalances
    other.close()


def test_a_static_member_that_was_killed_is_waited_for_and_replaced(servers: str) -> None:
    topic = made(servers, "static-killed")
    name = {"group.instance.id": "one"}
    killed = Consumer(config(servers, topic, **name))
    killed.subscribe([topic])
    wait_until(lambda: killed.poll(50) == [] and killed.assignment, "it has its part")
    assert killed._group is not None
    # Its heartbeats end, and it does not leave.
    killed._group._loop.stop()
    with Consumer(config(servers, topic, **name)) as consumer:
        consumer.subscribe([topic])
        wait_until(
            lambda: consumer.poll(50) == [] and len(consumer.assignment) == PARTITIONS,
            "it has the part of the one that was killed",
            timeout_s=60,
        )
    killed.close()


def test_who_does_not_poll_loses_its_part_and_gets_it_again(servers: str) -> None:
    topic = made(servers, "lapsed")
    heard: list[str] = []
    with Consumer(config(servers, topic, **{"max.poll.interval.ms": 1_000})) as consumer:
        consumer.subscribe(
            [topic],
            on_assigned=lambda _: heard.append("assigned"),
            on_lost=lambda _: heard.append("lost"),
        )
        wait_until(lambda: consumer.poll(50, max_records=1), "it has read something")
        time.sleep(2.5)
        assert consumer.poll(0) == []
        wait_until(lambda: consumer.poll(50) and heard[-1] == "assigned", "it is back")
    assert heard == ["assigned", "lost", "assigned"]


def test_offsets_are_committed_in_a_transaction_with_the_members_epoch(servers: str) -> None:
    topic = made(servers, "in-transaction")
    member = Consumer(config(servers, topic, **{"enable.auto.commit": False}))
    with member as consumer, OurProducer(transactional(servers)) as producer:
        producer.init_transactions()
        consumer.subscribe([topic])
        until_read(consumer, RECORDS)
        offsets = {tp: consumer.position(tp) for tp in consumer.assignment}
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
        assert consumer.committed(offsets) == offsets


def transactional(servers: str) -> dict[str, object]:
    return {"bootstrap.servers": servers, "transactional.id": "tx"}


def config(servers: str, group: str, **settings: object) -> dict[str, object]:
    return {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        **settings,
    }


def until_read(consumer: Consumer, count: int) -> set[str]:
    """Reads so many records, and returns their topics."""
    topics: list[str] = []

    def there() -> bool:
        topics.extend(record.topic for record in consumer.poll(100))
        return len(topics) >= count

    wait_until(there, f"{count} records are read", timeout_s=60)
    return set(topics)


def test_a_group_is_listed_described_reset_and_deleted(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = made(servers, "administered")

    def headrace(*arguments: str) -> str:
        assert main(["groups", *arguments, "--bootstrap-server", servers]) == 0
        return capsys.readouterr().out

    with Consumer(config(servers, topic)) as consumer:
        consumer.subscribe([topic])
        until_read(consumer, RECORDS)
        consumer.commit()
        wait_until(lambda: "Stable" in headrace("describe", topic), "it is stable")
        told = json.loads(headrace("describe", topic, "--json"))
        assert (told["type"], told["lag"], told["protocol"]) == ("consumer", 0, "uniform")
        (member,) = told["members"]
        assert member["epoch"] == told["epoch"] == told["assignment_epoch"]
        assert member["assignment"] == member["target"]
        assert len(member["assignment"]) == PARTITIONS
        shown = headrace("describe", topic, "--members")
        assert f"{topic} 0-{PARTITIONS - 1}" in shown.splitlines()[-1]
        headrace("settings", topic, "--config", "consumer.session.timeout.ms=7000")

        def session() -> tuple[str, str]:
            rows = json.loads(headrace("settings", topic, "--json"))
            row = next(r for r in rows if r["setting"] == "consumer.session.timeout.ms")
            return row["value"], row["source"]

        wait_until(lambda: session() == ("7000", "group"), "the setting is told")
        headrace("settings", topic, "--remove-config", "consumer.session.timeout.ms")
        wait_until(lambda: session() == ("6000", "brokers"), "the setting is the brokers'")
        assert topic in headrace("list", "--type", "consumer", "--state", "stable")
        assert topic not in headrace("list", "--type", "classic")
        with (
            pytest.raises(KafkaError, match="has 1 members: stop them first"),
            Admin({"bootstrap.servers": servers}) as client,
        ):
            client.reset_group_offsets(topic, at_ms=EARLIEST)
    wait_until(lambda: topic in headrace("list", "--state", "empty"), "it is empty")
    reset = json.loads(headrace("reset-offsets", topic, "--to-offset", "7", "--json"))
    assert {row["new_offset"] for row in reset["partitions"]} == {7}
    with Consumer(config(servers, topic)) as consumer:
        consumer.subscribe([topic])
        until_read(consumer, RECORDS - 7 * PARTITIONS)
    headrace("delete", topic)
    assert topic not in headrace("list")


def test_an_asyncio_consumer_is_a_member_too(servers: str) -> None:
    topic = made(servers, "asyncio")

    async def read() -> int:
        count = 0
        async with AsyncConsumer(config(servers, topic)) as consumer:
            await consumer.subscribe([topic])
            async for _ in consumer:
                count += 1
                if count == RECORDS:
                    await consumer.commit()
                    return count
        return count

    assert asyncio.run(read()) == RECORDS


def test_the_command_consumes_as_a_member_and_goes_on_where_it_was(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = made(servers, "commanded")
    command = ["consume", topic, "--bootstrap-server", servers, "--group", topic]
    command += ["--group-protocol", "consumer"]
    assert main([*command, "--max", "100"]) == 0
    first = capsys.readouterr().out.splitlines()
    assert main([*command, "--max", str(RECORDS - 100)]) == 0
    rest = capsys.readouterr().out.splitlines()
    assert sorted(map(int, first + rest)) == list(range(RECORDS))


def test_members_go_on_when_their_coordinator_is_killed(ours_running: LocalCluster) -> None:
    topic = made(ours_running.bootstrap_servers, "killed-coordinator", replicas=3)
    mine = ours(ours_running.bootstrap_servers, topic)
    readers = Readers(mine, theirs(ours_running.bootstrap_servers, topic))
    readers.until_shared()
    readers.until_read(RECORDS)
    client = admin(ours_running)
    partition = state_partition(topic, OFFSETS_PARTITIONS)
    part = mine.consumer.assignment
    victim = leader_of(client, OFFSETS, partition)
    ours_running.kill_broker(victim)
    try:
        offsets = {tp: mine.consumer.position(tp) for tp in part}
        mine.consumer.commit(offsets)
        assert mine.consumer.committed(offsets) == offsets
        write(ours_running.bootstrap_servers, topic)
        readers.until_read(2 * RECORDS)
        assert mine.consumer.assignment == part
    finally:
        ours_running.start_broker(victim)
        wait_for_isr(client, OFFSETS, 3, partition)
    for member in readers.members:
        member.close()
    assert len(set(readers.seen)) == 2 * RECORDS


def test_a_member_that_is_killed_is_replaced_when_its_session_ends(
    ours_running: LocalCluster,
) -> None:
    servers = ours_running.bootstrap_servers
    topic = made(servers, "killed-member")
    command = [sys.executable, "-P", "-m", "integration_tests.groups.our_member"]
    seen: set[tuple[int, int]] = set()
    with popen([*command, servers, topic, topic], stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        for line in victim.stdout:
            partition, offset = map(int, line.split())
            seen.add((partition, offset))
            if len(seen) == RECORDS // 2:
                victim.kill()
    heir = Readers(theirs(servers, topic))

    def all_read() -> bool:
        heir.turn()
        return len(seen | set(heir.seen)) == RECORDS

    wait_until(all_read, "the other reads the rest", timeout_s=90)
    heir.members[0].close()


def test_a_group_changes_over_member_by_member(ours_running: LocalCluster) -> None:
    servers = ours_running.bootstrap_servers
    topic = made(servers, "changes-over")
    old = [OurMember(servers, topic, topic), OurMember(servers, topic, topic)]
    readers = Readers(*old)
    readers.until_shared()
    readers.until_read(RECORDS)
    for rounds, former in enumerate(old, 2):
        readers.members.append(ours(servers, topic))
        readers.until_shared()
        readers.members.remove(former)
        former.close()
        readers.until_shared()
        write(servers, topic)
        readers.until_read(rounds * RECORDS)
    with Admin({"bootstrap.servers": servers}) as client:
        assert client.describe_group(topic).group_type == "consumer"
    for member in readers.members:
        member.close()
    wanted = {(n % PARTITIONS, n // PARTITIONS) for n in range(3 * RECORDS)}
    assert sorted(readers.seen) == sorted(wanted)


def test_a_cluster_whose_feature_is_not_raised_says_how_to_raise_it(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster", brokers=1) as cluster:
        servers = cluster.bootstrap_servers
        lower = ["features", "downgrade", "--feature", "group.version=0"]
        assert main([*lower, "--bootstrap-server", servers]) == 0
        with Consumer(config(servers, "g")) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(GroupError, match=r"raise group\.version to 1"):
                wait_until(lambda: consumer.poll(50), "it complains")
