"""Topics whose id was lost: a program wrote their nodes without it while there was no controller,
and nothing else has recorded it. Source: KIP-516."""

import json
from uuid import UUID

import pytest

from storage_engine.core.control.planned_changes import TopicDeletions
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import topic_id_from_text, topic_id_to_text
from storage_engine.protocol.messages import create_partitions, delete_topics
from storage_engine.tests.broker.controller.foreign_topics import (
    PATH,
    cluster,
    fields,
    holds_everything,
    next_controller,
    put,
    topic,
    write_without_id,
)
from storage_engine.zookeeper.znodes.topic_znodes import PartitionsZNode, TopicZNode

__all__ = ["cluster", "topic"]

ZERO = UUID(int=0)


def lose_ids(cluster, *names):
    """Nobody remembers them."""
    old = cluster.controller
    old.kill(session_ends_at_once=True)
    for name in names:
        path = TopicZNode.path(name)
        node = fields(cluster, path)
        del node["topic_id"]
        put(cluster, path, node)
        cluster.zookeeper.put(PartitionsZNode.path(name), b"")
    cluster.loop.run_until(lambda: cluster.controller not in (None, old))
    old.start()
    cluster.loop.run_for(5000)


def test_zeros_name_no_topic(topic):
    assert topic.create_topic("other").error_code == 0
    lose_ids(topic, "t", "other")
    for broker in topic.brokers:
        assert broker.metadata.topic_id("t") == ZERO
        assert broker.metadata.topic_name(ZERO) is None
    state = delete_topics.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=ZERO)
    request = delete_topics.DeleteTopicsRequest(topics=[state], topic_names=[], timeout_ms=30_000)
    (refused,) = topic.answer(topic.ask_controller(delete_topics.API, 6, request)).responses
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    topic.loop.run_for(5000)
    assert {PATH, TopicZNode.path("other")} <= topic.zookeeper.nodes.keys()


def test_an_id_that_is_put_back_makes_no_other_topic(topic, monkeypatch):
    topic_id = fields(topic, PATH)["topic_id"]
    lose_ids(topic, "t")
    removed = []
    monkeypatch.setattr(
        TopicDeletions, "removed_by_others", lambda _self, name: removed.append(name)
    )
    put(topic, PATH, fields(topic, PATH) | {"topic_id": topic_id})
    topic.loop.run_for(5000)
    assert removed == []
    known = topic_id_from_text(topic_id)
    for broker in topic.brokers:
        assert broker.metadata.topic_name(known) == "t"
    holds_everything(topic)


def test_a_topic_without_an_id_grows_by_one_write(topic):
    lose_ids(topic, "t")
    row = create_partitions.CreatePartitionsRequest.CreatePartitionsTopic
    request = create_partitions.CreatePartitionsRequest(
        topics=[row(name="t", count=2, assignments=None)], timeout_ms=30_000, validate_only=False
    )
    before = topic.zookeeper.nodes[PATH].version
    (grown,) = topic.answer(topic.ask_controller(create_partitions.API, 3, request)).results
    assert grown.error_code == 0
    topic.loop.run_for(5000)
    assert topic.zookeeper.nodes[PATH].version == before + 1
    assert "topic_id" not in fields(topic, PATH)
    holds_everything(topic)


@pytest.mark.parametrize("is_of_the_node", [True, False])
def test_replicas_keep_their_logs_where_node_and_record_name_two_ids(topic, is_of_the_node):
    """Only one of the ids is that of the replicas: a program may have written either."""
    record_path = PartitionsZNode.path("t")
    other = topic_id_to_text(UUID(int=7))
    old = topic.controller
    old.kill(session_ends_at_once=True)
    path = PATH if is_of_the_node else record_path
    put(topic, path, json.loads(topic.zookeeper.data(path)) | {"topic_id": other})
    topic.loop.run_until(lambda: topic.controller not in (None, old))
    old.start()
    topic.loop.run_for(5000)
    assert topic[1].metadata.topic_id("t") == ZERO
    holds_everything(topic)
    next_controller(topic)


def disagree(cluster):
    """The record beside the topic's node names another id than the node and the replicas."""
    record_path = PartitionsZNode.path("t")
    old = cluster.controller
    old.kill(session_ends_at_once=True)
    other = topic_id_to_text(UUID(int=7))
    put(cluster, record_path, fields(cluster, record_path) | {"topic_id": other})
    cluster.loop.run_until(lambda: cluster.controller not in (None, old))
    old.start()
    cluster.loop.run_for(5000)


@pytest.mark.parametrize("failover", [False, True])
def test_of_two_ids_the_recorded_one_does_not_count_when_the_other_is_taken_out(topic, failover):
    """By the next write of the program to which the disagreement is owed."""
    topic_id = fields(topic, PATH)["topic_id"]
    disagree(topic)
    old = topic.controller
    if failover:
        old.kill(session_ends_at_once=True)
    write_without_id(topic, PATH, {})
    if failover:
        topic.loop.run_until(lambda: topic.controller not in (None, old))
        old.start()
    topic.loop.run_for(5000)
    assert topic[1].metadata.topic_id("t") == ZERO
    holds_everything(topic)
    topic.zookeeper.put(PartitionsZNode.path("t"), b"")
    put(topic, PATH, fields(topic, PATH) | {"topic_id": topic_id})
    topic.loop.run_for(1000)
    assert topic[1].metadata.topic_id("t") == topic_id_from_text(topic_id)


def test_a_record_that_was_doubted_counts_again_once_node_and_record_agree(topic):
    record = fields(topic, PartitionsZNode.path("t"))
    disagree(topic)
    assert fields(topic, PartitionsZNode.path("t"))["doubted"] is True
    put(topic, PartitionsZNode.path("t"), record | {"doubted": True})
    next_controller(topic)
    assert fields(topic, PartitionsZNode.path("t")) == record
    assert topic[1].metadata.topic_id("t") == topic_id_from_text(record["topic_id"])
    holds_everything(topic)
