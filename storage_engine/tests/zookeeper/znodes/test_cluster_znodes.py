"""The znodes of a cluster and of its brokers, to the letter of the documents: R-CTL10."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.ids import (
    BrokerId,
    ControllerEpoch,
)
from storage_engine.tests.zookeeper.znodes.strategies import hosts, ids
from storage_engine.zookeeper.admin_znodes import (
    ConfigChangeZNode,
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
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode

BROKER = '{"jmx_port":-1,"host":"node1","version":1,"port":9092}'


STATE = '{"controller_epoch":29,"leader":2,"version":1,"leader_epoch":48,"isr":[2]}'


CONTROLLER = '{"version":1,"brokerid":8}'


def test_the_documents_broker_is_read_and_written() -> None:
    node = BrokerIdZNode.decode(1, BROKER.encode())
    assert node == BrokerIdZNode(broker_id=BrokerId(1), host="node1", port=9092)
    assert json.loads(node.encode()) == json.loads(BROKER)
    assert BrokerIdZNode.path(1) == "/brokers/ids/1"


def test_the_documents_controller_is_read_and_written() -> None:
    node = ControllerZNode.decode(CONTROLLER.encode())
    assert node == ControllerZNode(broker_id=BrokerId(8))
    assert node.encode().decode() == CONTROLLER


def test_the_controller_epoch_is_a_bare_integer() -> None:
    assert ControllerEpochZNode.encode(ControllerEpoch(29)) == b"29"
    assert ControllerEpochZNode.decode(b"29") == 29


def test_keys_of_others_are_passed_over() -> None:
    fields = json.loads(BROKER) | {"listener_security_protocol_map": {"X": "Y"}, "version": 5}
    assert BrokerIdZNode.decode(1, json.dumps(fields).encode()).host == "node1"
    fields = json.loads(STATE) | {"leader_recovery_state": 0}
    assert PartitionStateZNode.decode("t", 0, json.dumps(fields).encode()).leader == 2


@given(ids, hosts, st.integers(1, 65535), st.none() | st.text(), st.lists(st.text()))
def test_brokers_survive(
    broker_id: BrokerId, host: str, port: int, rack: str | None, endpoints: list[str]
) -> None:
    node = BrokerIdZNode(
        broker_id=broker_id, host=host, port=port, rack=rack, endpoints=tuple(endpoints)
    )
    assert BrokerIdZNode.decode(broker_id, node.encode()) == node


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


@pytest.mark.parametrize("data", [b"", b"1.5", b'{"version":1}', b"x" * 1000])
def test_a_damaged_controller_epoch_is_told(data: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match="where a whole number is expected") as caught:
        ControllerEpochZNode.decode(data)
    assert len(str(caught.value)) < 200


def test_the_place_of_a_broker_is_in_keys_that_earlier_releases_ignore() -> None:
    node = BrokerIdZNode(
        broker_id=BrokerId(1), host="node1", port=9092, machine="m1", is_cordoned=True
    )
    assert BrokerIdZNode.decode(1, node.encode()) == node
    fields = json.loads(node.encode())
    assert (fields.pop("host_name"), fields.pop("cordoned")) == ("m1", True)
    assert fields == json.loads(BROKER)
