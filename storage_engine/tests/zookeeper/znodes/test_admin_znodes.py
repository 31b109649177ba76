"""The znodes of requests to the controller, to the letter of the documents: R-CTL10."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.ids import (
    BrokerId,
    TopicPartition,
)
from storage_engine.tests.zookeeper.znodes.strategies import partitions, replicas
from storage_engine.zookeeper.admin_znodes import (
    DeleteTopicsZNode,
    IsrChangeZNode,
    PreferredReplicaElectionZNode,
    ReassignPartitionsZNode,
)
from storage_engine.zookeeper.znode_json import ZnodeFormatError

ELECTION = """{"version": 1, "partitions":
 [{"topic": "topic1", "partition": 8}, {"topic": "topic2", "partition": 16}]}"""


REASSIGN = """{"version": 1, "partitions":
 [{"topic": "topic3", "partition": 1, "replicas": [1, 2, 3]}]}"""


DELETE = '{"version": 1, "topics": ["topic4", "topic5"]}'


def test_the_documents_admin_requests_are_read_and_written() -> None:
    election = PreferredReplicaElectionZNode.decode(ELECTION.encode())
    assert election.partitions == (TopicPartition("topic1", 8), TopicPartition("topic2", 16))
    assert json.loads(election.encode()) == json.loads(ELECTION)
    reassign = ReassignPartitionsZNode.decode(REASSIGN.encode())
    assert reassign.target_replicas == {TopicPartition("topic3", 1): (1, 2, 3)}
    assert json.loads(reassign.encode()) == json.loads(REASSIGN)
    delete = DeleteTopicsZNode.decode(DELETE.encode())
    assert delete.topics == ("topic4", "topic5")
    assert json.loads(delete.encode()) == json.loads(DELETE)


def test_topic_deletion_may_also_stand_in_children() -> None:
    assert DeleteTopicsZNode.topic_path("t") == "/admin/delete_topics/t"
    assert DeleteTopicsZNode.decode(b"").topics == ()


@given(st.dictionaries(partitions, replicas))
def test_reassignments_survive(targets: dict[TopicPartition, tuple[BrokerId, ...]]) -> None:
    node = ReassignPartitionsZNode(target_replicas=targets)
    assert ReassignPartitionsZNode.decode(node.encode()) == node


@given(st.lists(partitions, unique=True).map(tuple))
def test_isr_changes_survive(partitions: tuple[TopicPartition, ...]) -> None:
    node = IsrChangeZNode(partitions=partitions)
    assert IsrChangeZNode.decode("isr_change_0000000000", node.encode()) == node


@pytest.mark.parametrize(
    "entry",
    [
        b'{"topic":"t","partition":0}',
        b'{"topic":"t","partition":0,"replicas":[]}',
        b'{"topic":"t","partition":0,"replicas":[1,1]}',
        b'{"topic":7,"partition":0,"replicas":[1]}',
        b"7",
        b'{"topic":"good","partition":0,"replicas":[2]}',
    ],
)
def test_a_damaged_entry_of_a_reassignment_is_told_and_keeps_no_other_out(entry: bytes) -> None:
    good = b'{"topic":"good","partition":0,"replicas":[1]}'
    node = ReassignPartitionsZNode.decode(b'{"partitions":[%b,%b]}' % (good, entry))
    assert node.target_replicas == {TopicPartition("good", 0): (1,)}
    (problem,) = node.problems
    assert problem.startswith("znode /admin/reassign_partitions")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"partitions":{"t":0}}'])
def test_a_reassignment_without_entries_is_told(data: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match=r"^znode /admin/reassign_partitions\b.+$"):
        ReassignPartitionsZNode.decode(data)
