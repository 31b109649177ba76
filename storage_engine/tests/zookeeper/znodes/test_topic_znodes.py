"""The znodes of a topic and of its partitions, to the letter of the documents: R-CTL10."""

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
)
from storage_engine.tests.zookeeper.znodes.strategies import replicas, topics
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

TOPIC = """{"version":1, "partitions":
 {"12":[6],"8":[2],"4":[6],"11":[5],"9":[3],"5":[7],"10":[4],"6":[8],"1":[3],"0":[2],"2":[4],
  "7":[1],"3":[5]}}"""


STATE = '{"controller_epoch":29,"leader":2,"version":1,"leader_epoch":48,"isr":[2]}'


def test_the_documents_topic_is_read_and_written() -> None:
    node = TopicZNode.decode("t", TOPIC.encode())
    assert node.assignment[8] == (2,)
    assert list(node.assignment) == list(range(13))
    assert node.topic_id is None
    assert json.loads(node.encode()) == json.loads(TOPIC)
    assert TopicZNode.path("t") == "/brokers/topics/t"


def test_the_documents_partition_state_is_read_and_written() -> None:
    node = PartitionStateZNode.decode("t", 3, STATE.encode())
    assert node == PartitionStateZNode(
        leader=BrokerId(2),
        leader_epoch=LeaderEpoch(48),
        isr=(BrokerId(2),),
        controller_epoch=ControllerEpoch(29),
    )
    assert node.encode().decode() == STATE
    assert PartitionStateZNode.path("t", 3) == "/brokers/topics/t/partitions/3/state"


@pytest.mark.parametrize(
    "change",
    [
        {"leader_epoch": LeaderEpoch(2**31 - 1)},
        {"controller_epoch": ControllerEpoch(2**31 - 1)},
        {"leader": BrokerId(-2)},
        {"isr": (BrokerId(2), BrokerId(2))},
        {"joined_epochs": {BrokerId(2): BrokerEpoch(2**63)}},
    ],
)
def test_a_partition_state_that_could_not_be_read_is_not_written(change: dict[str, Any]) -> None:
    node = PartitionStateZNode.decode("t", 3, STATE.encode())
    with pytest.raises(ZnodeFormatError, match="partition's state"):
        replace(node, **change).encode()


@given(topics, st.dictionaries(st.integers(0, 9999), replicas), st.none() | st.uuids())
def test_topics_survive(
    topic: str, assignment: dict[int, tuple[BrokerId, ...]], topic_id: uuid.UUID | None
) -> None:
    node = TopicZNode(topic=topic, assignment=assignment, topic_id=topic_id)
    assert TopicZNode.decode(topic, node.encode()) == node


@pytest.mark.parametrize(
    "data",
    [
        b'{"partitions":[]}',
        b'{"partitions":{"x":[1]}}',
        b'{"partitions":{"-1":[1]}}',
        b'{"partitions":{"0":[]}}',
        b'{"partitions":{"0":[1,1]}}',
        b'{"partitions":{"0":["1"]}}',
        b'{"partitions":{"0":1}}',
        b'{"partitions":{"0":[1]},"topic_id":"short"}',
        b'{"partitions":{"0":[1]},"topic_id":7}',
    ],
)
def test_a_damaged_topic_is_told_in_one_line(data: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match=r"^znode /brokers/topics/t\b.+$"):
        TopicZNode.decode("t", data)


@pytest.mark.parametrize(
    "moving",
    [
        b'"target_replicas":{"0":[2]}',
        b'"original_replicas":{"0":[1]}',
        b'"original_replicas":{"0":[1]},"target_replicas":{"1":[2]}',
        b'"original_replicas":{"7":[1]},"target_replicas":{"7":[2]}',
        b'"original_replicas":{"0":[1]},"target_replicas":{"0":[]}',
        b'"original_replicas":[],"target_replicas":[]',
    ],
)
def test_a_topic_with_half_a_reassignment_is_told(moving: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match=r"^znode /brokers/topics/t\b.+$"):
        TopicZNode.decode("t", b'{"partitions":{"0":[1,2],"1":[1,2]},%b}' % moving)


@given(topics, st.dictionaries(st.integers(0, 9999), replicas), st.data())
def test_topics_on_the_move_survive(
    topic: str, assignment: dict[int, tuple[BrokerId, ...]], data: st.DataObject
) -> None:
    moving = data.draw(st.sets(st.sampled_from(sorted(assignment)))) if assignment else set()
    node = TopicZNode(
        topic=topic,
        assignment=assignment,
        original_replicas={p: assignment[p] for p in moving},
        target_replicas={p: data.draw(replicas) for p in moving},
    )
    assert TopicZNode.decode(topic, node.encode()) == node
