"""The settings of log-ins: what must be there, and errors that hold no secret."""

from pathlib import Path

import pytest

from storage_engine.tests.broker.settings.broker_configs import config, refusal

LISTENERS = {
    "listeners": "IN://one:9092,OUT://one:9093",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
}
SCRAM = 'a.b.ScramLoginModule required username="broker" password="hunter2";'
PLAIN = 'PlainLoginModule required username="broker" password="hunter2" user_alice="hunter3";'


def test_without_a_listener_that_asks_nothing_is_needed() -> None:
    sasl = config(LISTENERS | {"listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT"}).sasl
    assert (dict(sasl.listeners), sasl.inter_broker, sasl.uses_scram) == ({}, None, False)


def test_mechanisms_and_their_times_are_those_of_the_listener() -> None:
    sasl = config(
        LISTENERS
        | {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.out.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
            "connections.max.reauth.ms": "5",
            "listener.name.out.scram-sha-256.connections.max.reauth.ms": "6",
        }
    ).sasl
    assert sasl.listeners["OUT"].max_reauth_ms == {"SCRAM-SHA-512": 5, "SCRAM-SHA-256": 6}
    assert sasl.uses_scram


def test_users_of_plain_stand_in_a_file_or_in_the_login_module() -> None:
    given = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.plain.users.file": "/users",
        "listener.name.out.plain.sasl.jaas.config": PLAIN,
    }
    listener = config(LISTENERS | given).sasl.listeners["OUT"]
    assert listener.plain_users_file == Path("/users")
    assert listener.plain_users == {"alice": "hunter3"}
    assert "hunter" not in repr(listener)


@pytest.mark.parametrize("prefix", ["", "listener.name.out.", "listener.name.out.oauthbearer."])
def test_settings_of_tokens_may_stand_for_all_for_a_listener_or_for_its_mechanism(prefix) -> None:
    given = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}sasl.oauthbearer.jwks.endpoint.url": "file:///jwks",
    }
    assert dict(config(LISTENERS | given).sasl.listeners["OUT"].max_reauth_ms) == {"OAUTHBEARER": 0}


def test_brokers_log_in_with_the_login_module_of_their_listener() -> None:
    sasl = config(
        LISTENERS
        | {
            "inter.broker.listener.name": "OUT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            "listener.name.out.scram-sha-256.sasl.jaas.config": SCRAM,
        }
    ).sasl
    assert sasl.inter_broker is not None
    assert sasl.inter_broker.username == "broker"
    assert sasl.inter_broker.password.reveal() == "hunter2"
    assert "hunter" not in repr(sasl)


BROKERS = {
    "inter.broker.listener.name": "OUT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///jwks",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "sasl.jaas.config": SCRAM,
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "listener.name.out.sasl.enabled.mechanisms is missing"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "must be a comma-separated list of: PLAIN, SCR"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "PLAIN needs a file of users, or user_NAME="),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": SCRAM},
            "the login module of PLAIN is PlainLoginModule",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": "hunter2"},
            "listener.name.out.plain.sasl.jaas.config can't be read",
        ),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "jwks.endpoint.url is missing"),
        (
            {key: text for key, text in BROKERS.items() if "inter.broker.protocol" not in key},
            "sasl.mechanism.inter.broker.protocol is missing: brokers log in to each other at OUT",
        ),
        (
            BROKERS | {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
            "listener.name.out.sasl.enabled.mechanisms must have it as well",
        ),
        (
            BROKERS | {"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"},
            "brokers can log in to each other by PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 only",
        ),
        (
            {key: text for key, text in BROKERS.items() if "jaas" not in key},
            "listener.name.out.scram-sha-256.sasl.jaas.config is missing",
        ),
        (
            BROKERS | {"sasl.jaas.config": 'ScramLoginModule required username="hunter2";'},
            "must have username= and password=",
        ),
    ],
)
def test_a_mistake_is_one_line_without_secrets(given: dict[str, str], expected: str) -> None:
    message = refusal(LISTENERS | given)
    assert expected in message
    assert "hunter" not in message
