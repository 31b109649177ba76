"""The small HTTP server for metrics, and what clients do to it."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from storage_engine.core.errors import HeadraceError
from storage_engine.net import http_listener
from storage_engine.net.http_listener import CONNECTIONS_MAX, REQUEST_MAX_BYTES, HttpListener

GET = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LONG_PIECE_S = 0.002


class Served:
    def __init__(self, listener: HttpListener, made: list[str]) -> None:
        self.listener = listener
        self.made = made

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port)

    async def ask(self, request: bytes) -> bytes:
        """All that comes until the server closes, or has said something and is silent."""
        reader, writer = await self.connect()
        writer.write(request)
        answer = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            while piece := await asyncio.wait_for(reader.read(1 << 16), 0.3):
                answer += piece
        writer.close()
        return answer


@contextlib.asynccontextmanager
async def served(size: int = 20) -> AsyncIterator[Served]:
    made: list[str] = []

    def make_text(media_type: str) -> Iterator[str]:
        made.append(media_type)
        for number in range(size):
            yield f"line {number}\n"

    listener = HttpListener(
        asyncio.get_running_loop(),
        host="127.0.0.1",
        port=0,
        path="/metrics",
        media_type_for=lambda accept: "text/plain" if "open" not in accept else "open",
        make_text=make_text,
        names=("broker-1.example",),
    )
    await listener.start()
    try:
        yield Served(listener, made)
    finally:
        listener.close()
        await asyncio.sleep(0)


def run(work) -> None:
    asyncio.run(work)


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_a_get_gets_the_whole_text_and_its_type():
    async def work():
        async with served() as server:
            answer = await server.ask(GET)
            assert _status(answer) == 200
            head, _, body = answer.partition(b"\r\n\r\n")
            assert body.decode() == "".join(f"line {number}\n" for number in range(20))
            assert b"Content-Type: text/plain" in head

    run(work())


def test_requests_that_follow_one_another_are_answered_on_one_connection():
    async def work():
        async with served() as server:
            answer = await server.ask(GET * 3)
            assert answer.count(b"HTTP/1.1 200") == 3

    run(work())


def test_thousands_of_requests_at_once_are_answered_one_after_the_other():
    async def work():
        async with served() as server:
            one = b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"
            assert (await server.ask(one * 3_000)).count(b"HTTP/1.1 404") == 3_000

    run(work())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (GET.replace(b"127.0.0.1", b"rebound.attacker.example"), 403),
        (GET.replace(b"127.0.0.1", b"localhost:9308"), 200),
        (GET.replace(b"127.0.0.1", b"[::1]:9308"), 200),
        (GET.replace(b"127.0.0.1", b"Broker-1.example"), 200),
        (GET.replace(b"GET", b"POST"), 405),
        (GET.replace(b"/metrics", b"/etc/passwd"), 404),
        (GET.replace(b"/metrics", b"/metrics?name=x"), 200),
        (GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\nhello"), 413),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\x00\x00\x00\x1d\x00\x12\x00\x03 no http at all \r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * 2 * REQUEST_MAX_BYTES, 431),
    ],
)
def test_each_request_gets_the_answer_that_it_should(request_bytes, status):
    async def work():
        async with served() as server:
            assert _status(await server.ask(request_bytes)) == status

    run(work())


def test_a_head_has_no_body():
    async def work():
        async with served() as server:
            answer = await server.ask(GET.replace(b"GET", b"HEAD"))
            assert _status(answer) == 200
            assert answer.endswith(b"\r\n\r\n")

    run(work())


def test_who_asks_within_a_second_gets_the_same_text():
    async def work():
        async with served() as server:
            await asyncio.gather(*(server.ask(GET) for _ in range(8)))
            assert len(server.made) == 1

    run(work())


def test_a_client_that_says_nothing_more_is_closed(monkeypatch):
    monkeypatch.setattr(http_listener, "REQUEST_MAX_MS", 100)

    async def work():
        async with served() as server:
            reader, writer = await server.connect()
            for _ in range(30):
                # A byte now and then does not make the time longer.
                with contextlib.suppress(ConnectionError):
                    writer.write(b"G")
                await asyncio.sleep(0.02)
            assert reader.at_eof() or reader.exception() is not None
            writer.close()

    run(work())


def test_one_connection_too_many_takes_the_place_of_the_one_that_is_idle_for_longest():
    async def work():
        async with served() as server:
            idle = [await server.connect() for _ in range(CONNECTIONS_MAX)]
            await asyncio.sleep(0.05)
            assert _status(await server.ask(GET)) == 200
            assert await asyncio.wait_for(idle[0][0].read(), 1) == b""
            idle[-1][1].write(GET)
            assert b"200" in await asyncio.wait_for(idle[-1][0].read(64), 1)
            for _, writer in idle:
                writer.close()

    run(work())


def test_a_text_that_takes_long_leaves_the_loop_its_turns(monkeypatch):
    async def work():
        async with served(size=0) as server:
            turns, seen = 0, set()

            def slow(media_type: str) -> Iterator[str]:
                for _ in range(30):
                    time.sleep(LONG_PIECE_S)
                    seen.add(turns)
                    yield "x"

            server.listener._make_text = slow
            asking = asyncio.create_task(server.ask(GET))
            while not asking.done():
                await asyncio.sleep(0)
                turns += 1
            assert len(seen) == 30
            assert (await asking).endswith(b"x" * 30)

    run(work())


def test_an_address_in_use_is_one_line_that_names_the_setting():
    async def work():
        async with served() as server:
            other = HttpListener(
                asyncio.get_running_loop(),
                host="127.0.0.1",
                port=server.listener.port,
                path="/",
                media_type_for=str,
                make_text=lambda _: iter(()),
                names=(),
            )
            with pytest.raises(HeadraceError, match=r"metrics\.listener=HOST:PORT"):
                await other.start()

    run(work())


def test_connections_that_come_at_once_take_one_place_each():
    def connect(port: int) -> list[socket.socket]:
        return [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS_MAX)]

    async def work():
        for _ in range(20):
            async with served() as server:
                # By another thread: some come while the loop takes up others.
                sockets = await asyncio.to_thread(connect, server.listener.port)
                ends = [await asyncio.open_connection(sock=each) for each in sockets]
                for _, writer in ends:
                    writer.write(GET)
                for reader, _ in ends:
                    assert b"200" in await asyncio.wait_for(reader.read(64), 1)
                for _, writer in ends:
                    writer.close()

    run(work())


def test_connections_that_come_at_once_do_not_get_beyond_the_limit():
    async def work():
        async with served() as server:
            clients = [await server.connect() for _ in range(4)]
            loop, listener = asyncio.get_running_loop(), server.listener
            sockets = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(60)]
            try:
                most = 0
                for _ in range(100):
                    await asyncio.sleep(0.002)
                    most = max(most, len(listener._connections))
                assert most <= CONNECTIONS_MAX
                ends = []
                for each in sockets:
                    each.setblocking(False)
                    with contextlib.suppress(TimeoutError, ConnectionError):
                        ends.append(await asyncio.wait_for(loop.sock_recv(each, 1), 0.002))
                assert len(sockets) - len(ends) <= CONNECTIONS_MAX + 1
            finally:
                for each in sockets:
                    each.close()
                for _, writer in clients:
                    writer.close()

    run(work())


def test_clients_of_several_formats_by_turns_do_not_make_a_text_each_time():
    async def work():
        async with served() as server:
            other = GET.replace(b"\r\n\r\n", b"\r\nAccept: open\r\n\r\n")
            answer = await server.ask((GET + other) * 10)
            assert answer.count(b"HTTP/1.1 200") == 20
            assert sorted(server.made) == ["open", "text/plain"]

    run(work())


def test_half_a_request_behind_a_whole_one_has_the_time_of_a_request(monkeypatch):
    monkeypatch.setattr(http_listener, "REQUEST_MAX_MS", 100)

    async def work():
        async with served() as server:
            reader, writer = await server.connect()
            writer.write(GET + GET[:20])
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 2)
            writer.close()

    run(work())
