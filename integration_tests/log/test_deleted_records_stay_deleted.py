"""R-LOG9: DeleteRecords by Kafka's clients moves the start of all replicas, and what was answered
stays so when all brokers are killed at once.
"""

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient

from integration_tests.support.cluster_support import admin, create_topic, wait_for_isr
from integration_tests.support.settings_support import produce
from storage_engine.tests.sampling import ALL_FAULTS

BROKERS = (1, 2, 3)


def delete(client: AdminClient, topic: str, offset: int) -> int:
    """The low watermark."""
    partition = TopicPartition(topic, 0, offset)
    return int(client.delete_records([partition])[partition].result(60).low_watermark)


def values(servers: str, topic: str) -> list[bytes]:
    """All that a reader from the beginning gets."""
    settings = {"group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return [m.value() for m in consumer.consume(end - first, timeout=60)] if end > first else []
    finally:
        consumer.close()


def test_readers_begin_after_what_was_deleted(cluster):
    create_topic(cluster, "shortened")
    client = admin(cluster)
    servers = cluster.bootstrap_servers
    produce(servers, "shortened", [b"%d" % number for number in range(10)])
    assert delete(client, "shortened", 4) == 4
    assert values(servers, "shortened") == [b"%d" % number for number in range(4, 10)]
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        delete(client, "shortened", 11)
    assert delete(client, "shortened", OFFSET_END) == 10
    assert values(servers, "shortened") == []
    produce(servers, "shortened", [b"next"])
    assert values(servers, "shortened") == [b"next"]


def test_another_client_deletes_records(cluster):
    create_topic(cluster, "foreign")
    produce(cluster.bootstrap_servers, "foreign", [b"a", b"b", b"c"])
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        client.delete_records({KafkaPythonPartition("foreign", 0): 2})
    finally:
        client.close()
    assert values(cluster.bootstrap_servers, "foreign") == [b"c"]


def test_what_was_deleted_stays_so_when_all_brokers_are_killed(cluster):
    create_topic(cluster, "killed")
    client = admin(cluster)
    produce(cluster.bootstrap_servers, "killed", [b"%d" % number for number in range(10)])
    for offset in (3, 6) if ALL_FAULTS else (3,):
        assert delete(client, "killed", offset) == offset
        for broker in BROKERS:
            cluster.kill_broker(broker)
        for broker in BROKERS:
            cluster.start_broker(broker)
        wait_for_isr(client, "killed", 3)
        left = [b"%d" % number for number in range(offset, 10)]
        assert values(cluster.bootstrap_servers, "killed") == left
