"""State that brokers keep for clients, when they are killed: the sequences of a producer among ever
so many ids of strangers, and offsets that are read with too few replicas in sync.
"""

import time

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    partition_metadata,
    wait_for_isr,
    wait_until,
)
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.security.client_sockets import ClientSockets
from storage_engine.net.deadline import Deadline
from storage_engine.net.limits import BufferPool
from storage_engine.protocol.apis import produce
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    seal,
)

HONEST = 77
STRANGERS = 3_000
RECORD = bytes([12, 0, 0, 0, 1, 0, 0])
WAIT_MS = 60_000
OFFSETS = "__consumer_offsets"


def batch(producer_id: int, sequence: int) -> bytearray:
    data = bytearray(HEADER_BYTES) + RECORD
    now_ms = int(time.time() * 1000)
    length = len(data) - LENGTH_END
    header = BatchHeader(0, length, -1, MAGIC, 0, 0, 0, now_ms, now_ms, producer_id, 0, sequence, 1)
    seal(data, 0, header)
    return data


def send(servers: str, broker: int, topic: str, records: bytearray) -> tuple[int, int]:
    """The error code and the base offset."""
    host, port = servers.split(",")[broker - 1].rsplit(":", 1)
    opened = Deadline.after(WAIT_MS)
    sockets = ClientSockets(None)
    connection = BrokerConnection.open((host, int(port)), "raw", opened, BufferPool(), sockets)
    try:
        request = produce.ProduceRequest(
            None, -1, 30_000, [produce.ProducePartition(topic, 0, memoryview(records))]
        )
        answer = connection.exchange(produce.API, request, Deadline.after(WAIT_MS), version=7)
    finally:
        connection.close()
    return answer.partitions[0].error_code, answer.partitions[0].base_offset


def sent(cluster, client, topic: str, records: bytearray) -> int:
    """The base offset, once a leader takes it."""
    offsets: list[int] = []

    def is_taken() -> bool:
        leader = leader_of(client, topic)
        code, offset = send(cluster.bootstrap_servers, leader, topic, records)
        offsets.append(offset)
        return code == 0

    wait_until(is_taken, "the leader takes the batch")
    return offsets[-1]


def test_a_repeat_is_known_after_kills_among_many_producer_ids_that_were_made_up(cluster):
    create_topic(cluster, "strangers")
    client = admin(cluster)
    first = [sent(cluster, client, "strangers", batch(HONEST, each)) for each in (0, 1)]
    flood = bytearray()
    for number in range(STRANGERS):
        flood += batch(10**9 + number, 0)
    sent(cluster, client, "strangers", flood)
    for _ in range(2):
        leader = leader_of(client, "strangers")
        cluster.kill_broker(leader)
        wait_until(lambda leader=leader: leader_of(client, "strangers") != leader, "another leads")
        again = [sent(cluster, client, "strangers", batch(HONEST, each)) for each in (0, 1)]
        assert again == first
        cluster.start_broker(leader)
        wait_for_isr(client, "strangers", 3)
    assert sent(cluster, client, "strangers", batch(HONEST, 2)) == first[-1] + STRANGERS + 1


def committed(servers: str, group: str, partition: TopicPartition) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    (found,) = consumer.committed([partition], timeout=60)
    consumer.close()
    return found.offset


def set_least_replicas(client, count: int | None) -> None:
    kind = AlterConfigOpType.DELETE if count is None else AlterConfigOpType.SET
    entry = ConfigEntry("min.insync.replicas", str(count or 1), incremental_operation=kind)
    resource = ConfigResource(ConfigResource.Type.TOPIC, OFFSETS, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(60)


def test_committed_offsets_are_read_when_one_replica_of_them_is_left(cluster):
    servers, client = cluster.bootstrap_servers, admin(cluster)
    create_topic(cluster, "read-alone")
    place = TopicPartition("read-alone", 0, 7)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "alone", "log_level": 0})
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()
    set_least_replicas(client, 2)
    try:
        coordinator = client.describe_consumer_groups(["alone"])["alone"].result(60).coordinator.id
        other = next(each for each in (1, 2, 3) if each != coordinator)
        for broker in (other, coordinator):
            cluster.kill_broker(broker)
        left = ({1, 2, 3} - {other, coordinator}).pop()
        wait_until(lambda: leads_alone(client, left), "the last broker leads alone")
        assert committed(servers, "alone", place) == 7
        for broker in (other, coordinator):
            cluster.start_broker(broker)
        assert committed(servers, "alone", place) == 7
    finally:
        set_least_replicas(client, None)


def leads_alone(client, broker: int) -> bool:
    known = partition_metadata(client, OFFSETS)
    return known is not None and known.leader == broker and known.isrs == [broker]
