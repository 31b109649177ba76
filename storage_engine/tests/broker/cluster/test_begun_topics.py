"""Topics that are placed, and not in the metadata yet, count as if they were. Source: R-REP13."""

from uuid import UUID

from storage_engine.broker.cluster import begun_topics
from storage_engine.broker.cluster.begun_topics import BegunTopics
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.core.control.cluster_state import TopicInfo
from storage_engine.core.ids import BrokerId
from storage_engine.protocol.apis.update_metadata import (
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)

ID = UUID(int=7)


def topic(name: str, *replicas: tuple[int, ...]) -> TopicInfo:
    assignment = {p: tuple(map(BrokerId, each)) for p, each in enumerate(replicas)}
    return TopicInfo(topic=name, topic_id=ID, assignment=assignment, unclean_election=False)


def told(name: str, partitions: int) -> MetadataCache:
    """Metadata with some partitions of a topic."""
    metadata = MetadataCache()
    items = [
        UpdateMetadataPartition(topic=name, topic_id=ID, partition=number)
        for number in range(partitions)
    ]
    metadata.update(UpdateMetadataRequest(partitions=items))
    return metadata


def missing(begun: BegunTopics, metadata: MetadataCache) -> list[tuple[int, ...]]:
    begun.settle(metadata)
    return list(begun.missing_from(metadata))


def test_partitions_count_until_the_metadata_has_them():
    begun = BegunTopics()
    begun.add(topic("t", (1, 2), (2, 3)))
    assert missing(begun, MetadataCache()) == [(1, 2), (2, 3)]
    assert missing(begun, told("t", 1)) == [(2, 3)]
    assert missing(begun, told("t", 2)) == []
    assert missing(begun, MetadataCache()) == [], "it was there, and was deleted"


def test_a_topic_that_was_not_written_is_dropped_unless_it_is_tried_again():
    begun = BegunTopics()
    first, second = topic("t", (1, 2)), topic("t", (3, 4))
    begun.add(first)
    begun.add(second)
    begun.drop(first)
    assert missing(begun, MetadataCache()) == [(3, 4)]
    begun.drop(second)
    assert missing(begun, MetadataCache()) == []


def test_the_oldest_are_forgotten_where_there_are_many(monkeypatch):
    monkeypatch.setattr(begun_topics, "KEPT_MAX", 3)
    begun = BegunTopics()
    begun.add(topic("a", (1,), (2,)))
    begun.add(topic("b", (3,), (4,)))
    assert missing(begun, MetadataCache()) == [(3,), (4,)]
