"""Other programs make nodes below those of a topic: they go with the topic. Source: R-CTL6,
R-CTL10."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.tests.broker.controller.foreign_znodes import cluster, serves_what_is_sound
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode

__all__ = ["cluster"]


@pytest.mark.parametrize(
    "path",
    [
        "/brokers/topics/gone/x",
        "/brokers/topics/gone/partitions/7",
        "/brokers/topics/gone/partitions/0/x/y",
        "/brokers/topics/gone/partitions/0/state/x",
        "/config/topics/gone/x",
        "/admin/delete_topics/gone/x",
    ],
)
def test_what_others_made_below_a_topics_nodes_goes_with_the_topic(cluster, path):
    assert cluster.create_topic("gone").error_code == 0
    cluster.zookeeper.make_parents(path)
    cluster.zookeeper.put(path, b"")
    deleted = cluster.answer(cluster.delete_topic("gone")).responses
    # Its request may have been carried out before anybody asked for it.
    assert deleted[0].error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    left = [each for each in cluster.zookeeper.nodes if "/gone" in each]
    assert left == []
    assert cluster.create_topic("gone").error_code == 0
    serves_what_is_sound(cluster, "after")


def test_settings_that_a_topic_left_with_nodes_below_them_keep_nobody_from_its_name(cluster):
    path = "/config/topics/fresh/x"
    cluster.zookeeper.make_parents(path)
    cluster.zookeeper.put(path, b"")
    cluster.zookeeper.put("/config/topics/fresh", b'{"version":1,"config":{"retention.ms":"1"}}')
    assert cluster.create_topic("fresh").error_code == 0
    settings = ConfigZNode.decode("", cluster.zookeeper.data("/config/topics/fresh"))
    assert settings.config == {}
