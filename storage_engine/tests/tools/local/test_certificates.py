"""The authority of a local cluster, and the certificates that it gives."""

import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from storage_engine.tools.local.certificates import CA_KEY_FILE, make_authority, make_certificate
from storage_engine.tools.local.cluster_file import CA_FILE

FILE = "broker-1.pem"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_authority(tmp_path)
    return tmp_path


def shaken_hands(authority: Path, certificate: Path, name: str) -> None:
    """ssl.SSLError unless a client that trusts the authority takes the server for `name`."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(certificate)
    context = ssl.create_default_context(cafile=authority)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    left = [client, server]
    while left:
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                continue


def test_who_trusts_the_authority_trusts_the_host_and_this_machine(folder: Path) -> None:
    make_certificate(folder, FILE, "broker.example")
    for name in ("broker.example", "localhost", "127.0.0.1", "::1", socket.gethostname()):
        shaken_hands(folder / CA_FILE, folder / FILE, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shaken_hands(folder / CA_FILE, folder / FILE, "other.example")


def test_another_authority_is_not_trusted(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    make_authority(other)
    make_certificate(folder, FILE, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken_hands(other / CA_FILE, folder / FILE, "localhost")


def test_a_certificate_can_give_no_others(folder: Path) -> None:
    make_certificate(folder, FILE, "localhost")
    certificate = x509.load_pem_x509_certificate((folder / FILE).read_bytes())
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_what_is_there_is_kept_and_all_is_for_its_owner_alone(folder: Path) -> None:
    make_certificate(folder, FILE, "localhost")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert {path.name for path in before} == {CA_FILE, CA_KEY_FILE, FILE}
    make_authority(folder)
    make_certificate(folder, FILE, "broker.example", days=1)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert {path.stat().st_mode & 0o777 for path in before} == {0o600}
