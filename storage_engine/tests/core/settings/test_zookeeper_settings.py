"""TLS towards ZooKeeper, by its settings: what they mean together, and which do not fit."""

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import Secret
from storage_engine.core.settings.zookeeper_settings import ENABLE, SOCKET, ZooKeeperTls

ENABLED = {ENABLE: "true"}


def test_without_the_settings_there_is_no_tls():
    assert ZooKeeperTls.of_texts({}) is None
    assert ZooKeeperTls.of_texts({ENABLE: "false", "broker.id": "1"}) is None
    # Kafka's own files name the socket also where it is the one without TLS.
    assert ZooKeeperTls.of_texts({SOCKET: "org.apache.zookeeper.ClientCnxnSocketNIO"}) is None


def test_what_is_not_set_is_the_safe_default():
    assert ZooKeeperTls.of_texts(ENABLED) == ZooKeeperTls(
        checks_host_name=True, protocols=("TLSv1.2", "TLSv1.3"), cipher_suites=()
    )


def test_each_setting_has_its_place():
    prefix = "zookeeper.ssl."
    tls = ZooKeeperTls.of_texts(
        {
            **ENABLED,
            f"{prefix}keystore.location": "/own.p12",
            f"{prefix}keystore.password": "own",
            f"{prefix}truststore.location": "/ca.p12",
            f"{prefix}truststore.password": "ca",
            f"{prefix}endpoint.identification.algorithm": "",
            f"{prefix}enabled.protocols": "TLSv1.3",
            f"{prefix}cipher.suites": "A,B",
        }
    )
    assert tls == ZooKeeperTls(
        keystore_location="/own.p12",
        keystore_password=Secret("own"),
        truststore_location="/ca.p12",
        truststore_password=Secret("ca"),
        checks_host_name=False,
        protocols=("TLSv1.3",),
        cipher_suites=("A", "B"),
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"zookeeper.ssl.truststore.location": "/ca.pem"},
            "zookeeper.ssl.truststore.location has no effect without zookeeper.ssl.client.enable",
        ),
        (
            {**ENABLED, SOCKET: "org.apache.zookeeper.ClientCnxnSocketNIO"},
            "ClientCnxnSocketNIO knows no TLS, but zookeeper.ssl.client.enable=true",
        ),
        ({**ENABLED, "zookeeper.ssl.enabled.protocols": "SSLv3"}, "must be "),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(settings, problem):
    with pytest.raises(ConfigError, match=f"^.*{problem}.*$"):
        ZooKeeperTls.of_texts(settings)
