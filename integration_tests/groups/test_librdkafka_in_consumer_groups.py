"""What a program of confluent-kafka does beside reading, as a member of a consumer group: it hears
what it gets and has to give, seeks, pauses, and commits when it is asked for a partition."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until
from storage_engine.tools.local.local_cluster import LocalCluster

PARTITIONS = 4
RECORDS = 10
"""In each partition."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = (
        ("group.consumer.min.heartbeat.interval.ms", "200"),
        ("group.consumer.heartbeat.interval.ms", "200"),
    )
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=1, settings=settings) as made:
        yield made


class Told:
    """A consumer that notes what its callbacks hear."""

    def __init__(self, cluster: LocalCluster, topic: str, **settings: Any) -> None:
        self.heard: list[tuple[str, set[int]]] = []
        self.read: list[tuple[int, int]] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": topic,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        self.heard.append((what, {each.partition for each in partitions}))

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("revoked", partitions)
        ends = [(each.topic, each.partition, RECORDS) for each in partitions]
        consumer.commit(offsets=[TopicPartition(*end) for end in ends], asynchronous=False)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("lost", partitions)

    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.read.append((partition, offset))


def written(cluster: LocalCluster, topic: str) -> str:
    create_topic(cluster, topic, partitions=PARTITIONS, replication_factor=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(PARTITIONS * RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60.0) == 0
    return topic


def poll_until(members: list[Told], condition: Callable[[], bool], what: str) -> None:
    def step() -> bool:
        for member in members:
            member.poll()
        return condition()

    wait_until(step, what)


def has_read(member: Told, count: int) -> Callable[[], bool]:
    return lambda: len(member.read) >= count


def test_a_member_hears_only_of_the_partitions_that_move(cluster):
    topic = written(cluster, "callbacks")
    first = Told(cluster, topic)
    poll_until([first], lambda: len(first.owned()) == PARTITIONS, "it owns everything")
    second = Told(cluster, topic)
    poll_until([first, second], lambda: len(second.owned()) == 2, "both have a part")
    first.consumer.close()
    given = second.heard[0][1]
    assert first.heard[:2] == [("assigned", set(range(PARTITIONS))), ("revoked", given)]
    second.consumer.close()


def test_what_a_member_commits_as_it_gives_a_partition_is_where_the_next_owner_begins(cluster):
    topic = written(cluster, "given")
    first = Told(cluster, topic)
    poll_until([first], has_read(first, PARTITIONS * RECORDS), "all is read")
    second = Told(cluster, topic)
    poll_until([first, second], lambda: len(second.owned()) == 2, "both have a part")
    first.consumer.close()
    poll_until([second], lambda: len(second.owned()) == PARTITIONS, "the second owns everything")
    asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found = second.consumer.committed(asked, timeout=30.0)
    second.consumer.close()
    assert ([each.offset for each in found], second.read) == ([RECORDS] * PARTITIONS, [])


def test_a_member_seeks_in_its_partitions(cluster):
    topic = written(cluster, "seeks")
    member = Told(cluster, topic)
    poll_until([member], has_read(member, PARTITIONS * RECORDS), "all is read")
    member.read.clear()
    member.consumer.seek(TopicPartition(topic, 2, RECORDS - 3))
    poll_until([member], has_read(member, 3), "it reads again")
    member.consumer.close()
    assert member.read == [(2, offset) for offset in range(RECORDS - 3, RECORDS)]


def test_a_member_keeps_a_partition_that_it_pauses_and_reads_on_later(cluster):
    topic = written(cluster, "pauses")
    member = Told(cluster, topic)
    poll_until([member], has_read(member, PARTITIONS * RECORDS), "all is read")
    member.consumer.pause([TopicPartition(topic, 1)])
    member.read.clear()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for partition in (1, 0):
        producer.produce(topic, b"later", partition=partition)
        assert producer.flush(60.0) == 0
    poll_until([member], has_read(member, 1), "the other partition is read")
    paused = list(member.read)
    member.consumer.resume([TopicPartition(topic, 1)])
    poll_until([member], has_read(member, 2), "it is read now")
    member.consumer.close()
    assert (paused, member.read) == ([(0, RECORDS)], [(0, RECORDS), (1, RECORDS)])


def test_a_second_member_of_one_static_name_is_refused_while_the_first_is_there(cluster):
    topic = written(cluster, "posing")
    first = Told(cluster, topic, group_instance_id="one")
    poll_until([first], lambda: len(first.owned()) == PARTITIONS, "it owns everything")
    second = Told(cluster, topic, group_instance_id="one")
    codes: list[int] = []

    def is_refused() -> bool:
        first.poll()
        try:
            message = second.consumer.poll(0.02)
        except KafkaException as failure:
            codes.append(failure.args[0].code())
        else:
            if message is not None and (error := message.error()) is not None:
                codes.append(error.code())
        return bool(codes)

    wait_until(is_refused, "the second is refused")
    second.consumer.close()
    first.consumer.close()
    # As librdkafka tells of any error that ends a consumer.
    assert codes[0] in (KafkaError.UNRELEASED_INSTANCE_ID, KafkaError._FATAL)
