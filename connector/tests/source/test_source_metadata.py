"""Which partitions a subscription stands for."""

from uuid import UUID

import pytest

from connector.errors import ConnectorError
from connector.options.connection_options import ConnectionOptions
from connector.options.subscription import AssignedPartitions, SubscribedTopics, TopicPattern
from connector.source import source_metadata
from connector.source.offset_range import OffsetRange
from connector.source.source_metadata import SourceMetadata
from storage_engine.client.metadata import ClusterMetadata, TopicMetadata
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.wire import NO_TOPIC_ID

OPTIONS = ConnectionOptions(
    bootstrap_servers="h:1", client_id="c", request_timeout_ms=1, metadata_max_age_ms=10_000
)


def _topic(name, partitions, *, is_internal=False, topic_id=NO_TOPIC_ID):
    return TopicMetadata(
        topic=name,
        topic_id=topic_id,
        is_internal=is_internal,
        partitions=dict.fromkeys(range(partitions), None),
    )


class FakeCluster:
    def __init__(self):
        self.topics = [_topic("a", 2), _topic("ab", 1), _topic("__own", 1, is_internal=True)]
        self.errors = {}

    def metadata(self, names, *, max_age_ms):
        asked = [topic for topic in self.topics if names is None or topic.topic in names]
        errors = {name: code for name, code in self.errors.items() if name in (names or ())}
        return ClusterMetadata(topics={topic.topic: topic for topic in asked}, errors=errors)


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def metadata(cluster, monkeypatch):
    monkeypatch.setattr(source_metadata, "cluster_for", lambda options: cluster)
    monkeypatch.setattr(source_metadata, "TOPIC_PATIENCE_MS", 0)
    monkeypatch.setattr(source_metadata, "GONE_PATIENCE_MS", 0)
    return SourceMetadata(OPTIONS, isolation_level="read_committed")


def test_topics_stand_for_all_their_partitions(metadata):
    found = metadata.find(SubscribedTopics(names=("a", "gone")))
    assert found.partitions == (TopicPartition("a", 0), TopicPartition("a", 1))
    assert found.missing == ("gone",)


def test_a_pattern_matches_whole_names_and_no_topic_of_the_brokers_own(metadata):
    assert metadata.find(TopicPattern(regex="a")).partitions == (
        TopicPartition("a", 0),
        TopicPartition("a", 1),
    )
    assert len(metadata.find(TopicPattern(regex=".*")).partitions) == 3


def test_assigned_partitions_must_exist(metadata):
    wanted = AssignedPartitions(partitions=(TopicPartition("a", 1), TopicPartition("a", 7)))
    found = metadata.find(wanted)
    assert found.partitions == (TopicPartition("a", 1),)
    with pytest.raises(ConnectorError, match=r"^\[UNKNOWN_TOPIC\] no partition a-7 on h:1; "):
        metadata.find_all(wanted)


def test_a_pattern_that_matches_nothing_is_told(metadata):
    with pytest.raises(ConnectorError, match="no topic that matches 'x"):
        metadata.find_all(TopicPattern(regex="x+"))


def test_the_ids_of_topics_are_told_where_the_brokers_know_them(metadata, cluster):
    assert metadata.find(SubscribedTopics(names=("a",))).topic_ids == {}
    topic_id = UUID(int=5)
    cluster.topics.append(_topic("c", 1, topic_id=topic_id))
    assert metadata.find(SubscribedTopics(names=("a", "c"))).topic_ids == {"c": topic_id}


def test_a_range_is_kept_where_its_partition_is_there(metadata):
    there, gone = (
        OffsetRange(topic_partition=TopicPartition("a", each), start_offset=0, end_offset=1)
        for each in (1, 7)
    )
    kept, losses = metadata.keep_existing([there, gone])
    assert kept == [there]
    assert losses == ["a-7, wanted from offset 0 to 1, is gone"]


def test_a_topic_that_a_user_may_not_see_any_more_is_not_taken_for_one_that_is_gone(
    metadata, cluster
):
    cluster.topics.pop(0)
    cluster.errors = {"a": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    wanted = OffsetRange(topic_partition=TopicPartition("a", 0), start_offset=0, end_offset=5)
    refused = r"^\[TOPIC_AUTHORIZATION_FAILED\] the topic 'a': not allowed to use that topic$"
    with pytest.raises(ConnectorError, match=refused):
        metadata.keep_existing([wanted])
    for subscription in (
        SubscribedTopics(names=("a", "ab")),
        AssignedPartitions(partitions=(TopicPartition("a", 1),)),
    ):
        with pytest.raises(ConnectorError, match=refused):
            metadata.find_all(subscription)
        assert metadata.find(subscription).refused == cluster.errors
    cluster.errors = {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    kept, losses = metadata.keep_existing([wanted])
    assert (kept, losses) == ([], ["a-0, wanted from offset 0 to 5, is gone"])
