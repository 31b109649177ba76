"""The server with TLS, on both event loops: the same frames, order and bounds, and clients that do
not, or only half, speak it."""

import contextlib
import logging
import os
import random
import socket
import ssl
import time
from functools import partial

import pytest

from storage_engine.core.security.principal import ANONYMOUS
from storage_engine.net import limits as net_limits
from storage_engine.net.connection import Connection
from storage_engine.net.limits import ServerLimits
from storage_engine.net.server import Server
from storage_engine.net.serving import ServedListener
from storage_engine.net.tls import handshakes
from storage_engine.net.tls.contexts import ListenerTls, TlsOptions
from storage_engine.tests.net.serving import Client, Holder, echo, eventually, framed
from storage_engine.tests.net.tls.certificates import (
    AUTHORITY,
    CLIENT,
    EXPIRED,
    STRANGER,
    client_context_of,
    profile_of,
    shaken,
)
from storage_engine.tests.net.tls.tls_clients import TlsClient, asking_for_certificates, serving_tls
from storage_engine.tests.sampling import ALL_FAULTS

SEED = int(os.environ.get("HEADRACE_SEED", "15"))
DAMAGED = 300 if ALL_FAULTS else 100


def test_frames_of_all_sizes_are_answered_in_their_order(loop_thread):
    chance = random.Random(3)
    with serving_tls(loop_thread, echo) as server, TlsClient(server.port) as client:
        for _ in range(20):
            sizes = [chance.choice([1, 100, 16384, 65535, 65537, 300_000]) for _ in range(5)]
            payloads = [os.urandom(size) for size in sizes]
            client.send(*payloads)
            assert [client.receive() for _ in payloads] == payloads


def test_large_answers_to_a_client_that_reads_slowly_arrive_whole(loop_thread):
    answer = os.urandom(5_000_000)

    def large(connection, frame):
        connection.begin().respond([framed(answer)[:4], memoryview(answer)])

    with serving_tls(loop_thread, large) as server, TlsClient(server.port) as client:
        client.send(*[b"x"] * 5)
        for _ in range(5):
            time.sleep(0.05)
            assert client.receive() == answer


def test_unsent_bytes_of_a_client_that_does_not_read_are_bounded(loop_thread):
    answer = bytes(1_000_000)
    begun = []

    def large(connection, frame):
        begun.append(connection)
        connection.begin().respond([framed(answer)])

    with serving_tls(loop_thread, large) as server, TlsClient(server.port) as client:
        for _ in range(60):
            client.send(b"x")
        time.sleep(0.5)
        assert len(begun) < 60, "a connection with answers to send is not read"
        for _ in range(60):
            assert len(client.receive()) == len(answer)


def test_both_listeners_of_a_server_are_served_by_their_names(loop_thread):
    names = []

    def note(connection: Connection, frame):
        names.append((connection.listener_name, connection.principal))
        echo(connection, frame)

    with serving_tls(loop_thread, note) as server:
        with TlsClient(server.ports["SSL"]) as client:
            client.send(b"a")
            assert client.receive() == b"a"
        with Client(server.ports["PLAINTEXT"]) as other:
            other.send(b"b")
            assert other.receive() == b"b"
    assert names == [("SSL", ANONYMOUS), ("PLAINTEXT", ANONYMOUS)]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(loop_thread, version):
    context = client_context_of()
    context.minimum_version = context.maximum_version = version
    with serving_tls(loop_thread, echo) as server, TlsClient(server.port, context) as client:
        client.send(b"x")
        assert client.receive() == b"x"
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.version() == version.name.replace("_", ".")


def test_a_version_that_is_not_enabled_is_refused(loop_thread):
    tls = ListenerTls("SSL", profile_of(options=TlsOptions(protocols=("TLSv1.3",))))
    context = client_context_of()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving_tls(loop_thread, echo, tls) as server, pytest.raises(ssl.SSLError):
        TlsClient(server.port, context)


@pytest.mark.parametrize(
    ("authority", "host", "reason"),
    [
        (STRANGER, "127.0.0.1", "unable to get local issuer|self.signed"),
        (AUTHORITY, "other.example", "not valid for 'other.example'"),
    ],
)
def test_clients_refuse_a_broker_they_do_not_know(loop_thread, authority, host, reason):
    with (
        serving_tls(loop_thread, echo) as server,
        pytest.raises(ssl.SSLCertVerificationError, match=reason),
    ):
        shaken(server.port, client_context_of(authority), host)


def test_clients_refuse_an_expired_certificate(loop_thread):
    old = AUTHORITY.issue_cert("127.0.0.1", not_after=EXPIRED)
    with (
        serving_tls(loop_thread, echo, ListenerTls("SSL", profile_of(old))) as server,
        pytest.raises(ssl.SSLCertVerificationError, match="expired"),
    ):
        shaken(server.port, client_context_of())


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_a_clients_certificate_names_it(loop_thread, client_auth):
    seen: list = []
    with (
        asking_for_certificates(loop_thread, client_auth, seen) as server,
        TlsClient(server.port, client_context_of(issued=CLIENT)) as client,
    ):
        client.send(b"x")
        assert client.receive() == b"x"
    (principal,) = seen
    assert str(principal).startswith("User:CN=app,")
    assert "O=Example" in principal.name


def test_a_certificate_that_is_requested_may_be_missing(loop_thread):
    seen: list = []
    with (
        asking_for_certificates(loop_thread, "requested", seen) as server,
        TlsClient(server.port) as client,
    ):
        client.send(b"x")
        assert client.receive() == b"x"
    assert seen == [ANONYMOUS]


def test_a_renewed_certificate_counts_for_the_next_connection(loop_thread):
    tls = ListenerTls("SSL", profile_of())
    with serving_tls(loop_thread, echo, tls) as server, TlsClient(server.port) as before:
        loop_thread.call(partial(tls.renew, profile_of(STRANGER.issue_cert("127.0.0.1"))))
        with TlsClient(server.port, client_context_of(STRANGER)) as after:
            for client in (before, after):
                client.send(b"x")
                assert client.receive() == b"x"


# --- who speaks no TLS, or only half ---


@pytest.mark.parametrize(
    "data",
    [
        framed(b"\x00\x12\x00\x03"),
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(100),
        b"\x16\x03\x01\xff\xff",
    ],
    ids=["a plain client", "http", "zeros", "an impossible size"],
)
def test_what_is_no_tls_is_closed_and_told(loop_thread, data, caplog):
    caplog.set_level(logging.WARNING)
    with serving_tls(loop_thread, echo) as server:
        with Client(server.port) as client:
            client.socket.sendall(data)
            assert client.closed_by_server()
        eventually(lambda: any("does not speak TLS" in line for line in caplog.messages))


def test_a_first_message_that_comes_byte_by_byte_is_waited_for(loop_thread):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context_of().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with serving_tls(loop_thread, echo) as server, Client(server.port) as client:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                hello = outgoing.read()
                for start in range(0, len(hello), 97):
                    client.socket.sendall(hello[start : start + 97])
                    time.sleep(0.002)
                incoming.write(client.socket.recv(65536))
        client.socket.sendall(outgoing.read())
        eventually(lambda: len(server.connections) == 1)


def test_silent_clients_are_closed_in_time_and_free_their_places(loop_thread, monkeypatch, caplog):
    for module in (net_limits, handshakes):
        monkeypatch.setattr(module, "HANDSHAKE_TIMEOUT_MS", 200)
    caplog.set_level(logging.WARNING)
    with serving_tls(loop_thread, echo, max_connections=20) as server:
        silent = [Client(server.port) for _ in range(12)]
        for client in silent[:5]:
            client.socket.sendall(b"\x16\x03\x01\x02\x00")
        assert all(client.closed_by_server() for client in silent)
        with TlsClient(server.port) as client:
            client.send(b"x")
            assert client.receive() == b"x"
    told = [line for line in caplog.messages if "TLS handshake failed" in line]
    assert len(told) == 2, "one for each reason: too many, and too slow"


def test_half_of_the_connections_may_be_in_their_handshakes(loop_thread):
    with serving_tls(loop_thread, echo, max_connections=6) as server:
        silent = [Client(server.port) for _ in range(3)]
        time.sleep(0.1)
        with Client(server.port) as fourth:
            assert fourth.closed_by_server()
        with Client(server.ports["PLAINTEXT"]) as plain:
            plain.send(b"x")
            assert plain.receive() == b"x"
        for client in silent:
            client.close()


def test_handshakes_count_for_the_limit_of_an_address(loop_thread):
    with (
        serving_tls(loop_thread, echo, max_connections_per_ip=3) as server,
        TlsClient(server.port) as client,
        Client(server.port),
        Client(server.port),
    ):
        time.sleep(0.1)
        with Client(server.port) as fourth:
            assert fourth.closed_by_server()
        client.send(b"x")
        assert client.receive() == b"x"


def test_a_client_that_leaves_in_its_handshake_costs_nothing(loop_thread):
    with serving_tls(loop_thread, echo) as server:
        for size in (0, 3, 5, 200):
            with Client(server.port) as client:
                client.socket.sendall((b"\x16\x03\x01\x02\x00" + bytes(600))[:size])
        eventually(lambda: not len(server._handshakes))
        assert not server.connections


def test_renegotiation_is_refused(loop_thread):
    context = client_context_of()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving_tls(loop_thread, echo) as server, TlsClient(server.port, context) as client:
        assert server._listeners[0].tls.server.options & ssl.OP_NO_RENEGOTIATION
        client.send(b"x")
        assert client.receive() == b"x"


def test_a_crowd_that_comes_at_once_is_let_in_a_few_a_turn(loop_thread):
    with serving_tls(loop_thread, echo) as server:
        context = client_context_of()
        raw = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(60)]
        eventually(lambda: len(server._handshakes) == 60)
        wrapped = [
            context.wrap_socket(sock, server_hostname="127.0.0.1", do_handshake_on_connect=False)
            for sock in raw
        ]
        for sock in wrapped:
            sock.setblocking(False)
            with contextlib.suppress(ssl.SSLWantReadError):
                sock.do_handshake()
        for sock in wrapped:
            sock.settimeout(30)
            sock.do_handshake()
        eventually(lambda: len(server.connections) == 60)
        for sock in wrapped:
            sock.close()
        eventually(lambda: not server.connections)


def test_a_request_that_waits_is_answered_while_the_server_closes(loop_thread, monkeypatch):
    monkeypatch.setattr(handshakes, "TLS_SHUTDOWN_TIMEOUT_MS", 100)
    holder = Holder()
    with serving_tls(loop_thread, holder) as server, TlsClient(server.port) as client:
        client.send(b"x")
        holder.wait_for(1)
        exchange, _ = holder.held[0]
        loop_thread.loop.call_soon_threadsafe(
            loop_thread.loop.call_later, 0.02, exchange.respond, [framed(b"late")]
        )
        loop_thread.run(server.close(grace_ms=5000))
        assert client.receive() == b"late"


# --- the places of a server with several listeners ---


@contextlib.contextmanager
def two_listeners(thread, **limits):
    listeners = [
        ServedListener(
            name="INSIDE",
            host="127.0.0.1",
            handle=echo,
            tls=ListenerTls("INSIDE", profile_of()),
            is_for_brokers=True,
        ),
        ServedListener(name="OUTSIDE", host="127.0.0.1", handle=echo, max_connections=5),
        ServedListener(name="OTHER", host="127.0.0.1", handle=echo),
    ]
    server = Server(thread.loop, listeners, ServerLimits(**limits))
    thread.run(server.start())
    try:
        yield server
    finally:
        thread.run(server.close(grace_ms=100))


def answered(client):
    client.send(b"x")
    return client.receive() == b"x"


def test_a_broker_takes_the_place_of_a_silent_client(loop_thread):
    with two_listeners(loop_thread, max_connections=4, idle_max_ms=4_000) as server:
        clients = [Client(server.ports["OTHER"]) for _ in range(4)]
        assert all(answered(client) for client in clients)
        with Client(server.ports["OTHER"]) as fifth:
            assert fifth.closed_by_server()
        # Until a sweep has found the first one silent, long before it is closed for that.
        deadline = time.monotonic() + 1.2
        while time.monotonic() < deadline:
            for client in clients[1:]:
                assert answered(client)
            time.sleep(0.01)
        with TlsClient(server.ports["INSIDE"]) as broker:
            assert answered(broker)
            assert clients[0].closed_by_server()
            assert all(answered(client) for client in clients[1:])
        for client in clients:
            client.close()


def test_connections_that_come_at_once_take_one_place_each(loop_thread):
    for _ in range(20):
        with two_listeners(loop_thread, max_connections=8) as server:
            clients = [Client(server.ports["OTHER"]) for _ in range(8)]
            assert all(answered(client) for client in clients)
            for client in clients:
                client.close()


def test_brokers_never_take_the_place_of_brokers(loop_thread):
    with (
        two_listeners(loop_thread, max_connections=2) as server,
        TlsClient(server.ports["INSIDE"]) as one,
        TlsClient(server.ports["INSIDE"]) as other,
    ):
        with Client(server.ports["INSIDE"]) as third:
            assert third.closed_by_server()
        assert answered(one)
        assert answered(other)


def test_a_listener_may_have_a_limit_of_its_own(loop_thread):
    with two_listeners(loop_thread, max_connections=100) as server:
        clients = [Client(server.ports["OUTSIDE"]) for _ in range(5)]
        assert all(answered(client) for client in clients)
        with Client(server.ports["OUTSIDE"]) as sixth:
            assert sixth.closed_by_server()
        with Client(server.ports["OTHER"]) as other:
            assert answered(other)
        for client in clients:
            client.close()
        eventually(lambda: not server.connections)
        with Client(server.ports["OUTSIDE"]) as again:
            assert answered(again)


# --- damaged handshakes ---


def first_messages() -> list[bytes]:
    """What clients begin with, of both versions, with certificates and without."""
    found = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = client_context_of(issued=CLIENT)
        context.minimum_version = context.maximum_version = version
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
        found.append(outgoing.read())
    return found


def damaged(chance: random.Random, data: bytes) -> bytes:
    """With bytes changed, doubled or cut."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(changed))
        match chance.randrange(3):
            case 0:
                changed[place] = chance.randrange(256)
            case 1:
                changed[place:place] = changed[place : place + chance.randint(1, 50)]
            case 2 if len(changed) > 60:
                del changed[place : place + chance.randint(1, 50)]
    return bytes(changed)


def test_damaged_handshakes_end_their_own_connection(loop_thread, caplog):
    chance = random.Random(SEED)
    tls = ListenerTls("SSL", profile_of(client_auth="requested"))
    messages = first_messages()
    reported = []
    loop_thread.loop.set_exception_handler(lambda _, context: reported.append(context))
    with serving_tls(loop_thread, echo, tls) as server:
        for _ in range(DAMAGED):
            with Client(server.port) as client, contextlib.suppress(ConnectionError):
                client.socket.sendall(damaged(chance, chance.choice(messages)))
                if chance.random() < 0.5:
                    client.socket.settimeout(0.02)
                    with contextlib.suppress(TimeoutError):
                        client.socket.recv(65536)
                    client.socket.sendall(chance.randbytes(chance.randint(1, 400)))
        eventually(lambda: not len(server._handshakes))
        eventually(lambda: not server.connections)
        with TlsClient(server.port) as client:
            assert answered(client)
    assert reported == []
    assert "Traceback" not in caplog.text
