"""TLS from a client's settings: each form of store, by the names of Java and of librdkafka."""

import shutil
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from storage_engine.client.security.client_sockets import ClientSockets
from storage_engine.client.settings import client_security
from storage_engine.core.errors import AuthenticationError, ConfigError
from storage_engine.net.deadline import Deadline
from storage_engine.net.limits import BufferPool
from storage_engine.tests.net.serving import framed
from storage_engine.tests.net.tls_serving import Authority, echo_frames, tls_serving

PASSWORD = "store-pw"


class Stores:
    """An authority and a client's certificate of it, in every form."""

    def __init__(self, folder):
        self.authority = Authority(folder)
        self.folder = folder
        self.ca_file = self.authority.ca_file
        client = self.authority.ca.issue_cert("app@example.org", common_name="app")
        key = load_pem_private_key(client.private_key_pem.bytes(), None)
        certificate = x509.load_pem_x509_certificate(client.cert_chain_pems[0].bytes())
        authority = x509.load_pem_x509_certificate(self.authority.ca.cert_pem.bytes())
        encrypted = BestAvailableEncryption(PASSWORD.encode())
        self.chain = client.cert_chain_pems[0].bytes().decode()
        self.key = self._pem(key, NoEncryption())
        self.locked_key = self._pem(key, encrypted)
        self.key_file = self._file("client.key", self.key)
        self.locked_key_file = self._file("locked.key", self.locked_key)
        self.chain_file = self._file("client.crt", self.chain)
        self.both_file = self._file("client.pem", self.key + self.chain)
        self.locked_both_file = self._file("locked.pem", self.locked_key + self.chain)
        self.key_store = self._file(
            "client.p12",
            pkcs12.serialize_key_and_certificates(b"app", key, certificate, None, encrypted),
        )
        self.trust_store = self._file(
            "trust.p12",
            pkcs12.serialize_java_truststore(
                [pkcs12.PKCS12Certificate(authority, b"ca")], encrypted
            ),
        )
        self.java_store = self._file("trust.jks", b"\xfe\xed\xfe\xed" + bytes(50))

    @staticmethod
    def _pem(key, encryption):
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def _file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def port(stores):
    """Of a server that asks for a certificate."""
    context = stores.authority.server_context(stores.authority.issued("127.0.0.1"), asks=True)
    with tls_serving(context, echo_frames) as port:
        yield port


def talks(port, config):
    """Whether server and client accept each other."""
    sockets = ClientSockets(client_security({"security.protocol": "SSL", **config}, client="test"))
    deadline = Deadline.after(10_000)
    sockets.prepare(deadline)
    connection = sockets.open(("127.0.0.1", port), deadline, BufferPool())
    connection.send([framed(b"hello")], deadline)
    assert bytes(connection.receive(deadline)) == b"hello"
    connection.close()


FORMS = {
    "PKCS12 of Java": lambda s: {
        "ssl.truststore.location": s.trust_store,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": s.key_store,
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    },
    "PKCS12 by Java's default type": lambda s: {
        "ssl.truststore.location": s.trust_store,
        "ssl.truststore.type": "JKS",
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": s.key_store,
        "ssl.keystore.type": "JKS",
        "ssl.keystore.password": PASSWORD,
    },
    "PEM files of Java": lambda s: {
        "ssl.truststore.location": s.ca_file,
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": s.both_file,
        "ssl.keystore.type": "PEM",
    },
    "a PEM file with a password": lambda s: {
        "ssl.truststore.location": s.ca_file,
        "ssl.keystore.location": s.locked_both_file,
        "ssl.key.password": PASSWORD,
    },
    "PEM text of Java": lambda s: {
        "ssl.truststore.certificates": s.authority.ca.cert_pem.bytes().decode(),
        "ssl.keystore.certificate.chain": s.chain,
        "ssl.keystore.key": s.locked_key,
        "ssl.key.password": PASSWORD,
    },
    "files of librdkafka": lambda s: {
        "ssl.ca.location": s.ca_file,
        "ssl.certificate.location": s.chain_file,
        "ssl.key.location": s.key_file,
    },
    "files of librdkafka with a password": lambda s: {
        "ssl.ca.location": s.ca_file,
        "ssl.certificate.location": s.chain_file,
        "ssl.key.location": s.locked_key_file,
        "ssl.key.password": PASSWORD,
    },
    "text of librdkafka": lambda s: {
        "ssl.ca.pem": s.authority.ca.cert_pem.bytes().decode(),
        "ssl.certificate.pem": s.chain,
        "ssl.key.pem": s.key,
    },
    "TLS 1.2 with a chosen suite": lambda s: {
        "ssl.ca.location": s.ca_file,
        "ssl.keystore.location": s.both_file,
        "ssl.enabled.protocols": "TLSv1.2",
        "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,ECDHE-RSA-AES256-GCM-SHA384",
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_a_client_and_a_server_accept_each_other(stores, port, form):
    talks(port, FORMS[form](stores))


def test_what_is_in_the_truststore_is_trusted_whoever_has_signed_it(stores):
    """A server's own certificate as the only trusted one, as Java's users do."""
    path = stores.authority.issued("127.0.0.1", name="alone")
    with tls_serving(stores.authority.server_context(path), echo_frames) as port:
        talks(port, {"ssl.ca.location": path})


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl names the files")
def test_authorities_in_a_directory_by_openssls_names(stores, port, tmp_path):
    command = ["openssl", "x509", "-noout", "-subject_hash", "-in", stores.ca_file]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    shutil.copy(stores.ca_file, tmp_path / f"{found.stdout.strip()}.0")
    talks(port, {"ssl.ca.location": str(tmp_path), "ssl.keystore.location": stores.both_file})


def test_without_the_check_of_the_name_a_certificate_for_another_is_accepted(stores):
    path = stores.authority.issued("elsewhere.example", name="elsewhere")
    with tls_serving(stores.authority.server_context(path), echo_frames) as port:
        with pytest.raises(AuthenticationError):
            talks(port, {"ssl.ca.location": stores.ca_file})
        config = {"ssl.ca.location": stores.ca_file}
        talks(port, {**config, "ssl.endpoint.identification.algorithm": ""})
        talks(port, {"enable.ssl.certificate.verification": "false"})


def test_without_a_truststore_the_authorities_of_the_system_count(port):
    with pytest.raises(
        AuthenticationError, match=r"ssl\.truststore\.location or ssl\.ca\.location"
    ):
        talks(port, {})


@pytest.mark.parametrize(
    "config,message",
    [
        (lambda s: {"ssl.ca.location": "/no/file.pem"}, r"ssl\.ca\.location=/no/file\.pem"),
        (lambda s: {"ssl.ca.location": s.key_store}, r"ssl\.ca\.location=.* is no PEM file"),
        (lambda s: {"ssl.truststore.location": "/no/f"}, r"ssl\.truststore\.location=/no/f: it"),
        (lambda s: {"ssl.truststore.location": s.java_store}, "keytool"),
        (lambda s: {"ssl.truststore.location": s.trust_store}, r"ssl\.truststore\.password"),
        (
            lambda s: {"ssl.truststore.location": s.ca_file, "ssl.truststore.type": "PKCS12"},
            r"it is PEM, but ssl\.truststore\.type=PKCS12",
        ),
        (
            lambda s: {"ssl.keystore.location": s.key_store, "ssl.keystore.password": "hidden-pw"},
            r"ssl\.keystore\.password does not open it",
        ),
        (lambda s: {"ssl.keystore.location": s.locked_both_file}, r"set ssl\.key\.password"),
        (
            lambda s: {
                "ssl.certificate.location": s.chain_file,
                "ssl.key.location": s.locked_key_file,
                "ssl.key.password": "hidden-pw",
            },
            r"ssl\.key\.password does not open",
        ),
        (lambda s: {"ssl.cipher.suites": "TLS_NULL"}, r"ssl\.cipher\.suites=TLS_NULL"),
    ],
)
def test_what_is_not_right_is_one_line_that_names_it(stores, config, message):
    with pytest.raises(ConfigError, match=message) as raised:
        talks(1, config(stores))
    assert "hidden-pw" not in str(raised.value)
    assert "\n" not in str(raised.value)
