"""The expiry of brokers' certificates."""

import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from headrace_console.cluster import certificates
from headrace_console.cluster.certificates import CertificateLooks, expires_ms
from storage_engine.tools.local.certificates import make_authority, make_certificate

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def address(tmp_path: Path):
    """A server with a certificate that nobody trusts, and that has expired just now."""
    make_authority(tmp_path)
    make_certificate(tmp_path, "broker.pem", "broker.example", days=0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "broker.pem")
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=shake_hands, args=(server, context), daemon=True).start()
        yield server.getsockname()
        server.shutdown(socket.SHUT_RDWR)


def shake_hands(server: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            connection = server.accept()[0]
        except OSError:
            return
        with connection, context.wrap_socket(connection, server_side=True) as encrypted:
            encrypted.recv(1)


def test_the_expiry_of_a_certificate_is_read_also_when_it_is_over_and_not_trusted(address):
    found = expires_ms(address)
    assert found is not None
    assert abs(time.time() * 1000 - found) < 120_000


def test_a_server_without_tls_and_none_at_all_have_no_certificate():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert expires_ms(silent.getsockname()) is None
        silent_address = silent.getsockname()
    assert expires_ms(silent_address) is None


def test_one_that_ends_soon_is_read_again_soon_and_others_once_a_minute(monkeypatch):
    asked: list[tuple[str, int]] = []
    now_ms = time.time() * 1000
    answers: dict[tuple[str, int], int | None] = {
        ("soon", 1): int(now_ms + DAY_MS),
        ("later", 1): int(now_ms + 90 * DAY_MS),
    }

    def read(address):
        asked.append(address)
        return answers[address]

    clock_s = 1000.0
    monkeypatch.setattr(certificates, "expires_ms", read)
    monkeypatch.setattr(time, "monotonic", lambda: clock_s)
    looks = CertificateLooks()
    brokers = {1: ("soon", 1), 2: ("later", 1)}
    before = looks.look(brokers)
    assert before == {1: answers["soon", 1], 2: answers["later", 1]}
    clock_s += certificates.LOOK_SOON_EVERY_S
    answers["soon", 1] = None  # It does not answer now: what is known stays.
    assert looks.look(brokers) == before
    assert asked == [("soon", 1), ("later", 1), ("soon", 1)]
    clock_s += certificates.LOOK_EVERY_S
    looks.look({2: ("later", 1)})
    assert asked[3:] == [("later", 1)]
