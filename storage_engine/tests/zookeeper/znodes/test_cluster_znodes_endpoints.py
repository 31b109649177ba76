"""The listeners in a broker's registration, ours and as Kafka's brokers write them."""

import json

import pytest

from storage_engine.core.control.cluster_state import BrokerEndpoint
from storage_engine.core.ids import BrokerId
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import NO_PORT, BrokerIdZNode

KAFKA = {
    "listener_security_protocol_map": {"CLIENT": "SASL_SSL", "INTERNAL": "SSL"},
    "endpoints": ["CLIENT://broker-1.example:9093", "INTERNAL://[2001:db8::1]:9094"],
    "jmx_port": -1,
    "features": {},
    "host": None,
    "timestamp": "1600000000000",
    "port": -1,
    "version": 5,
}


def decoded(**changes: object) -> BrokerIdZNode:
    return BrokerIdZNode.decode(1, json.dumps({**KAFKA, **changes}).encode())


def test_a_broker_without_a_plain_listener_is_read() -> None:
    node = decoded()
    assert (node.host, node.port) == (None, NO_PORT)
    assert node.listeners == (
        BrokerEndpoint("CLIENT", "broker-1.example", 9093),
        BrokerEndpoint("INTERNAL", "2001:db8::1", 9094),
    )


def test_a_listener_is_found_by_its_protocol() -> None:
    assert decoded().endpoint_for("SSL") == BrokerEndpoint("INTERNAL", "2001:db8::1", 9094)
    assert decoded().endpoint_for("PLAINTEXT") is None
    plain = BrokerIdZNode(
        broker_id=BrokerId(1), host="h", port=1, endpoints=("PLAINTEXT://other:2",)
    )
    assert plain.endpoint_for("PLAINTEXT") == BrokerEndpoint("PLAINTEXT", "other", 2)


def test_what_was_written_is_read_again() -> None:
    node = decoded()
    assert BrokerIdZNode.decode(1, node.encode()) == node
    assert json.loads(node.encode())["version"] == 4


def test_a_plain_broker_writes_what_it_always_wrote() -> None:
    node = BrokerIdZNode(
        broker_id=BrokerId(1), host="h", port=9092, endpoints=("PLAINTEXT://h:9092",)
    )
    assert node.encode() == (
        b'{"jmx_port":-1,"host":"h","version":1,"port":9092,"endpoints":["PLAINTEXT://h:9092"]}'
    )


@pytest.mark.parametrize(
    "endpoint", ["", "x", "A://h:0", "A://h:70000", "A://a b:1", "A://:1", "://h:1", "A://h:x"]
)
def test_what_is_no_endpoint_is_left_out(endpoint: str) -> None:
    node = decoded(endpoints=[endpoint, *KAFKA["endpoints"]])
    assert len(node.listeners) == 2


def test_no_more_endpoints_are_read_than_a_broker_has() -> None:
    many = [f"L{number}://h:{number + 1}" for number in range(10_000)]
    assert len(decoded(endpoints=many).listeners) == 32


@pytest.mark.parametrize(
    "changes",
    [
        {"endpoints": []},
        {"endpoints": ["nothing"]},
        {"endpoints": "CLIENT://h:1"},
        {"endpoints": [1]},
        {"listener_security_protocol_map": ["SSL"]},
        {"listener_security_protocol_map": {"CLIENT": 1}},
    ],
    ids=str,
)
def test_a_registration_by_which_nobody_can_be_reached_is_an_error(changes: object) -> None:
    with pytest.raises(ZnodeFormatError):
        decoded(**changes)
