"""The JSON of the documents, to the letter: R-CTL10."""

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
    TopicPartition,
)
from storage_engine.zookeeper.admin_znodes import (
    ConfigChangeZNode,
    DeleteTopicsZNode,
    IsrChangeZNode,
    PreferredReplicaElectionZNode,
    ReassignPartitionsZNode,
)
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import (
    BrokerIdZNode,
    ClusterIdZNode,
    ConfigZNode,
    ControllerEpochZNode,
    ControllerZNode,
    ProducerIdBlockZNode,
)
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

BROKER = '{"jmx_port":-1,"host":"node1","version":1,"port":9092}'
TOPIC = """{"version":1, "partitions":
 {"12":[6],"8":[2],"4":[6],"11":[5],"9":[3],"5":[7],"10":[4],"6":[8],"1":[3],"0":[2],"2":[4],
  "7":[1],"3":[5]}}"""
STATE = '{"controller_epoch":29,"leader":2,"version":1,"leader_epoch":48,"isr":[2]}'
CONTROLLER = '{"version":1,"brokerid":8}'
ELECTION = """{"version": 1, "partitions":
 [{"topic": "topic1", "partition": 8}, {"topic": "topic2", "partition": 16}]}"""
REASSIGN = """{"version": 1, "partitions":
 [{"topic": "topic3", "partition": 1, "replicas": [1, 2, 3]}]}"""
DELETE = '{"version": 1, "topics": ["topic4", "topic5"]}'

_ids = st.integers(0, 2**31 - 1).map(BrokerId)
_replicas = st.lists(_ids, min_size=1, max_size=5, unique=True).map(tuple)
_topics = st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,19}", fullmatch=True)
_hosts = st.from_regex(r"[a-zA-Z0-9_-]{1,63}(\.[a-zA-Z0-9_-]{1,63}){0,2}\.?", fullmatch=True) | (
    st.ip_addresses().map(str) | st.just("fe80::1%eth0")
)
_partitions = st.builds(TopicPartition, _topics, st.integers(0, 9999))


def test_the_documents_broker_is_read_and_written() -> None:
    node = BrokerIdZNode.decode(1, BROKER.encode())
    assert node == BrokerIdZNode(broker_id=BrokerId(1), host="node1", port=9092)
    assert json.loads(node.encode()) == json.loads(BROKER)
    assert BrokerIdZNode.path(1) == "/brokers/ids/1"


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


def test_the_documents_controller_is_read_and_written() -> None:
    node = ControllerZNode.decode(CONTROLLER.encode())
    assert node == ControllerZNode(broker_id=BrokerId(8))
    assert node.encode().decode() == CONTROLLER


def test_the_controller_epoch_is_a_bare_integer() -> None:
    assert ControllerEpochZNode.encode(ControllerEpoch(29)) == b"29"
    assert ControllerEpochZNode.decode(b"29") == 29


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


def test_keys_of_others_are_passed_over() -> None:
    fields = json.loads(BROKER) | {"listener_security_protocol_map": {"X": "Y"}, "version": 5}
    assert BrokerIdZNode.decode(1, json.dumps(fields).encode()).host == "node1"
    fields = json.loads(STATE) | {"leader_recovery_state": 0}
    assert PartitionStateZNode.decode("t", 0, json.dumps(fields).encode()).leader == 2


@given(_ids, _hosts, st.integers(1, 65535), st.none() | st.text(), st.lists(st.text()))
def test_brokers_survive(
    broker_id: BrokerId, host: str, port: int, rack: str | None, endpoints: list[str]
) -> None:
    node = BrokerIdZNode(
        broker_id=broker_id, host=host, port=port, rack=rack, endpoints=tuple(endpoints)
    )
    assert BrokerIdZNode.decode(broker_id, node.encode()) == node


@given(_topics, st.dictionaries(st.integers(0, 9999), _replicas), st.none() | st.uuids())
def test_topics_survive(
    topic: str, assignment: dict[int, tuple[BrokerId, ...]], topic_id: uuid.UUID | None
) -> None:
    node = TopicZNode(topic=topic, assignment=assignment, topic_id=topic_id)
    assert TopicZNode.decode(topic, node.encode()) == node


@given(st.dictionaries(_partitions, _replicas))
def test_reassignments_survive(targets: dict[TopicPartition, tuple[BrokerId, ...]]) -> None:
    node = ReassignPartitionsZNode(target_replicas=targets)
    assert ReassignPartitionsZNode.decode(node.encode()) == node


@given(st.lists(_partitions, unique=True).map(tuple))
def test_isr_changes_survive(partitions: tuple[TopicPartition, ...]) -> None:
    node = IsrChangeZNode(partitions=partitions)
    assert IsrChangeZNode.decode("isr_change_0000000000", node.encode()) == node


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_settings_survive(config: dict[str, str]) -> None:
    node = ConfigZNode(config=config)
    assert ConfigZNode.decode("/config/topics/t", node.encode()) == node


def test_the_other_nodes_survive() -> None:
    change = ConfigChangeZNode(entity_path="topics/t")
    assert ConfigChangeZNode.decode("config_change_0000000001", change.encode()) == change
    cluster = ClusterIdZNode.random()
    assert ClusterIdZNode.decode(cluster.encode()) == cluster
    assert len(cluster.cluster_id) == 22


def test_producer_id_blocks_follow_each_other() -> None:
    first = ProducerIdBlockZNode.next_block(None, BrokerId(1))
    assert (first.first_id, first.last_id) == (0, 999)
    assert ProducerIdBlockZNode.decode(first.encode()) == first
    second = ProducerIdBlockZNode.next_block(first, BrokerId(2))
    assert (second.first_id, second.last_id) == (1000, 1999)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"null",
        b"{",
        b'{"host":1,"port":1}',
        b'{"host":"h","port":"1"}',
        b'{"host":"h","port":true}',
        b'{"host":"h","port":1,"rack":5}',
        b'{"host":"h","port":1,"endpoints":"x"}',
    ],
)
def test_a_damaged_broker_is_told_in_one_line(data: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match=r"^znode /brokers/ids/4\b.+$"):
        BrokerIdZNode.decode(4, data)


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


@given(_topics, st.dictionaries(st.integers(0, 9999), _replicas), st.data())
def test_topics_on_the_move_survive(
    topic: str, assignment: dict[int, tuple[BrokerId, ...]], data: st.DataObject
) -> None:
    moving = data.draw(st.sets(st.sampled_from(sorted(assignment)))) if assignment else set()
    node = TopicZNode(
        topic=topic,
        assignment=assignment,
        original_replicas={p: assignment[p] for p in moving},
        target_replicas={p: data.draw(_replicas) for p in moving},
    )
    assert TopicZNode.decode(topic, node.encode()) == node


@pytest.mark.parametrize("data", [b"", b"1.5", b'{"version":1}', b"x" * 1000])
def test_a_damaged_controller_epoch_is_told(data: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match="where a whole number is expected") as caught:
        ControllerEpochZNode.decode(data)
    assert len(str(caught.value)) < 200


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (
        lambda: BrokerIdZNode.decode(0, data),
        lambda: TopicZNode.decode("t", data),
        lambda: PartitionStateZNode.decode("t", 0, data),
        lambda: ControllerZNode.decode(data),
        lambda: ControllerEpochZNode.decode(data),
        lambda: DeleteTopicsZNode.decode(data),
        lambda: ProducerIdBlockZNode.decode(data),
        lambda: ConfigZNode.decode("/config/topics/t", data),
    ):
        try:
            decode()
        except ZnodeFormatError as error:
            assert "\n" not in str(error)
