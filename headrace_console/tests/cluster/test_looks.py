"""The sizes of partitions, from what brokers report of their log dirs."""

from uuid import UUID

from headrace_console.cluster import looks
from storage_engine.client.metadata import ClusterMetadata, TopicMetadata
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.metadata import MetadataPartition

LED_BY_2, LEADERLESS = TopicPartition("t", 0), TopicPartition("t", 1)
DELETED = TopicPartition("deleted", 0)


def test_a_partition_is_as_large_as_on_its_leader_and_a_deleted_one_is_forgotten() -> None:
    partitions = {
        tp.partition: MetadataPartition(error_code=0, partition=tp.partition, leader=leader)
        for tp, leader in ((LED_BY_2, 2), (LEADERLESS, -1))
    }
    topic = TopicMetadata(topic="t", topic_id=UUID(int=1), is_internal=False, partitions=partitions)
    replicas = {
        1: {LED_BY_2: 10, LEADERLESS: 5, DELETED: 7},
        2: {LED_BY_2: 30, LEADERLESS: 4},
        3: {LED_BY_2: 20},
    }
    found = looks.partition_sizes(ClusterMetadata(topics={"t": topic}), replicas)
    assert found == {LED_BY_2: 30, LEADERLESS: 5}
