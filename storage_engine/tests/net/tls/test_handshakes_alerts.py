"""A client whose handshake fails is told why, on both event loops, and costs little then."""

import contextlib
import logging
import socket
import ssl

import pytest

from storage_engine.net.tls import handshakes
from storage_engine.tests.net.serving import eventually
from storage_engine.tests.net.tls.certificates import (
    AUTHORITY,
    EXPIRED,
    STRANGER,
    client_context_of,
)
from storage_engine.tests.net.tls.tls_clients import TlsClient, asking_for_certificates

BAD_CERTIFICATES = {
    "none": (None, "certificate.required|handshake.failure"),
    "of a stranger": (STRANGER.issue_cert("app@example.org"), "unknown.ca"),
    "expired": (AUTHORITY.issue_cert("app@example.org", not_after=EXPIRED), "certificate.expired"),
}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("which", BAD_CERTIFICATES)
def test_a_required_certificate_that_is_not_good_is_refused_and_the_client_told_why(
    loop_thread, which, version, caplog
):
    issued, alert = BAD_CERTIFICATES[which]
    context = client_context_of(issued=issued)
    context.maximum_version = version
    seen: list = []
    caplog.set_level(logging.WARNING)
    with asking_for_certificates(loop_thread, "required", seen) as server:
        # With TLS 1.3 a client learns of it when it reads.
        with (
            pytest.raises(ssl.SSLError, match=f"(?i){alert}"),
            TlsClient(server.port, context) as client,
        ):
            client.send(b"x")
            client.receive()
        eventually(lambda: not len(server._handshakes))
    assert sum("TLS handshake failed" in line for line in caplog.messages) == 1
    assert seen == []


def refused_and_told(port: int) -> tuple[ssl.SSLObject, socket.socket]:
    """A client without a certificate that has got the alert and does not close."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context_of().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    told = False
    while not told:
        try:
            tls.do_handshake()
            tls.read(1)
        except ssl.SSLWantReadError:
            if outgoing.pending:
                sock.sendall(outgoing.read())
            incoming.write(sock.recv(65536))
        except ssl.SSLError:
            told = True
    return tls, sock


def test_a_client_that_stays_when_it_is_refused_is_closed_soon(loop_thread, monkeypatch):
    monkeypatch.setattr(handshakes, "TLS_SHUTDOWN_TIMEOUT_MS", 300)
    with asking_for_certificates(loop_thread, "required", []) as server:
        _, sock = refused_and_told(server.port)
        with sock:
            assert len(server._handshakes) == 1, "it holds the place of a handshake"
            assert sock.recv(1) == b""
            eventually(lambda: not len(server._handshakes))


def test_what_a_refused_client_goes_on_to_say_is_hardly_read(loop_thread):
    with asking_for_certificates(loop_thread, "required", []) as server:
        _, sock = refused_and_told(server.port)
        sent, piece = 0, bytes(1 << 16)
        with sock, contextlib.suppress(ConnectionError):
            while True:
                sock.sendall(piece)
                sent += len(piece)
        assert sent < 32 << 20, "a client that is served sends some hundred MiB in a second"
