"""What one TLS record brings is there at once; settings that do not fit together are refused."""

import socket
import ssl
import threading
import time

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption as By
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12

from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.zookeeper_settings import ZooKeeperTls
from storage_engine.net.tls.contexts import zookeeper_context
from storage_engine.zookeeper.access import ZooKeeperAccess
from storage_engine.zookeeper.kazoo_driver import EncryptingHandler, poll

ENABLED = {"zookeeper.ssl.client.enable": "true"}


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def served_once(authority: trustme.CA, data: bytes) -> tuple[threading.Thread, int]:
    """A server that sends `data` in one record, then waits for the end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with (
            listener,
            listener.accept()[0] as plain,
            context.wrap_socket(plain, server_side=True) as connection,
        ):
            connection.sendall(data)
            connection.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread, listener.getsockname()[1]


def test_the_rest_of_a_record_is_there_although_the_socket_has_nothing(authority):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    thread, port = served_once(authority, b"first second")
    handler = EncryptingHandler(context)
    connection = handler.create_connection(
        address=("127.0.0.1", port), hostname="127.0.0.1", timeout=10
    )
    try:
        assert poll([connection], [], 10)[0] == [connection]
        assert connection.recv(6) == b"first "
        begun = time.monotonic()
        assert handler.select([connection], [], [], 10)[0] == [connection]
        assert time.monotonic() - begun < 5
        assert connection.recv(100) == b"second"
        assert poll([connection], [], 0.05)[0] == []
    finally:
        connection.close()
        thread.join(10)


def test_what_the_settings_leave_out_is_an_error_of_one_line(tmp_path):
    wrong = {
        "zookeeper.ssl.keystore.location=/no/where": {
            **ENABLED,
            "zookeeper.ssl.keystore.location": "/no/where",
        },
        "has no effect without zookeeper.ssl.client.enable=true": {
            "zookeeper.ssl.truststore.location": "/ca.pem"
        },
        "ClientCnxnSocketNIO knows no TLS": {
            **ENABLED,
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO",
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


def test_the_password_is_shown_by_nothing():
    assert "secret" not in repr(ZooKeeperAccess(user="headrace", password="secret"))
