"""Other programs write, copy and rename the nodes of topics: each topic keeps its id, and no two
topics have one. Source: R-CTL5, R-CTL10, KIP-516."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.core.ids import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
    topic_id_from_text,
    topic_id_to_text,
)
from storage_engine.protocol.apis.update_metadata import (
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)
from storage_engine.protocol.messages import delete_topics
from storage_engine.tests.broker.controller.foreign_topics import (
    PATH,
    RECORDS,
    TP,
    cluster,
    fields,
    holds_everything,
    next_controller,
    put,
    remove,
    topic,
    write_without_id,
)
from storage_engine.zookeeper.znodes.topic_znodes import PartitionsZNode, TopicZNode

__all__ = ["cluster", "topic"]


@pytest.mark.parametrize("more", [{}, {"1": [2, 3, 1]}])
def test_a_topic_written_without_its_id_keeps_id_and_records(topic, more):
    topic_id = fields(topic, PATH)["topic_id"]
    write_without_id(topic, PATH, more)
    topic.loop.run_for(1000)
    assert fields(topic, PATH)["topic_id"] == topic_id
    holds_everything(topic)


def test_a_topic_written_with_another_id_keeps_id_and_records(topic):
    """It is the same node: no topic was made again."""
    topic_id = fields(topic, PATH)["topic_id"]
    put(topic, PATH, fields(topic, PATH) | {"topic_id": topic_id_to_text(uuid4())})
    topic.loop.run_for(1000)
    assert fields(topic, PATH)["topic_id"] == topic_id
    holds_everything(topic)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_topic_written_without_its_id_while_nobody_is_controller_keeps_its_records(
    topic, is_recorded
):
    """Without the record nobody can tell the id any more."""
    topic_id = fields(topic, PATH)["topic_id"]
    old = topic.controller
    old.kill(session_ends_at_once=True)
    write_without_id(topic, PATH, {})
    if not is_recorded:
        topic.zookeeper.put(PartitionsZNode.path("t"), b"")
    topic.loop.run_until(lambda: topic.controller not in (None, old))
    old.start()
    topic.loop.run_for(5000)
    assert fields(topic, PATH).get("topic_id") == (topic_id if is_recorded else None)
    holds_everything(topic)


def test_an_id_that_is_not_recorded_is_recorded_by_the_next_controller(topic):
    record = topic.zookeeper.data(PartitionsZNode.path("t"))
    topic.zookeeper.put(PartitionsZNode.path("t"), b"")
    next_controller(topic)
    assert topic.zookeeper.data(PartitionsZNode.path("t")) == record


def test_a_record_of_an_earlier_topic_gives_no_id(topic):
    """Somebody made the topic again, with the node of its partitions copied from the old one."""
    topic_id = fields(topic, PATH)["topic_id"]
    record = topic.zookeeper.data(PartitionsZNode.path("t"))
    for broker in topic.brokers:
        broker.kill(session_ends_at_once=True)
    remove(topic, PATH)
    put(topic, PATH, {"version": 1, "partitions": {"0": [2, 3, 1]}})
    topic.zookeeper.put(PartitionsZNode.path("t"), record)
    for broker in topic.brokers:
        broker.start()
    assert topic.produced_when_there(TP, b"of the new topic") == 0
    assert fields(topic, PATH)["topic_id"] != topic_id


@pytest.mark.parametrize("gap_ms", [0, 1, 2, 3, 5, 50])
def test_a_topic_that_a_program_makes_and_enlarges_has_one_id(cluster, gap_ms):
    put(cluster, PATH, {"version": 1, "partitions": {"0": [1, 2, 3]}})
    cluster.loop.run_for(gap_ms)
    put(cluster, PATH, {"version": 1, "partitions": {"0": [1, 2, 3], "1": [2, 3, 1]}})
    for number in range(RECORDS):
        assert cluster.produced_when_there(TP, b"r") == number
    holds_everything(cluster)


@pytest.mark.parametrize("gap_ms", [0, 1, 2, 3])
def test_a_topic_that_is_enlarged_as_soon_as_it_is_created_keeps_its_id(cluster, gap_ms):
    def on_write(path: str, before: bytes | None, _data: bytes | None) -> None:
        if path == PATH and before is None:
            cluster.loop.call_later(
                gap_ms, lambda: write_without_id(cluster, PATH, {"0": [1, 2, 3], "1": [2, 3, 1]})
            )

    cluster.zookeeper.on_write = on_write
    assert cluster.create_topic("t").error_code == 0
    cluster.zookeeper.on_write = None
    for number in range(RECORDS):
        assert cluster.produced_when_there(TP, b"r") == number
    holds_everything(cluster)


def test_a_copy_of_a_topics_node_is_not_served_under_the_topics_id(topic):
    """Neither by this controller nor by the next one; and whoever takes the id out of the copy
    makes a topic of it."""
    node = fields(topic, PATH)
    topic_id = topic_id_from_text(node["topic_id"])
    put(topic, TopicZNode.path("copy"), node)
    put(topic, TopicZNode.path("a-copy"), node)
    topic.loop.run_for(1000)
    for _ in range(2):
        for broker in topic.brokers:
            assert broker.metadata.topic_name(topic_id) == "t"
            assert "copy" not in broker.metadata
            assert "a-copy" not in broker.metadata
        next_controller(topic)
    write_without_id(topic, TopicZNode.path("copy"), {})
    assert topic.produced_when_there(TopicPartition("copy", 0), b"of its own") == 0
    assert fields(topic, TopicZNode.path("copy"))["topic_id"] != node["topic_id"]
    holds_everything(topic)


def test_a_deletion_by_id_does_not_mean_a_copy(topic):
    node = fields(topic, PATH)
    put(topic, TopicZNode.path("copy"), node)
    topic.loop.run_for(1000)
    state = delete_topics.DeleteTopicsRequest.DeleteTopicState(
        name=None, topic_id=topic_id_from_text(node["topic_id"])
    )
    request = delete_topics.DeleteTopicsRequest(topics=[state], topic_names=[], timeout_ms=30_000)
    answers = topic.ask_controller(delete_topics.API, 6, request)
    (deleted,) = topic.answer(answers).responses
    assert (deleted.name, deleted.error_code) == ("t", 0)
    assert PATH not in topic.zookeeper.nodes


def test_a_topic_that_was_renamed_in_zookeeper_is_known_by_its_id(topic):
    node = fields(topic, PATH)
    remove(topic, PATH)
    put(topic, TopicZNode.path("renamed"), node)
    assert topic.produced_when_there(TopicPartition("renamed", 0), b"first") == 0
    topic_id = topic_id_from_text(node["topic_id"])
    assert topic[1].metadata.topic_name(topic_id) == "renamed"
    next_controller(topic)
    for broker in topic.brokers:
        assert broker.metadata.topic_name(topic_id) == "renamed"


def test_a_name_that_goes_takes_no_id_that_another_topic_has_now():
    def told(topic: str) -> UpdateMetadataPartition:
        nobody = BrokerId(1)
        return UpdateMetadataPartition(
            topic=topic,
            partition=0,
            leader=nobody,
            leader_epoch=LeaderEpoch(0),
            isr=(nobody,),
            replicas=(nobody,),
            topic_id=shared,
        )

    shared, metadata = uuid4(), MetadataCache()
    order = UpdateMetadataRequest(
        controller_id=BrokerId(1), controller_epoch=ControllerEpoch(1), brokers=[]
    )
    metadata.update(replace(order, partitions=[told("former")]))
    metadata.update(replace(order, partitions=[told("renamed")]))
    metadata.update(replace(order, removed_topics=["former"]))
    assert metadata.topic_name(shared) == "renamed"


@pytest.mark.parametrize("gap_ms", [0, 1, 1000])
@pytest.mark.parametrize("topic_id", [None, topic_id_to_text(UUID(int=7))])
def test_a_topic_that_was_removed_and_made_again_by_hand_is_served(topic, gap_ms, topic_id):
    """By the controller that knew the old one, which had more partitions; then its leader dies."""
    assert topic.create_topic("gone", 2).error_code == 0
    tp, path = TopicPartition("gone", 0), TopicZNode.path("gone")
    assert topic.produced(tp, b"of the old topic") == 0
    remove(topic, path)
    topic.loop.run_for(gap_ms)
    node = {"version": 1, "partitions": {"0": [1, 2, 3]}}
    put(topic, path, node if topic_id is None else node | {"topic_id": topic_id})
    for number in range(RECORDS):
        assert topic.produced_when_there(tp, b"of the new topic") == number
    topic.wait_in_sync(tp, 1, 2, 3)
    for broker in topic.brokers:
        assert list(broker.metadata.partitions("gone")) == [0]
    leader = topic[topic.state(tp).leader]
    leader.kill(session_ends_at_once=True)
    assert topic.produced(tp, b"under the next leader") == RECORDS
    leader.start()
    answers = topic.delete_topic("gone")
    assert topic.answer(answers).responses[0].error_code == 0
