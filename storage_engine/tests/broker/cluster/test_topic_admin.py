"""Topics are created: by two at once, and by a controller that has not told its own broker of the
cluster yet."""

import pytest

from storage_engine.broker.cluster.broker_places import BrokerPlaces
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.topic_admin import RequestedTopic, TopicAdmin
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode

TP = TopicPartition("t", 0)


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
        places=BrokerPlaces(None, None),  # type: ignore[arg-type]
    )
    with pytest.raises(KafkaError, match="ask again") as refusal:
        topics.plan(asked_for)
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    assert refusal.value.retriable


@pytest.mark.parametrize("lead_ms", range(6))
def test_of_two_who_create_a_topic_one_does_and_its_settings_count(cluster, lead_ms):
    """The other once removed them, as left over from an old topic."""
    outcomes: list[KafkaError | None] = []
    for number, delay_ms in ((1, 0), (2, lead_ms)):
        admin = cluster[number].parts.cluster.topic_admin
        planned = admin.plan(RequestedTopic(topic="t", config={"retention.ms": str(number)}))
        cluster.loop.run_for(delay_ms)
        admin.write(planned, outcomes.append)
    cluster.loop.run_until(lambda: len(outcomes) == 2)
    refused = [outcome.code for outcome in outcomes if outcome is not None]
    assert refused == [ErrorCode.TOPIC_ALREADY_EXISTS]
    stored = ConfigZNode.decode("t", cluster.zookeeper.data(ConfigZNode.topic_path("t")))
    assert stored.config["retention.ms"] in ("1", "2")
    assert cluster.produced_when_there(TP, b"first") == 0
    kept = cluster[cluster.state(TP).leader].replicas.get(TP).config.log.retention_ms
    assert kept == int(stored.config["retention.ms"])
