"""The server: frames in any pieces, answers in order, and what happens to those who break the rules
(R-NET1, R-NET3)."""

import logging
import os
import random
import socket
import struct
import time
from functools import partial

import pytest

from storage_engine.core.errors import HeadraceError, InvalidRequestError, LogStorageError
from storage_engine.net.server import Server
from storage_engine.net.serving import ServedListener
from storage_engine.tests.net.serving import (
    Client,
    Holder,
    echo,
    eventually,
    framed,
    serving,
    stays,
)


def test_frames_of_all_sizes_come_back_however_the_stream_is_cut(loop_thread):
    chance = random.Random(7)
    sizes = [0, 1, 8, 1024, 65_532, 65_536, 65_537, 262_140, 262_144, 300_000, 3_000_000]
    payloads = [chance.randbytes(size) for size in sizes * 2]
    chance.shuffle(payloads)
    stream = b"".join(map(framed, payloads))
    with serving(loop_thread, echo) as server, Client(server.port) as client:
        position = 0
        for payload in payloads:
            end = position + 4 + len(payload)
            while position < end:
                piece = chance.choice([1, 3, 100, 70_000, 1_000_000])
                client.socket.sendall(stream[position : min(end, position + piece)])
                position = min(end, position + piece)
            assert client.receive() == payload


def test_many_small_frames_sent_at_once_are_answered_in_order(loop_thread):
    payloads = [b"%08d" % number for number in range(20_000)]
    with serving(loop_thread, echo) as server, Client(server.port) as client:
        client.send(*payloads)
        assert [client.receive() for _ in payloads] == payloads


def test_responses_keep_the_order_of_requests_when_handlers_finish_in_another(loop_thread):
    holder = Holder()
    with serving(loop_thread, holder) as server, Client(server.port) as client:
        client.send(b"first", b"second", b"third")
        holder.wait_for(3)
        for exchange, payload in reversed(holder.held):
            loop_thread.call(partial(exchange.respond, [framed(payload)]))
        assert [client.receive() for _ in range(3)] == [b"first", b"second", b"third"]


def test_an_answer_leaves_at_once_when_it_is_all_that_is_owed_else_once_a_turn(loop_thread):
    holder = Holder()
    with serving(loop_thread, holder) as server, Client(server.port) as client:

        def unsent_after(*payloads):
            holder.held.clear()
            client.send(*payloads)
            holder.wait_for(len(payloads))
            return loop_thread.call(partial(answer_all, next(iter(server.connections))))

        def answer_all(connection):
            unsent = []
            for exchange, payload in holder.held:
                exchange.respond([framed(payload)])
                unsent.append(len(connection._responses.writer.pieces))
            return unsent

        assert unsent_after(b"alone") == [0]
        assert unsent_after(b"first", b"second") == [1, 2]
        assert [client.receive() for _ in range(3)] == [b"alone", b"first", b"second"]


def test_a_skipped_exchange_gets_no_response_and_holds_up_no_other(loop_thread):
    def handle(connection, frame):
        exchange = connection.begin()
        if frame == b"quiet":
            exchange.skip()
        else:
            exchange.respond([framed(bytes(frame))])

    with serving(loop_thread, handle) as server, Client(server.port) as client:
        client.send(b"a", b"quiet", b"b")
        assert [client.receive(), client.receive()] == [b"a", b"b"]


def test_a_frame_is_writable_in_place(loop_thread):
    def handle(connection, frame):
        frame[0:1] = b"!"
        connection.begin().respond([framed(bytes(frame))])

    with serving(loop_thread, handle) as server, Client(server.port) as client:
        client.send(b"small", bytes(200_000))
        assert client.receive() == b"!mall"
        assert client.receive()[:2] == b"!\0"


class MappedSlice:
    """Stands for a run of batches in the page cache."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def view(self) -> memoryview:
        return memoryview(self._data)


@pytest.mark.parametrize("size", [10, 100_000, 5_000_000])
def test_log_slices_are_sent_between_other_buffers(loop_thread, size):
    data = random.Random(size).randbytes(size)

    def handle(connection, frame):
        head = struct.pack(">I", size + 4)
        connection.begin().respond([head + b"<<", MappedSlice(data), memoryview(b">>")])

    with serving(loop_thread, handle) as server, Client(server.port) as client:
        client.send(b"1", b"2", b"3")
        assert [client.receive() for _ in range(3)] == [b"<<" + data + b">>"] * 3


def test_a_client_that_takes_no_answers_is_not_read_and_costs_others_nothing(loop_thread):
    answers = 0

    def handle(connection, frame):
        nonlocal answers
        answers += 1
        connection.begin().respond([struct.pack(">I", 1_000_000), MappedSlice(bytes(1_000_000))])

    with (
        serving(loop_thread, handle) as server,
        Client(server.port) as slow,
        Client(server.port) as other,
    ):
        slow.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            for _ in range(1000):
                slow.socket.sendall(framed(bytes(100_000)))

        def quiet() -> bool:
            before = answers
            return stays(lambda: answers == before)

        eventually(quiet)
        assert answers < 200
        other.send(b"x")
        assert len(other.receive()) == 1_000_000


def test_a_slow_reader_gets_every_byte_once_it_reads(loop_thread):
    blocks = [random.Random(n).randbytes(300_000) for n in range(40)]

    def handle(connection, frame):
        block = blocks[int(bytes(frame))]
        connection.begin().respond([struct.pack(">I", len(block)), MappedSlice(block)])

    with serving(loop_thread, handle) as server, Client(server.port) as client:
        client.send(*[b"%d" % n for n in range(40)])
        time.sleep(0.05)
        assert [client.receive() for _ in range(40)] == blocks


def test_a_slice_that_is_gone_when_it_is_to_be_sent_closes_its_connection_only(loop_thread, caplog):
    truncated = False

    class Truncatable(MappedSlice):
        def view(self) -> memoryview:
            if truncated:
                raise LogStorageError("the log was truncated")
            return super().view()

    def handle(connection, frame):
        if frame == b"small":
            echo(connection, frame)
        else:
            answer = Truncatable(bytes(20_000_000))
            connection.begin().respond([struct.pack(">I", len(answer)), answer])

    with (
        serving(loop_thread, handle) as server,
        Client(server.port) as slow,
        Client(server.port) as other,
    ):
        slow.send(b"large")
        slow.exactly(1_000_000)
        truncated = True
        assert slow.closed_by_server()
        other.send(b"small")
        assert other.receive() == b"small"
    assert "the log was truncated" in caplog.text


def test_an_answer_that_can_not_be_sent_for_any_reason_closes_its_connection_only(
    loop_thread, caplog
):
    """The answers of several connections are sent one after the other, in one turn of the loop."""

    class Faulty(MappedSlice):
        def view(self) -> memoryview:
            raise RuntimeError("a fault of ours")

    holder = Holder()
    with (
        serving(loop_thread, holder) as server,
        Client(server.port) as faulty,
        Client(server.port) as other,
    ):
        faulty.send(b"first", b"second")
        holder.wait_for(2)
        other.send(b"first", b"second")
        holder.wait_for(4)

        def answer_first_of_each():
            holder.held[0][0].respond([struct.pack(">I", 9), Faulty(bytes(9))])
            holder.held[2][0].respond([framed(b"first")])

        loop_thread.call(answer_first_of_each)
        other.socket.settimeout(5)
        assert other.receive() == b"first"
        loop_thread.call(lambda: holder.held[3][0].respond([framed(b"second")]))
        assert other.receive() == b"second"
        assert faulty.closed_by_server()
    assert "a fault of ours" in caplog.text


def test_unanswered_requests_of_one_connection_are_bounded(loop_thread):
    holder = Holder()
    with (
        serving(loop_thread, holder, pending_per_connection=10) as server,
        Client(server.port) as client,
    ):
        payloads = [b"%d" % n for n in range(100)]
        client.send(*payloads)
        holder.wait_for(10)
        assert stays(lambda: len(holder.held) == 10)

        def answer_all():
            held, holder.held = holder.held, []
            for exchange, payload in held:
                exchange.respond([framed(payload)])

        received: list[bytes] = []
        while len(received) < 100:
            loop_thread.call(answer_all)
            client.socket.settimeout(0.01)
            try:
                received.append(client.receive())
            except TimeoutError:
                continue
        assert received == payloads


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x04\x01"])
def test_an_impossible_length_closes_that_connection_only(loop_thread, caplog, length):
    with (
        caplog.at_level(logging.WARNING, "storage_engine.net"),
        serving(loop_thread, echo, request_max_bytes=1024) as server,
        Client(server.port) as bad,
        Client(server.port) as good,
    ):
        bad.socket.sendall(framed(b"still answered") + length + b"junk")
        assert bad.receive() == b"still answered"
        assert bad.closed_by_server()
        good.send(b"alive")
        assert good.receive() == b"alive"
        assert "socket.request.max.bytes=1024" in caplog.text
        assert "127.0.0.1:" in caplog.text


@pytest.mark.parametrize("error", [RuntimeError("a bug"), InvalidRequestError("not a request")])
def test_an_exception_in_the_handler_closes_that_connection_only(loop_thread, caplog, error):
    def handle(connection, frame):
        if frame == b"bad":
            raise error
        echo(connection, frame)

    with (
        serving(loop_thread, handle) as server,
        Client(server.port) as bad,
        Client(server.port) as good,
    ):
        bad.send(b"fine", b"bad", b"never seen")
        assert bad.receive() == b"fine"
        assert bad.closed_by_server()
        good.send(b"alive")
        assert good.receive() == b"alive"
    assert str(error) in caplog.text
    assert ("Traceback" in caplog.text) == isinstance(error, RuntimeError)


def test_a_frame_of_another_protocol_closes_its_connection(loop_thread):
    with serving(loop_thread, echo) as server, Client(server.port) as client:
        client.socket.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.closed_by_server()


def test_a_frame_that_only_announces_its_size_costs_no_memory(loop_thread):
    with serving(loop_thread, echo) as server:
        clients = [Client(server.port) for _ in range(50)]
        before = _resident_bytes()
        for client in clients:
            client.socket.sendall(struct.pack(">I", 100 * 1024 * 1024) + b"x")
        time.sleep(0.1)
        assert _resident_bytes() - before < 50 * 1024 * 1024
        for client in clients:
            client.close()


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:  # noqa: PTH123 - a file of the kernel
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        ({"max_connections": 1}, "max.connections=1"),
        ({"max_connections_per_ip": 1}, "max.connections.per.ip=1"),
        (
            {"max_connections_per_ip": 0, "per_ip_overrides": {"127.0.0.1": 1}},
            "max.connections.per.ip=1",
        ),
    ],
)
def test_a_connection_above_a_limit_is_closed_and_the_others_go_on(
    loop_thread, caplog, limits, setting
):
    with serving(loop_thread, echo, **limits) as server, Client(server.port) as first:
        first.send(b"x")
        first.receive()
        with Client(server.port) as second:
            assert second.closed_by_server()
        first.send(b"y")
        assert first.receive() == b"y"
    assert setting in caplog.text


def test_an_idle_connection_is_closed_but_not_one_that_waits_for_an_answer(loop_thread):
    holder = Holder()
    with (
        serving(loop_thread, holder, idle_max_ms=200) as server,
        Client(server.port) as idle,
        Client(server.port) as waiting,
    ):
        waiting.send(b"long poll")
        assert idle.closed_by_server()
        time.sleep(0.3)
        loop_thread.call(lambda: holder.held[0][0].respond([framed(b"late")]))
        assert waiting.receive() == b"late"


def test_a_client_that_closes_while_it_waits_leaves_nothing_behind(loop_thread):
    holder = Holder()
    with serving(loop_thread, holder) as server:
        with Client(server.port) as client:
            client.send(b"1", b"2")
            holder.wait_for(2)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        eventually(lambda: not server.connections)
        assert server.pending == 0
        assert holder.held[0][0].closed
        loop_thread.call(lambda: holder.held[0][0].respond([b"nobody"]))


def test_a_client_that_closes_its_side_ends_its_exchanges(loop_thread):
    holder = Holder()
    with serving(loop_thread, holder) as server, Client(server.port) as client:
        client.send(b"long poll")
        holder.wait_for(1)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.closed_by_server()
        assert holder.held[0][0].closed
        assert server.pending == 0


def test_closing_the_server_answers_what_is_under_way_within_the_grace(loop_thread):
    holder = Holder()
    with serving(loop_thread, holder) as server, Client(server.port) as client:
        client.send(b"under way")
        holder.wait_for(1)
        loop_thread.loop.call_soon_threadsafe(
            loop_thread.loop.call_later, 0.1, lambda: holder.held[0][0].respond([framed(b"done")])
        )
        loop_thread.run(server.close(grace_ms=5000))
        assert client.receive() == b"done"
        assert client.closed_by_server()
        with pytest.raises(ConnectionRefusedError):
            Client(server.port)


def test_closing_the_server_does_not_wait_longer_than_the_grace(loop_thread):
    holder = Holder()
    with serving(loop_thread, holder) as server, Client(server.port) as client:
        client.send(b"never answered")
        holder.wait_for(1)
        started = time.monotonic()
        loop_thread.run(server.close(grace_ms=100))
        assert time.monotonic() - started < 30
        assert client.closed_by_server()


def test_a_port_in_use_is_one_line_that_names_it(loop_thread):
    with serving(loop_thread, echo) as server:
        second = Server(
            loop_thread.loop,
            [ServedListener(host="127.0.0.1", port=server.port, handle=echo)],
        )
        with pytest.raises(HeadraceError, match=rf"127\.0\.0\.1:{server.port}: the port is in use"):
            loop_thread.run(second.start())


def test_random_bytes_never_stop_the_server(loop_thread):
    chance = random.Random(11)
    with serving(loop_thread, echo, request_max_bytes=100_000) as server:
        for _ in range(100):
            with Client(server.port) as client:
                try:
                    client.socket.sendall(chance.randbytes(chance.randrange(1, 5000)))
                except ConnectionError:
                    continue
        with Client(server.port) as client:
            client.send(b"alive")
            assert client.receive() == b"alive"
        eventually(lambda: len(server.connections) == 0)
        assert server.pending == 0
