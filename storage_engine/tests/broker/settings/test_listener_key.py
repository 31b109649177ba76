"""Settings of one listener, and of one of its mechanisms."""

import pytest

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.listener_map import ListenerKey
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import Secret

NEEDED = {
    "broker.id": "7",
    "log.dirs": "/data",
    "zookeeper.connect": "zk:2181",
    "listeners": "IN://:9092,OUT://:9093",
    "advertised.listeners": "IN://one:9092,OUT://one:9093",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}


def config(**given: str) -> BrokerConfig:
    return BrokerConfig.from_mapping(
        NEEDED | {key.replace("__", "-").replace("_", "."): text for key, text in given.items()}
    )


def refusal(**given: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_listener_has_its_own_value_before_that_of_the_broker() -> None:
    broker = config(
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


@pytest.mark.parametrize("text", ["listener.name.OUT.PLAIN.sasl.jaas.config"])
def test_names_may_be_written_in_upper_case(text: str) -> None:
    key = ListenerKey.parse(text)
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
def test_a_mistake_names_the_key(given: str, expected: str) -> None:
    assert expected in refusal(**{given: "1"})


def test_a_key_in_two_ways_of_writing_is_there_twice() -> None:
    given = {"listener.name.OUT.sasl.plain.users.file": "a"}
    given["listener.name.out.sasl.plain.users.file"] = "b"
    with pytest.raises(ConfigError, match="is set twice"):
        BrokerConfig.from_mapping(NEEDED | given)


def test_an_override_of_the_command_line_wins_in_whatever_case_it_is_written(tmp_path) -> None:
    file = tmp_path / "server.properties"
    lines = NEEDED | {"listener.name.OUT.sasl.plain.users.file": "a"}
    file.write_text("".join(f"{key}={text}\n" for key, text in lines.items()))
    key = "listener.name.out.sasl.plain.users.file"
    broker = BrokerConfig.load(file, {key: "b"})
    assert broker.of_listener("OUT", "sasl.plain.users.file") == "b"


def test_a_secret_is_neither_shown_nor_repeated() -> None:
    broker = config(listener_name_out_plain_sasl_jaas_config="Plain hunter2")
    found = broker.of_listener("OUT", "sasl.jaas.config", "PLAIN")
    assert isinstance(found, Secret)
    assert found.reveal() == "Plain hunter2"
    assert "hunter2" not in f"{found} {found!r} {broker!r}"
    assert refusal(listener_name_out_plain_sasl_jaas_config=" ").endswith(
        "=[hidden]: must be a text that is not empty"
    )
