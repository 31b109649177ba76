"""R-CLI1, R-CLI7: what `Producer` acknowledges is there once and in order, as a client that we did
not write reads it, also when the leader was killed in the middle.
"""

from concurrent.futures import Future

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.steady_producer import read_numbers
from storage_engine.client import Producer, RecordMetadata

CODECS = ("none", "gzip", "zstd")


def read_all(servers, topic, count):
    """`count` messages of partition 0, as confluent-kafka has them."""
    settings = {"group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    messages: list[Message] = []
    while len(messages) < count:
        more = consumer.consume(count - len(messages), timeout=30)
        assert more, f"reading stopped at {len(messages)} of {count}"
        assert all(message.error() is None for message in more)
        messages += more
    consumer.close()
    return messages


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_what_was_sent(cluster, codec):
    topic = f"sent-{codec}"
    create_topic(cluster, topic, config={"retention.ms": "-1"})
    config = {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec}
    with Producer(config) as producer:
        futures = [
            producer.send(
                topic, f"value {number}", b"key", [("h", b"x"), ("h", None)], 1000 + number
            )
            for number in range(500)
        ]
        values = [b"row %d" % number for number in range(5000)]
        table = producer.send_table(topic, pa.table({"value": values, "key": ["é"] * 5000}))
    assert table.result().last_offsets == {0: 5499}
    assert [f.result() for f in futures] == [RecordMetadata(topic, 0, n) for n in range(500)]
    messages = read_all(cluster.bootstrap_servers, topic, 5500)
    for number, message in enumerate(messages[:500]):
        assert (message.key(), message.value()) == (b"key", b"value %d" % number)
        assert message.headers() == [("h", b"x"), ("h", None)]
        assert message.timestamp()[1] == 1000 + number
    assert [message.value() for message in messages[500:]] == values
    assert {message.key() for message in messages[500:]} == {"é".encode()}


def test_a_leader_killed_in_the_middle_loses_and_doubles_nothing(cluster):
    topic = "steady"
    create_topic(cluster, topic, config={"min.insync.replicas": "2"})
    client = admin(cluster)
    victim = leader_of(client, topic)
    acknowledged: dict[int, int] = {}
    futures: list[Future[RecordMetadata]] = []

    def send(count):
        for number in range(len(futures), len(futures) + count):

            def told(metadata, error, number=number):
                if error is None:
                    acknowledged[number] = metadata.offset

            futures.append(producer.send(topic, b"%d" % number, callback=told))

    config = {"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 1000, "linger.ms": 1}
    with Producer(config) as producer:
        send(1000)
        wait_until(lambda: len(acknowledged) > 100, "records are acknowledged before the kill")
        send(2000)
        cluster.kill_broker(victim)
        send(3000)
        wait_until(lambda: len(acknowledged) > 4000, "records are acknowledged by the next leader")
        assert cluster.start_broker(victim)
        send(1000)
    wait_for_isr(client, topic, 3)
    assert all(future.exception(0) is None for future in futures)
    records = read_numbers(cluster.bootstrap_servers, topic)
    assert records == [(number, number) for number in range(7000)]
    for number, offset in acknowledged.items():
        # -1: recognised by the new leader as a repetition of what it has.
        assert offset in (number, -1)
    assert len(acknowledged) == 7000
