"""What strangers do to a broker: each attack goes on until it is told to stop."""

import contextlib
import os
import select
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Mapping

from integration_tests.security.secured_cluster import SecuredCluster
from integration_tests.strangers.handshake_fuzzer import handshake, token
from integration_tests.support.brokers_by_hand import HOST

Attack = Callable[[SecuredCluster, threading.Event], int]
"""How often it was done."""

HELD = 900
"""Connections that one attack holds at the same time."""
PLACES = ("OPEN", "MTLS", "SASL", "BOTH")
SCRAM_FIRST = b"n,,n=bob,r=" + b"a" * 24
_BYTE_EVERY_S = 0.05
_GARBAGE = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    bytes(range(256)),
    bytes(4),
    struct.pack(">i", -5),
    struct.pack(">i", 2**31 - 1),
    b"\x16\x03\x01\x40\x00" + bytes(200),
    b"\x16\x03\x01\xff\xff",
    os.urandom(3000),
)


def _connected(cluster: SecuredCluster, listener: str) -> socket.socket:
    made = socket.create_connection((HOST, cluster.brokers.port(1, listener)), timeout=5)
    made.setblocking(False)
    return made


def _client_hello(cluster: SecuredCluster) -> bytes:
    said = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = context.wrap_bio(ssl.MemoryBIO(), said)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


def _held(
    cluster: SecuredCluster, stop: threading.Event, listener: str, begin: Callable[[int], bytes]
) -> int:
    """As many connections as are held at a time begin with something and say no more; those that
    the broker ends are made anew."""
    open_ones: dict[int, socket.socket] = {}
    waiting = select.poll()
    made = 0
    try:
        while not stop.is_set():
            while len(open_ones) < HELD and not stop.is_set():
                with contextlib.suppress(OSError):
                    each = _connected(cluster, listener)
                    open_ones[each.fileno()] = each
                    waiting.register(each, select.POLLIN)
                    each.send(begin(made))
                made += 1
            for number, _ in waiting.poll(50):
                with contextlib.suppress(BlockingIOError):
                    try:
                        is_over = not open_ones[number].recv(1 << 16)
                    except ConnectionError:
                        is_over = True
                    if is_over:
                        waiting.unregister(number)
                        open_ones.pop(number).close()
    finally:
        for each in open_ones.values():
            each.close()
    return made


def half_handshakes(cluster: SecuredCluster, stop: threading.Event) -> int:
    """The first message of TLS, but for its end."""
    hello = _client_hello(cluster)
    return _held(cluster, stop, "BOTH", lambda number: hello[: 1 + number % (len(hello) - 1)])


def whole_first_messages(cluster: SecuredCluster, stop: threading.Event) -> int:
    """The server signs, and hears no more."""
    hello = _client_hello(cluster)
    return _held(cluster, stop, "MTLS", lambda _: hello)


def silent_connections(cluster: SecuredCluster, stop: threading.Event) -> int:
    """They say nothing."""
    return _held(cluster, stop, "SASL", lambda _: b"")


def half_log_ins(cluster: SecuredCluster, stop: threading.Event) -> int:
    """The most that a log-in may take, but for its last byte."""
    almost = handshake("PLAIN") + token(bytes(32_000))[:-1]
    return _held(cluster, stop, "SASL", lambda _: almost)


def slow_handshakes(cluster: SecuredCluster, stop: threading.Event) -> int:
    """A byte, and after a while another one."""
    hello = _client_hello(cluster)
    with contextlib.ExitStack() as stack:
        slow = []
        for _ in range(200):
            with contextlib.suppress(OSError):
                slow.append(stack.enter_context(_connected(cluster, "BOTH")))
        done = 0
        while not stop.wait(_BYTE_EVERY_S):
            byte = hello[done % len(hello) :][:1]
            for each in slow:
                with contextlib.suppress(OSError):
                    each.send(byte)
            done += 1
        return done * len(slow)


def renegotiations(cluster: SecuredCluster, stop: threading.Event) -> int:
    """New handshakes in old sessions, and new keys: what `openssl s_client` asks for by R and K."""
    done = 0
    while not stop.is_set():
        version, order = (("-tls1_2", b"R\n"), ("-tls1_3", b"K\n"))[done % 2]
        with subprocess.Popen(
            [
                "openssl",
                "s_client",
                version,
                "-connect",
                f"{HOST}:{cluster.brokers.port(1, 'BOTH')}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as client:
            assert client.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                client.stdin.write(order * 50)
                client.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.wait(2)
            client.kill()
        done += 1
    return done


def garbage_everywhere(cluster: SecuredCluster, stop: threading.Event) -> int:
    """On each listener what belongs there nowhere."""

    def shot(number: int, listener: str) -> None:
        with _connected(cluster, listener) as each:
            each.settimeout(0.2)
            each.sendall(_GARBAGE[number % len(_GARBAGE)])
            each.recv(1 << 16)

    return _shots(stop, lambda number: shot(number, PLACES[number // len(_GARBAGE) % len(PLACES)]))


def oversized_log_ins(cluster: SecuredCluster, stop: threading.Event) -> int:
    """Frames and tokens above what a log-in may have."""
    frames = (
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 100 << 20) + bytes(60_000),
        handshake("PLAIN") + token(bytes(60_000)),
        handshake("SCRAM-SHA-512") + token(b"n,,n=" + b"\xc2\xad" * 15_000 + b",r=x"),
        handshake("OAUTHBEARER") + token(b"n,,\x01auth=Bearer " + b"e30." * 8_000 + b"\x01\x01"),
        handshake("x" * 30_000),
    )

    def shot(number: int) -> None:
        with _connected(cluster, "SASL") as each:
            each.settimeout(0.2)
            each.sendall(frames[number % len(frames)])
            each.recv(1 << 16)

    return _shots(stop, shot)


def wrong_scram_proofs(cluster: SecuredCluster, stop: threading.Event) -> int:
    """How often a password is hashed is the server's to say: a client that names another number,
    and a proof of any length, gets what a wrong password gets."""
    proofs = (b"c=biws,r=x,i=2147483647,p=AAAA", b"c=biws,r=x,p=" + b"A" * 20_000, b"c=,r=,p=")

    def shot(number: int) -> None:
        with _connected(cluster, "SASL") as each:
            each.settimeout(1)
            each.sendall(handshake("SCRAM-SHA-512"))
            each.recv(1 << 16)
            each.sendall(token(SCRAM_FIRST))
            each.recv(1 << 16)
            each.sendall(token(proofs[number % len(proofs)]))
            each.recv(1 << 16)

    return _shots(stop, shot)


def _shots(stop: threading.Event, shot: Callable[[int], None]) -> int:
    """Eight at a time."""
    done = [0] * 8

    def shoot(which: int) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                shot(done[which] * len(done) + which)
            done[which] += 1

    threads = [threading.Thread(target=shoot, args=(which,)) for which in range(len(done))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done)


ATTACKS: Mapping[str, Attack] = {
    each.__name__: each
    for each in (
        half_handshakes,
        whole_first_messages,
        silent_connections,
        half_log_ins,
        slow_handshakes,
        renegotiations,
        garbage_everywhere,
        oversized_log_ins,
        wrong_scram_proofs,
    )
}
