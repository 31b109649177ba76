"""Listeners by their names: addresses, protocols, which one brokers use, and what contradicts."""

import pytest

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.listener_map import ListenerMap
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import SecurityProtocol

NEEDED = {
    "broker.id": "7",
    "log.dirs": "/data",
    "zookeeper.connect": "zk:2181",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}
TWO = "INTERNAL://:9091,CLIENT://:9092"
TWO_PROTOCOLS = "INTERNAL:PLAINTEXT,CLIENT:SASL_SSL"


def listeners(**settings: str) -> ListenerMap:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return BrokerConfig.from_mapping(NEEDED | given).listeners


def refusal(**settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        listeners(**settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://:9092", "", 9092),
        ("plaintext://127.0.0.1:0", "127.0.0.1", 0),
        ("PLAINTEXT://node-1.example.com:65535", "node-1.example.com", 65535),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
    ],
)
def test_a_listener_is_a_name_and_an_address(text: str, host: str, port: int) -> None:
    (listener,) = listeners(listeners=text).listening
    assert (listener.host, listener.port) == (host, port)
    assert str(listener) == text.replace("plaintext", "PLAINTEXT")


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("listeners", "localhost:9092", "must be NAME://host:port"),
        ("listeners", "PLAINTEXT://localhost", "must be NAME://host:port"),
        ("listeners", "PLAINTEXT://a b:1", "must be NAME://host:port"),
        ("listeners", "PLAINTEXT://:70000", "the port must be from 0 to 65535"),
        ("listeners", "IN://:9092", "add IN:PROTOCOL to listener.security.protocol.map"),
        ("listeners", "SSL://:1,SSL://:2", "the name SSL is listed twice"),
        ("listeners", "SSL://:1,PLAINTEXT://h:1", "two listeners can't have one port"),
        ("advertised.listeners", "PLAINTEXT://:9092", "nobody can connect to that host"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "nobody can connect to that host"),
        ("advertised.listeners", "PLAINTEXT://a:0", "nobody can connect to port 0"),
        ("advertised.listeners", "SSL://a:1", "listeners has no SSL, but PLAINTEXT"),
        ("listener.security.protocol.map", "IN", "must be NAME:PROTOCOL"),
        ("listener.security.protocol.map", "IN:TLS", "there is no protocol TLS, there are PLAIN"),
        ("listener.security.protocol.map", "A:SSL,a:SSL", "the listener A is listed twice"),
        ("inter.broker.listener.name", "IN", "set inter.broker.listener.name to one of PLAINTEXT"),
        ("security.inter.broker.protocol", "SSL", "set inter.broker.listener.name to one of PLAIN"),
        ("security.inter.broker.protocol", "TLS", "must be one of PLAINTEXT, SSL"),
    ],
)
def test_an_impossible_listener_is_told(key: str, text: str, reason: str) -> None:
    message = refusal(**{key.replace(".", "_"): text})
    assert message.startswith(f"{key}=")
    assert reason in message


def test_each_listener_has_the_protocol_of_the_map() -> None:
    found = listeners(
        listeners=TWO,
        listener_security_protocol_map=TWO_PROTOCOLS,
        inter_broker_listener_name="internal",
    )
    assert found.names == ("INTERNAL", "CLIENT")
    assert found.named("CLIENT").protocol is SecurityProtocol.SASL_SSL
    assert found.inter_broker.name == "INTERNAL"


def test_a_listener_that_is_not_advertised_is_served_alone() -> None:
    found = listeners(listeners="PLAINTEXT://:1,SSL://:2", advertised_listeners="PLAINTEXT://out:3")
    assert found.names == ("PLAINTEXT", "SSL")
    assert [str(each) for each in found.advertised] == ["PLAINTEXT://out:3"]


def test_what_is_advertised_is_the_listener_unless_given() -> None:
    assert str(listeners(listeners="PLAINTEXT://h:1").inter_broker) == "PLAINTEXT://h:1"
    both = listeners(listeners="PLAINTEXT://:1", advertised_listeners="PLAINTEXT://out:2")
    assert str(both.inter_broker) == "PLAINTEXT://out:2"


def test_brokers_use_the_listener_of_the_inter_broker_protocol() -> None:
    found = listeners(listeners="PLAINTEXT://:1,SSL://:2", security_inter_broker_protocol="SSL")
    assert found.inter_broker.name == "SSL"


def test_name_and_protocol_of_the_inter_broker_listener_exclude_each_other() -> None:
    assert refusal(
        inter_broker_listener_name="PLAINTEXT", security_inter_broker_protocol="PLAINTEXT"
    ).endswith("are both set: leave out one of them")


def test_an_empty_name_of_the_inter_broker_listener_is_none() -> None:
    assert listeners(inter_broker_listener_name="").inter_broker.name == "PLAINTEXT"
