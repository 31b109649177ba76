"""Listeners by their names: addresses, protocols, which one brokers use, and their own settings."""

import pytest

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.listener_map import ListenerKey
from storage_engine.core.security.security_protocol import Secret, SecurityProtocol
from storage_engine.tests.broker.settings.broker_configs import NEEDED, config, refusal

TWO = "INTERNAL://:9091,CLIENT://:9092"
TWO_PROTOCOLS = "INTERNAL:PLAINTEXT,CLIENT:SASL_SSL"


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
    (listener,) = config(listeners=text).listeners.listening
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
    message = refusal({key: text})
    assert message.startswith(f"{key}=")
    assert reason in message


def test_each_listener_has_the_protocol_of_the_map() -> None:
    found = config(
        listeners=TWO,
        listener_security_protocol_map=TWO_PROTOCOLS,
        inter_broker_listener_name="internal",
        sasl_enabled_mechanisms="SCRAM-SHA-256",
    ).listeners
    assert found.names == ("INTERNAL", "CLIENT")
    assert found.named("CLIENT").protocol is SecurityProtocol.SASL_SSL
    assert found.inter_broker.name == "INTERNAL"


def test_a_listener_that_is_not_advertised_is_served_alone() -> None:
    found = config(
        listeners="PLAINTEXT://:1,SSL://:2", advertised_listeners="PLAINTEXT://out:3"
    ).listeners
    assert found.names == ("PLAINTEXT", "SSL")
    assert [str(each) for each in found.advertised] == ["PLAINTEXT://out:3"]


def test_what_is_advertised_is_the_listener_unless_given() -> None:
    assert str(config(listeners="PLAINTEXT://h:1").listeners.inter_broker) == "PLAINTEXT://h:1"
    both = config(listeners="PLAINTEXT://:1", advertised_listeners="PLAINTEXT://out:2").listeners
    assert str(both.inter_broker) == "PLAINTEXT://out:2"


def test_brokers_use_the_listener_of_the_inter_broker_protocol() -> None:
    found = config(
        listeners="PLAINTEXT://:1,SSL://:2", security_inter_broker_protocol="SSL"
    ).listeners
    assert found.inter_broker.name == "SSL"


def test_name_and_protocol_of_the_inter_broker_listener_exclude_each_other() -> None:
    assert refusal(
        inter_broker_listener_name="PLAINTEXT", security_inter_broker_protocol="PLAINTEXT"
    ).endswith("are both set: leave out one of them")


def test_an_empty_name_of_the_inter_broker_listener_is_none() -> None:
    assert config(inter_broker_listener_name="").listeners.inter_broker.name == "PLAINTEXT"


IN_OUT = {
    "listeners": "IN://:9092,OUT://:9093",
    "advertised.listeners": "IN://one:9092,OUT://one:9093",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}


def test_a_listener_has_its_own_value_before_that_of_the_broker() -> None:
    broker = config(
        IN_OUT,
        connections_max_reauth_ms="1",
        listener_name_out_connections_max_reauth_ms="2",
        listener_name_out_scram__sha__256_connections_max_reauth_ms="3",
    )
    key = "connections.max.reauth.ms"
    assert broker.of_listener("IN", key) == 1
    assert broker.of_listener("OUT", key) == 2
    assert broker.of_listener("OUT", key, "PLAIN") == 2
    assert broker.of_listener("OUT", key, "SCRAM-SHA-256") == 3
    assert broker.integer(key) == 1


def test_names_may_be_written_in_upper_case() -> None:
    key = ListenerKey.parse("listener.name.OUT.PLAIN.sasl.jaas.config")
    assert (key.listener, key.mechanism, key.key) == ("OUT", "PLAIN", "sasl.jaas.config")
    assert str(key) == "listener.name.out.plain.sasl.jaas.config"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("listener_name_ouz_sasl_jaas_config", "listeners has no OUZ, but IN, OUT"),
        ("listener_name_out_sasl_jaas_confik", "did you mean 'sasl.jaas.config'"),
        ("listener_name_out_num_partitions", "the same for all listeners"),
        ("listener_name_out_plain_sasl_plain_users_file", "the same for all mechanisms"),
        ("listener_name_out", "must be listener.name.<name of the listener>.<setting>"),
    ],
)
def test_a_mistake_in_a_setting_of_a_listener_names_the_key(given: str, expected: str) -> None:
    assert expected in refusal(IN_OUT, **{given: "1"})


def test_a_key_in_two_ways_of_writing_is_there_twice() -> None:
    given = {"listener.name.OUT.sasl.plain.users.file": "a"}
    given["listener.name.out.sasl.plain.users.file"] = "b"
    assert "is set twice" in refusal(IN_OUT | given)


def test_an_override_of_the_command_line_wins_in_whatever_case_it_is_written(tmp_path) -> None:
    file = tmp_path / "server.properties"
    lines = NEEDED | IN_OUT | {"listener.name.OUT.sasl.plain.users.file": "a"}
    file.write_text("".join(f"{key}={text}\n" for key, text in lines.items()))
    key = "listener.name.out.sasl.plain.users.file"
    broker = BrokerConfig.load(file, {key: "b"})
    assert broker.of_listener("OUT", "sasl.plain.users.file") == "b"


def test_a_secret_is_neither_shown_nor_repeated() -> None:
    broker = config(IN_OUT, listener_name_out_plain_sasl_jaas_config="Plain hunter2")
    found = broker.of_listener("OUT", "sasl.jaas.config", "PLAIN")
    assert isinstance(found, Secret)
    assert found.reveal() == "Plain hunter2"
    assert "hunter2" not in f"{found} {found!r} {broker!r}"
    assert refusal(IN_OUT, listener_name_out_plain_sasl_jaas_config=" ").endswith(
        "=[hidden]: must be a text that is not empty"
    )
