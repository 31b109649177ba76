"""R-CLI2: our consumer is a member of a consumer group (KIP-848) on Apache Kafka 4, beside
librdkafka's of the same protocol: members come and go, and each record is read once."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from benchmarks.arguments import default_folder
from benchmarks.beside_kafka.jars import KRAFT, fetch_jars
from benchmarks.beside_kafka.kraft_cluster import running_kraft
from integration_tests.groups.group_members import ConfluentMember, GroupMember, poll_until, share
from integration_tests.groups.our_member import OurMember
from integration_tests.support.cluster_support import wait_until
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
from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main
from storage_engine.tools.errors import CommandError

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
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        jars = fetch_jars(default_folder(), KRAFT)
    except CommandError as error:
        pytest.skip(str(error))
    with running_kraft(tmp_path_factory.mktemp("kraft") / "kafka", jars, SETTINGS) as brokers:
        yield brokers.bootstrap_servers


def made(servers: str, topic: str) -> str:
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic(name=topic, partitions=PARTITIONS, replication_factor=1)])
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


@in_full
def test_members_come_and_go_and_each_record_is_read_once(kafka: str) -> None:
    topic = made(kafka, "come-and-go")
    first = ours(kafka, topic)
    readers = Readers(first)
    readers.until_read(RECORDS)
    rounds = 1
    for join in (theirs, ours, theirs):
        readers.members.append(join(kafka, topic))
        readers.until_shared()
        write(kafka, topic)
        rounds += 1
        readers.until_read(rounds * RECORDS)
    while len(readers.members) > 1:
        readers.members.pop(0).close()
        readers.until_shared()
        write(kafka, topic)
        rounds += 1
        readers.until_read(rounds * RECORDS)
    end_s = time.monotonic() + SETTLED_S
    while time.monotonic() < end_s:
        readers.turn()
    readers.members[0].close()
    wanted = {(n % PARTITIONS, n // PARTITIONS) for n in range(rounds * RECORDS)}
    assert sorted(readers.seen) == sorted(wanted)


@in_full
def test_what_keeps_its_owner_is_read_on_while_another_joins(kafka: str) -> None:
    topic = made(kafka, "read-on")
    heard: list[tuple[str, list[TopicPartition]]] = []
    # Nothing is committed: what is looked up again is read again.
    with Consumer(config(kafka, topic, **{"enable.auto.commit": False})) as consumer:
        consumer.subscribe(
            [topic],
            on_assigned=lambda partitions: heard.append(("assigned", partitions)),
            on_revoked=lambda partitions: heard.append(("revoked", partitions)),
        )
        until_read(consumer, RECORDS)
        before = consumer.assignment
        other = theirs(kafka, topic)

        def has_joined() -> bool:
            assert consumer.poll(50) == []
            other.poll()
            return len(heard) == 2 and len(other.owned()) == PARTITIONS // 2

        wait_until(has_joined, "the other has a part", timeout_s=60)
        assert heard[1] == ("revoked", sorted(before - consumer.assignment))
        other.close()


@in_full
def test_a_pattern_is_found_by_the_broker_also_in_a_topic_that_is_made_later(kafka: str) -> None:
    made(kafka, "pattern-1")
    with Consumer(config(kafka, "patterns")) as consumer:
        consumer.subscribe(re.compile("pattern-.*"))
        until_read(consumer, RECORDS)
        made(kafka, "pattern-2")
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


@in_full
def test_a_static_member_that_comes_back_has_its_part_again(kafka: str) -> None:
    topic = made(kafka, "static")
    other = theirs(kafka, topic)
    name = {"group.instance.id": "one"}
    with Consumer(config(kafka, topic, **name)) as consumer:
        consumer.subscribe([topic])

        def is_halved() -> bool:
            consumer.poll(50)
            return len(consumer.assignment) == len(other.owned()) == PARTITIONS // 2

        poll_until([other], is_halved, "each has a half")
        part = consumer.assignment
    rebalances = other.rebalances
    with Consumer(config(kafka, topic, **name)) as consumer:
        consumer.subscribe([topic])
        poll_until([other], lambda: consumer.poll(50) == [] and consumer.assignment, "again")
        assert consumer.assignment == part
    assert other.rebalances == rebalances
    other.close()


@in_full
def test_who_does_not_poll_loses_its_part_and_gets_it_again(kafka: str) -> None:
    topic = made(kafka, "lapsed")
    heard: list[str] = []
    with Consumer(config(kafka, topic, **{"max.poll.interval.ms": 1_000})) as consumer:
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


@in_full
def test_offsets_are_committed_in_a_transaction_with_the_members_epoch(kafka: str) -> None:
    topic = made(kafka, "in-transaction")
    member = Consumer(config(kafka, topic, **{"enable.auto.commit": False}))
    with member as consumer, OurProducer(transactional(kafka)) as producer:
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


@in_full
def test_a_group_is_listed_described_reset_and_deleted(
    kafka: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = made(kafka, "administered")

    def headrace(*arguments: str) -> str:
        assert main(["groups", *arguments, "--bootstrap-server", kafka]) == 0
        return capsys.readouterr().out

    with Consumer(config(kafka, topic)) as consumer:
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
        assert topic in headrace("list", "--type", "consumer", "--state", "stable")
        assert topic not in headrace("list", "--type", "classic")
        with (
            pytest.raises(KafkaError, match="has 1 members: stop them first"),
            Admin({"bootstrap.servers": kafka}) as admin,
        ):
            admin.reset_group_offsets(topic, at_ms=EARLIEST)
    wait_until(lambda: topic in headrace("list", "--state", "empty"), "it is empty")
    reset = json.loads(headrace("reset-offsets", topic, "--to-offset", "7", "--json"))
    assert {row["new_offset"] for row in reset["partitions"]} == {7}
    with Consumer(config(kafka, topic)) as consumer:
        consumer.subscribe([topic])
        until_read(consumer, RECORDS - 7 * PARTITIONS)
    headrace("delete", topic)
    assert topic not in headrace("list")


@in_full
def test_an_asyncio_consumer_is_a_member_too(kafka: str) -> None:
    topic = made(kafka, "asyncio")

    async def read() -> int:
        count = 0
        async with AsyncConsumer(config(kafka, topic)) as consumer:
            await consumer.subscribe([topic])
            async for _ in consumer:
                count += 1
                if count == RECORDS:
                    await consumer.commit()
                    return count
        return count

    assert asyncio.run(read()) == RECORDS


@in_full
def test_the_command_consumes_as_a_member_and_goes_on_where_it_was(
    kafka: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = made(kafka, "commanded")
    command = ["consume", topic, "--bootstrap-server", kafka, "--group", topic]
    command += ["--group-protocol", "consumer"]
    assert main([*command, "--max", "100"]) == 0
    first = capsys.readouterr().out.splitlines()
    assert main([*command, "--max", str(RECORDS - 100)]) == 0
    rest = capsys.readouterr().out.splitlines()
    assert sorted(map(int, first + rest)) == list(range(RECORDS))
