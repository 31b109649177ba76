"""Deletions and reassignments are asked for while other programs make, change and remove the nodes
of topics: they are done once the topic can be read, over failovers. Source: R-CTL5, R-CTL10."""

import pytest

from storage_engine.broker.controller.admin_requests import TOPICS_PER_MULTI
from storage_engine.tests.broker.controller.foreign_topics import (
    PATH,
    RECORDS,
    TP,
    cluster,
    fields,
    holds_everything,
    next_controller,
    put,
    topic,
)
from storage_engine.tests.sampling import every_second
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode, ReassignPartitionsZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

__all__ = ["cluster", "topic"]


def test_a_deletion_goes_on_when_the_topics_node_can_be_read_again(topic):
    """It waits for a dead broker, and the next controller finds garbage in the node."""
    dead = next(broker for broker in topic.brokers if broker is not topic.controller)
    dead.kill(session_ends_at_once=True)
    topic.loop.run_for(1000)
    topic.answer(topic.delete_topic("t", timeout_ms=1000))
    good = topic.zookeeper.data(PATH)
    old = topic.controller
    old.kill(session_ends_at_once=True)
    topic.zookeeper.put(PATH, b"garbage")
    old.start()
    topic.loop.run_until(lambda: topic.controller is not None)
    topic.loop.run_for(3000)
    assert topic.zookeeper.children(DeleteTopicsZNode.PATH) == ["t"]
    topic.zookeeper.put(PATH, good)
    dead.start()
    topic.loop.run_until(lambda: PATH not in topic.zookeeper.nodes)
    topic.loop.run_for(1000)
    assert topic.zookeeper.children(DeleteTopicsZNode.PATH) == []
    assert all(TP not in broker.logs.logs for broker in topic.brokers)


def test_a_deletion_ends_when_the_unreadable_node_is_gone(topic):
    topic.zookeeper.put(TopicZNode.path("odd"), b"garbage")
    topic.loop.run_for(1000)
    topic.zookeeper.make_parents(DeleteTopicsZNode.topic_path("odd"))
    topic.zookeeper.put(DeleteTopicsZNode.topic_path("odd"), b"")
    next_controller(topic)
    assert topic.zookeeper.children(DeleteTopicsZNode.PATH) == ["odd"]
    topic.zookeeper.drop(TopicZNode.path("odd"))
    topic.loop.run_until(lambda: topic.zookeeper.children(DeleteTopicsZNode.PATH) == [])


def test_a_reassignment_begins_when_the_topics_node_can_be_read_again(topic):
    good = topic.zookeeper.data(PATH)
    old = topic.controller
    old.kill(session_ends_at_once=True)
    topic.zookeeper.put(PATH, b"garbage")
    move = {"topic": "t", "partition": 0, "replicas": [3, 2]}
    put(topic, ReassignPartitionsZNode.PATH, {"version": 1, "partitions": [move]})
    topic.loop.run_until(lambda: topic.controller not in (None, old))
    topic.loop.run_for(3000)
    old.start()
    topic.zookeeper.put(PATH, good)
    topic.loop.run_until(lambda: topic.zookeeper.data(ReassignPartitionsZNode.PATH) is None)
    assert fields(topic, PATH)["partitions"] == {"0": [3, 2]}


YOUNG = TopicZNode.path("young")


@pytest.mark.parametrize("gap_ms", every_second(range(8)))
@pytest.mark.parametrize("failover", [False, True])
def test_a_reassignment_of_a_topic_that_was_just_made_is_carried_out(cluster, gap_ms, failover):
    if failover:
        cluster.controller.kill(session_ends_at_once=True)
    put(cluster, YOUNG, {"version": 1, "partitions": {"0": [1, 2]}})
    cluster.loop.run_for(gap_ms)
    move = {"topic": "young", "partition": 0, "replicas": [3, 2]}
    put(cluster, ReassignPartitionsZNode.PATH, {"version": 1, "partitions": [move]})
    for broker in cluster.brokers:
        if not broker.up:
            broker.start()
    cluster.loop.run_until(lambda: cluster.zookeeper.data(ReassignPartitionsZNode.PATH) is None)
    assert fields(cluster, YOUNG)["partitions"] == {"0": [3, 2]}


@pytest.mark.parametrize("gap_ms", every_second(range(8)))
@pytest.mark.parametrize("failover", [False, True])
def test_a_topic_that_was_just_made_is_deleted(cluster, gap_ms, failover):
    cluster.zookeeper.make_parents(DeleteTopicsZNode.topic_path("young"))
    cluster.loop.run_for(1000)
    if failover:
        cluster.controller.kill(session_ends_at_once=True)
    put(cluster, YOUNG, {"version": 1, "partitions": {"0": [1, 2, 3]}})
    cluster.loop.run_for(gap_ms)
    cluster.zookeeper.put(DeleteTopicsZNode.topic_path("young"), b"")
    for broker in cluster.brokers:
        if not broker.up:
            broker.start()
    request = DeleteTopicsZNode.topic_path("young")
    cluster.loop.run_until(lambda: request not in cluster.zookeeper.nodes)
    assert YOUNG not in cluster.zookeeper.nodes


def test_a_deletion_asked_for_as_json_deletes_no_later_topic(topic):
    """The controller dies as soon as the topic's node is gone."""
    controller = topic.controller

    def on_write(path: str, _before: bytes | None, data: bytes | None) -> None:
        if path == PATH and data is None:
            topic.loop.call_later(0, lambda: controller.kill(session_ends_at_once=False))

    topic.zookeeper.on_write = on_write
    topic.zookeeper.make_parents(DeleteTopicsZNode.PATH)
    names = ["t", *(f"never-there-{number}" for number in range(2 * TOPICS_PER_MULTI))]
    put(topic, DeleteTopicsZNode.PATH, {"version": 1, "topics": names})
    topic.loop.run_until(lambda: PATH not in topic.zookeeper.nodes)
    topic.loop.run_for(10)
    topic.zookeeper.on_write = None
    put(topic, PATH, {"version": 1, "partitions": {"0": [1, 2, 3]}})
    topic.loop.run_for(20_000)
    assert PATH in topic.zookeeper.nodes
    controller.start()
    topic.loop.run_until(lambda: topic.zookeeper.children(DeleteTopicsZNode.PATH) == [])
    assert topic.zookeeper.data(DeleteTopicsZNode.PATH) == b""
    for number in range(RECORDS):
        assert topic.produced_when_there(TP, b"of the later topic") == number
    holds_everything(topic)
