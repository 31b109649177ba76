"""Somebody wrote the highest leader epoch into a partition's state, so that no election can follow
it: the partition waits until that is mended, or is deleted. Source: R-CTL2, R-CTL6, R-CTL10."""

from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.controller.foreign_topics import (
    PATH,
    RECORDS,
    TP,
    cluster,
    fields,
    put,
    topic,
)
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode

__all__ = ["cluster", "topic"]

STATE = PartitionStateZNode.path("t", 0)
HIGHEST = 2**31 - 2
OTHER = TopicPartition("other", 0)


def exhaust(cluster):
    """The next controller finds the epoch, and that it has been restarted who led: another is to
    be elected, here and in another topic."""
    assert cluster.create_topic("other").error_code == 0
    assert cluster.produced(OTHER, b"first") == 0
    cluster.wait_in_sync(OTHER, 1, 2, 3)
    old = cluster.controller
    old.kill(session_ends_at_once=True)
    put(cluster, STATE, fields(cluster, STATE) | {"leader_epoch": HIGHEST, "leader": old.id})
    cluster.loop.run_until(lambda: cluster.controller not in (None, old))
    old.start()
    cluster.loop.run_for(5000)
    assert fields(cluster, STATE)["leader_epoch"] == HIGHEST
    assert cluster.produced(OTHER, b"second") == 1


def test_such_a_topic_is_deleted(topic):
    exhaust(topic)
    (deleted,) = topic.answer(topic.delete_topic("t")).responses
    assert deleted.error_code == 0
    assert PATH not in topic.zookeeper.nodes


def test_a_partition_is_led_once_its_epoch_is_mended(topic):
    """Under the same controller. (Replicas that were told of the highest one begin anew.)"""
    mended = fields(topic, STATE)["leader_epoch"] + 5
    exhaust(topic)
    controller = topic.controller
    put(topic, STATE, fields(topic, STATE) | {"leader_epoch": mended})
    topic.loop.run_until(lambda: fields(topic, STATE)["leader_epoch"] > mended, limit_ms=10_000)
    for broker in topic.brokers:
        if broker is not controller:
            broker.kill(session_ends_at_once=True)
            broker.start()
    topic.loop.run_for(5000)
    assert topic.controller is controller
    controller.kill(session_ends_at_once=True)
    controller.start()
    assert topic.produced(TP, b"next") == RECORDS
    topic.wait_in_sync(TP, 1, 2, 3)
