"""Clients that are slow, silent or greedy cost the others nothing (R-NET1, R-NET3)."""

import contextlib
import socket
import struct
import time
from functools import partial

from storage_engine.net.connection import Connection
from storage_engine.net.limits import UNSENT_RESPONSE_BUFFERS, ServerLimits
from storage_engine.net.server import Server
from storage_engine.net.serving import ServedListener
from storage_engine.tests.net.serving import (
    TIMEOUT_S,
    Client,
    Holder,
    echo,
    eventually,
    framed,
    serving,
    stays,
)

BAD_CLIENTS = 200
REQUESTS = 300
ANSWER = bytes(50_000)
UNREAD = 2 * UNSENT_RESPONSE_BUFFERS
"""Requests of a client that takes no answers: more than one run takes on."""
LARGE = 800_000


def test_two_hundred_clients_that_hang_keep_none_of_the_others_waiting(loop_thread):
    """A third sends a byte at a time, a third takes no answers, a third waits for one that does not
    come. While they hang, a healthy client gets all its answers, in order, and no work is done for
    the others: that counts calls, not time."""
    holder = Holder()
    unread = 0

    def handle(connection, frame):
        nonlocal unread
        kind = bytes(frame[:1])
        if kind == b"u":
            unread += 1
            connection.begin().respond([struct.pack(">I", len(ANSWER)), ANSWER])
        elif kind == b"h":
            holder(connection, frame)
        else:
            echo(connection, frame)

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(loop_thread, handle))
        bad = [stack.enter_context(Client(server.port)) for _ in range(BAD_CLIENTS)]
        tricklers, deaf, waiting = bad[::3], bad[1::3], bad[2::3]
        for client in deaf:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send(*[b"u"] * UNREAD)
        for client in waiting:
            client.send(b"hold")
        holder.wait_for(len(waiting))
        seen = -1

        def quiet() -> bool:
            nonlocal seen
            before, seen = seen, unread
            # On a busy machine, those that wait for their turn are as quiet as those that are full.
            is_idle = loop_thread.call(lambda: not server._going_on)
            return is_idle and before == seen and unread >= len(deaf)

        eventually(quiet)
        healthy = stack.enter_context(Client(server.port))
        for number in range(REQUESTS):
            request = struct.pack(">I", 1_000) + b"x" * 999
            if number < len(request):
                for client in tricklers:
                    client.socket.sendall(request[number : number + 1])
            healthy.send(b"%d" % number)
            assert healthy.receive() == b"%d" % number
        assert unread == seen
        assert unread <= len(deaf) * UNREAD / 2
        assert len(holder.held) == len(waiting)
        assert server.pending >= len(waiting)


def test_large_requests_under_way_are_bounded_and_small_ones_go_on(loop_thread):
    payload = bytes(LARGE)
    with (
        serving(loop_thread, echo, receiving_max_bytes=1_000_000) as server,
        Client(server.port) as first,
        Client(server.port) as second,
        Client(server.port) as small,
    ):
        first.socket.sendall(framed(payload)[: LARGE // 2])
        eventually(lambda: server.receiving_bytes == LARGE)
        # Its beginning is taken, and no more.
        second.socket.sendall(framed(b"before") + framed(payload)[:100_000])
        assert second.receive() == b"before"
        eventually(lambda: len(server.short_of_memory) == 1)
        assert server.receiving_bytes == LARGE
        small.send(b"small")
        assert small.receive() == b"small"
        first.socket.sendall(framed(payload)[LARGE // 2 :])
        assert first.receive() == payload
        second.socket.sendall(framed(payload)[100_000:])
        assert second.receive() == payload
        eventually(lambda: server.receiving_bytes == 0)


def test_a_broker_waits_for_no_slow_client_with_its_large_request(loop_thread):
    listeners = [
        ServedListener(host="127.0.0.1", name=name, handle=echo, is_for_brokers=name == "BROKERS")
        for name in ("CLIENTS", "BROKERS")
    ]
    server = Server(loop_thread.loop, listeners, ServerLimits(receiving_max_bytes=1_000_000))
    loop_thread.run(server.start())
    try:
        with Client(server.ports["CLIENTS"]) as slow, Client(server.ports["BROKERS"]) as broker:
            slow.socket.sendall(framed(bytes(LARGE))[: LARGE // 2])
            eventually(lambda: server.receiving_bytes == LARGE)
            broker.send(bytes(LARGE))
            assert broker.receive() == bytes(LARGE)
    finally:
        loop_thread.run(server.close(grace_ms=100))


def test_a_client_that_goes_away_gives_its_memory_to_who_waits(loop_thread):
    payload = bytes(LARGE)
    with (
        serving(loop_thread, echo, receiving_max_bytes=1_000_000) as server,
        Client(server.port) as first,
        Client(server.port) as second,
    ):
        first.socket.sendall(framed(payload)[: LARGE // 2])
        eventually(lambda: server.receiving_bytes == LARGE)
        second.socket.sendall(framed(payload)[:100_000])
        eventually(lambda: len(server.short_of_memory) == 1)
        first.close()
        second.socket.sendall(framed(payload)[100_000:])
        assert second.receive() == payload


def test_a_request_above_the_bound_is_let_in_alone(loop_thread):
    with (
        serving(loop_thread, echo, receiving_max_bytes=100_000) as server,
        Client(server.port) as client,
    ):
        client.send(bytes(LARGE))
        assert client.receive() == bytes(LARGE)
        eventually(lambda: server.receiving_bytes == 0)


def test_unanswered_requests_of_all_connections_are_bounded_but_each_may_have_one(loop_thread):
    holder = Holder()
    with serving(loop_thread, holder, queued_max_requests=4) as server:
        clients = [Client(server.port) for _ in range(3)]
        for number, client in enumerate(clients):
            client.send(*[b"%d" % n for n in range(10)])
            expected = (4, 5, 6)[number]
            holder.wait_for(expected)
            assert stays(partial(holder.holds, expected))
        answered = 0
        deadline = time.monotonic() + TIMEOUT_S
        while answered < 30:
            assert time.monotonic() < deadline, f"only {answered} of 30 are answered"

            def answer_one():
                if holder.held:
                    exchange, payload = holder.held.pop(0)
                    exchange.respond([framed(payload)])
                    return 1
                return 0

            answered += loop_thread.call(answer_one)
        for client in clients:
            assert [client.receive() for _ in range(10)] == [b"%d" % n for n in range(10)]
            client.close()
        assert server.pending == 0


def test_a_client_with_much_to_do_keeps_no_other_waiting(loop_thread):
    """Whoever stops because the turn is over goes on behind those that have not been served."""
    handled: list[bytes] = []

    def slow(connection: Connection, frame: memoryview) -> None:
        end_ns = time.perf_counter_ns() + 1_000_000
        while time.perf_counter_ns() < end_ns:
            pass
        handled.append(bytes(frame))
        if len(handled) == 20:
            # By this thread: another may get the interpreter's lock a second later.
            other.send(b"one")
        connection.begin().respond([framed(b"done")])

    with (
        serving(loop_thread, slow) as server,
        Client(server.port) as busy,
        Client(server.port) as also_busy,
        Client(server.port) as other,
    ):
        other.send(b"before")
        other.receive()
        busy.send(*[b"many"] * 600)
        also_busy.send(*[b"many"] * 600)
        other.receive()
        assert handled.index(b"one") < 200
