"""The TLS of a listener by its settings: its own, those of all, and those that change while the
broker runs."""

import logging
from pathlib import Path
from typing import Any

import pytest

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.listener_tls import TlsRenewal, load_profile
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import SecurityProtocol
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.net.tls.contexts import ListenerTls
from storage_engine.tests.net.tls.certificates import AUTHORITY, BROKER

LISTENERS = "SSL://:1,USERS://:2,PLAINTEXT://:3"
MAP = "SSL:SSL,USERS:SASL_SSL,PLAINTEXT:PLAINTEXT"
OWN_LOCATION = "listener.name.ssl.ssl.keystore.location"


def issued(folder: Path, name: str, *hosts: str) -> str:
    path = folder / name
    AUTHORITY.issue_cert(*hosts).private_key_and_cert_chain_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    BROKER.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "broker.pem"))
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return {
        "broker.id": "1",
        "log.dirs": "/data",
        "zookeeper.connect": "zk",
        "listeners": LISTENERS,
        "listener.security.protocol.map": MAP,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }


def profile(config: Any, name: str = "SSL") -> Any:
    protocol = SecurityProtocol.SASL_SSL if name == "USERS" else SecurityProtocol.SSL
    return load_profile(config, name, protocol)


def test_what_a_listener_has_for_itself_counts_before_what_stands_for_all(settings, tmp_path):
    settings[OWN_LOCATION] = issued(tmp_path, "own.pem", "own.example")
    config = BrokerConfig.from_mapping(settings)
    assert profile(config).key_store.names == ("own.example",)
    assert profile(config, "USERS").key_store.names == ("localhost", "127.0.0.1")


def test_certificates_of_clients_that_log_in_are_asked_for_by_their_listeners_setting(settings):
    settings["ssl.client.auth"] = "required"
    config = BrokerConfig.from_mapping(settings)
    assert profile(config).client_auth == "required"
    assert profile(config, "USERS").client_auth == "none"
    settings["listener.name.users.ssl.client.auth"] = "requested"
    assert profile(BrokerConfig.from_mapping(settings), "USERS").client_auth == "requested"
    dynamic = DynamicConfig(config)
    dynamic.replace_layer(ConfigSource.BROKER, {"listener.name.users.ssl.client.auth": "requested"})
    assert profile(dynamic, "USERS").client_auth == "requested"


def test_an_empty_algorithm_checks_no_names(settings):
    assert profile(BrokerConfig.from_mapping(settings)).checks_host_name
    settings["ssl.endpoint.identification.algorithm"] = ""
    assert not profile(BrokerConfig.from_mapping(settings)).checks_host_name


def test_a_mistake_names_the_listener(settings):
    settings["ssl.cipher.suites"] = "NULL"
    with pytest.raises(ConfigError, match=r"^listener USERS: ssl\.cipher\.suites=NULL: no such"):
        profile(BrokerConfig.from_mapping(settings), "USERS")


@pytest.mark.parametrize(
    ("key", "value", "source", "reason"),
    [
        ("ssl.keystore.location", "/x", ConfigSource.BROKER, "for all listeners: set"),
        ("listener.name.ssl.ssl.key.password", "x", ConfigSource.BROKER, "can't be set at run"),
        (OWN_LOCATION, "/x", ConfigSource.ALL_BROKERS, "can be set for one broker at a time only"),
        ("listener.name.SSL.ssl.client.auth", "none", ConfigSource.BROKER, "is written listener."),
        ("listener.name.ssl.max.connections", "1", ConfigSource.BROKER, "in the broker's file"),
    ],
)
def test_what_does_not_change_at_run_time_is_refused(settings, key, value, source, reason):
    dynamic = DynamicConfig(BrokerConfig.from_mapping(settings))
    with pytest.raises(ConfigError, match=reason) as caught:
        dynamic.check_layer(source, {key: value})
    assert "\n" not in str(caught.value)


class Now:
    """Background, scheduler and clock that do all at once."""

    def submit(self, work, on_done, on_error):
        on_done(work())

    def call_later(self, delay_ms, call):
        assert delay_ms == 24 * 60 * 60 * 1000

    def wall_ms(self):
        return 1_700_000_000_000


class Renewed:
    """A listener that is looked after."""

    tls: Any

    def __init__(self, settings: dict[str, str]) -> None:
        self.config = DynamicConfig(BrokerConfig.from_mapping(settings))
        self.tls = ListenerTls("SSL", profile(self.config))
        now: Any = Now()
        TlsRenewal({"SSL": self.tls}, self.config, background=now, scheduler=now, clock=now).start()

    def set(self, **layer: str) -> None:
        self.config.replace_layer(ConfigSource.BROKER, layer)


def test_another_file_is_taken_up_and_so_is_another_content_of_the_same(settings, tmp_path):
    renewed = Renewed(settings)
    before = renewed.tls.server
    path = issued(tmp_path, "new.pem", "new.example")
    renewed.set(**{OWN_LOCATION: path})
    assert renewed.tls.profile.key_store.names == ("new.example",)
    assert renewed.tls.server is not before
    issued(tmp_path, "new.pem", "newer.example")
    renewed.set(**{OWN_LOCATION: path})
    assert renewed.tls.profile.key_store.names == ("newer.example",)
    renewed.set()
    assert renewed.tls.profile.key_store.names == ("localhost", "127.0.0.1")


def test_nothing_is_made_anew_where_nothing_differs(settings):
    renewed = Renewed(settings)
    before = renewed.tls.server, renewed.tls.client
    renewed.set(**{OWN_LOCATION: settings["ssl.keystore.location"]})
    assert (renewed.tls.server, renewed.tls.client) == before


def test_what_does_not_work_is_told_and_changes_nothing(settings, caplog):
    renewed = Renewed(settings)
    before = renewed.tls.profile
    with pytest.raises(ConfigError, match=r"listener SSL: ssl\.keystore\.location=/none: it can"):
        renewed.config.check_layer(ConfigSource.BROKER, {OWN_LOCATION: "/none"})
    renewed.set(**{OWN_LOCATION: "/none"})
    assert renewed.tls.profile is before
    (line,) = [line for line in caplog.messages if "not renewed" in line]
    assert "/none" in line


def test_the_days_until_a_certificate_ends_are_told(settings, caplog):
    caplog.set_level(logging.INFO)
    Renewed(settings)
    (line,) = [line for line in caplog.messages if line.startswith("certificate listener=SSL")]
    assert "names=localhost,127.0.0.1" in line
    assert int(line.partition("expires_in_days=")[2]) > 0
