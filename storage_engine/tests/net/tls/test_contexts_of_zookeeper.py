"""The settings of TLS towards ZooKeeper become a context, or an error of one line."""

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption as By
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12

from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.zookeeper_settings import ZooKeeperTls
from storage_engine.net.tls.contexts import zookeeper_context

ENABLED = {"zookeeper.ssl.client.enable": "true"}


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def test_what_the_settings_leave_out_is_an_error_of_one_line(tmp_path):
    wrong = {
        "zookeeper.ssl.keystore.location=/no/where": {
            **ENABLED,
            "zookeeper.ssl.keystore.location": "/no/where",
        },
        "zookeeper.ssl.cipher.suites=RC4": {**ENABLED, "zookeeper.ssl.cipher.suites": "RC4"},
        "zookeeper.ssl.keystore.type=JKS: must be PEM or PKCS12": {
            **ENABLED,
            "zookeeper.ssl.keystore.type": "JKS",
        },
    }
    for text, settings in wrong.items():
        with pytest.raises(ConfigError) as raised:
            zookeeper_context(ZooKeeperTls.of_texts(settings))
        assert text in str(raised.value) and "\n" not in str(raised.value)


def test_a_wrong_password_is_told_by_the_name_of_its_setting_and_not_shown(tmp_path, authority):
    key, certificate = _parsed(authority.issue_cert("me"))
    store = tmp_path / "own.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(b"me", key, certificate, None, By(b"right"))
    )
    where = {**ENABLED, "zookeeper.ssl.keystore.location": str(store)}
    secret = {**where, "zookeeper.ssl.keystore.password": "guessed-secret"}
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.keystore\.password") as raised:
        zookeeper_context(ZooKeeperTls.of_texts(secret))
    assert "guessed-secret" not in str(raised.value) + repr(ZooKeeperTls.of_texts(secret))
    zookeeper_context(ZooKeeperTls.of_texts({**where, "zookeeper.ssl.keystore.password": "right"}))


def _parsed(issued: trustme.LeafCert):
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    return key, x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
