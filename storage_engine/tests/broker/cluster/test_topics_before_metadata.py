"""A new controller is asked for a topic before it has told its own broker of the cluster."""

import pytest

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.topic_admin import RequestedTopic, TopicAdmin
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.core.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    "asked_for",
    [
        RequestedTopic(topic="t", partitions=3, replication_factor=3),
        RequestedTopic(topic="t", assignment={0: [1, 2, 3]}),
    ],
    ids=["assigned", "given"],
)
def test_a_topic_is_asked_for_again_before_brokers_are_known(asked_for):
    """Not refused for good, as one with more replicas than there are brokers is."""
    settings = {"broker.id": "1", "log.dirs": "/data", "zookeeper.connect": "zk:2181"}
    topics = TopicAdmin(
        BrokerConfig.from_mapping(settings),
        metadata_store=None,  # type: ignore[arg-type]
        scheduler=None,  # type: ignore[arg-type]
        metadata=MetadataCache(),
    )
    with pytest.raises(KafkaError, match="ask again") as refusal:
        topics.plan(asked_for)
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    assert refusal.value.retriable
