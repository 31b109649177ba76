"""The client's connection over TLS: the same promises as in the clear, and whom it trusts."""

import random
import socket
import ssl
import struct
import threading
import time

import pytest

from storage_engine.core.errors import (
    AuthenticationError,
    DeadlineExceededError,
    ErrorCode,
    KafkaError,
)
from storage_engine.net.blocking import BlockingConnection, wait_readable
from storage_engine.net.deadline import Deadline
from storage_engine.net.tls.blocking_tls import TlsConnection
from storage_engine.tests.forked import forked
from storage_engine.tests.net.serving import framed
from storage_engine.tests.net.test_blocking import is_refused
from storage_engine.tests.net.tls_serving import Authority, echo_frames, frame, tls_serving


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def echo_port(authority):
    context = authority.server_context(authority.issued("127.0.0.1", "localhost"))
    with tls_serving(context, echo_frames) as port:
        yield port


def soon():
    return Deadline.after(10_000)


def connect(port, context, host="127.0.0.1"):
    return TlsConnection.open_tls(host, port, context, soon())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_frames_of_all_sizes_come_back_pipelined(authority, echo_port, version):
    context = authority.client_context()
    context.minimum_version = context.maximum_version = version
    chance = random.Random(3)
    payloads = [chance.randbytes(n) for n in (0, 5, 16_380, 65_531, 65_533, 200_000, 9, 1)]
    connection = connect(echo_port, context)
    for payload in payloads:
        connection.send([struct.pack(">I", len(payload)), payload], soon())
    assert [bytes(connection.receive(soon())) for _ in payloads] == payloads
    connection.close()


def test_large_frames_and_many_small_pieces_arrive_whole(authority, echo_port):
    payload = random.Random(4).randbytes(3_000_000)
    pieces = [struct.pack(">I", len(payload))]
    pieces += [payload[at : at + 1000] for at in range(0, 100_000, 1000)]
    pieces += [payload[100_000:]]
    connection = connect(echo_port, authority.client_context())
    connection.send(pieces, soon())
    assert bytes(connection.receive(soon())) == payload
    connection.close()


def test_what_only_tls_itself_has_sent_is_nothing_to_read(authority, echo_port):
    """After the handshake a server sends tickets, which make the socket readable."""
    connection = connect(echo_port, authority.client_context())
    connection.send([framed(b"x")], soon())
    assert bytes(connection.receive(soon())) == b"x"
    time.sleep(0.05)
    assert not connection.readable()
    assert connection.receive_nowait() is None
    connection.close()


def test_decrypted_bytes_that_wait_count_as_readable(authority):
    """Two frames in one record: the socket is silent after the first was taken."""
    context = authority.server_context(authority.issued("127.0.0.1"))

    def talk(tls):
        frame(tls)
        tls.sendall(framed(b"a" * 40) + framed(b"b" * 70_000) + framed(b"c"))
        frame(tls)

    with tls_serving(context, talk) as port:
        connection = connect(port, authority.client_context())
        connection.send([framed(b"go")], soon())
        sizes: list[int] = []
        while len(sizes) < 3:
            (ready,) = wait_readable([connection], 10_000)
            while (got := ready.receive_nowait()) is not None:
                sizes.append(len(got))
        assert sizes == [40, 70_000, 1]
        connection.close()


def test_a_server_that_does_not_shake_hands_is_given_up_at_the_deadline(authority):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(DeadlineExceededError, match="TLS handshake was not done within 200 ms"):
            TlsConnection.open_tls(
                "127.0.0.1", port, authority.client_context(), Deadline.after(200)
            )
        assert time.monotonic() - began < 30


def test_silence_ends_at_the_deadline(authority):
    context = authority.server_context(authority.issued("127.0.0.1"))

    def say_nothing(tls):
        frame(tls)
        frame(tls)

    with tls_serving(context, say_nothing) as port:
        connection = connect(port, authority.client_context())
        connection.send([framed(b"x")], soon())
        with pytest.raises(DeadlineExceededError, match="no answer within 100 ms"):
            connection.receive(Deadline.after(100))
        assert not connection.usable


def test_the_end_of_the_stream_is_readable_and_an_error(authority):
    context = authority.server_context(authority.issued("127.0.0.1"))
    with tls_serving(context, lambda tls: None) as port:
        connection = connect(port, authority.client_context())
        assert wait_readable([connection], 10_000) == [connection]
        with pytest.raises(KafkaError) as raised:
            connection.receive(soon())
        assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
        assert not connection.usable


def test_a_forked_child_cannot_use_its_parents_connection(authority, echo_port):
    connection = connect(echo_port, authority.client_context())
    connection.send([framed(b"before")], soon())
    assert forked(lambda: is_refused(connection))
    connection.send([framed(b"after")], soon())
    assert [bytes(connection.receive(soon())) for _ in range(2)] == [b"before", b"after"]
    connection.close()


def test_a_certificate_of_an_unknown_authority_is_not_accepted(authority, echo_port, tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(AuthenticationError, match=r"not accepted: .*ssl\.truststore\.location"):
        connect(echo_port, Authority(tmp_path / "other").client_context())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_certificate_for_another_host_is_not_accepted(authority, host):
    context = authority.server_context(authority.issued("elsewhere.example"))
    refused = pytest.raises(AuthenticationError, match=r"not valid for '.*connect by a name")
    with tls_serving(context, echo_frames) as port, refused:
        connect(port, authority.client_context(), host)


def test_an_expired_certificate_is_not_accepted(authority):
    context = authority.server_context(authority.issued("127.0.0.1", expired=True))
    refused = pytest.raises(AuthenticationError, match="expired; renew it")
    with tls_serving(context, echo_frames) as port, refused:
        connect(port, authority.client_context())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_server_that_wants_a_certificate_says_so(authority, version):
    server = authority.server_context(authority.issued("127.0.0.1"), asks=True)
    context = authority.client_context()
    context.minimum_version = context.maximum_version = version
    refused = pytest.raises(AuthenticationError, match=r"refused the TLS connection: .*keystore")
    with tls_serving(server, echo_frames) as port, refused:
        connection = connect(port, context)
        # With TLS 1.3 the client is done before the server has looked.
        connection.receive(soon())


def test_a_server_without_tls_is_told_from_one_that_refuses(authority):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def talk():
            sock, _ = listening.accept()
            with sock:
                sock.recv(1000)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=talk, daemon=True).start()
        with pytest.raises(AuthenticationError, match="does not speak TLS"):
            connect(port, authority.client_context())


def test_a_client_in_the_clear_is_told_that_the_port_speaks_tls(echo_port):
    connection = BlockingConnection.open("127.0.0.1", echo_port, soon())
    connection.send([framed(b"hello, hello, hello, hello")], soon())
    with pytest.raises(KafkaError, match=r"speaks TLS; set security\.protocol|closed|reset"):
        connection.receive(soon())
