"""Requests between brokers: answered once and in order, dropped together when something fails
(core.ports.Transport)."""

import socket
import struct
from functools import partial

import pytest

from storage_engine.core.ports import Endpoint, TransportError
from storage_engine.net.peer import PeerTransport
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.framing import encode_response_frame, parse_request_header
from storage_engine.tests.net.serving import Holder, eventually, serving, stays

VERSION = 12


def fetch_request(offset: int) -> FetchRequest:
    return FetchRequest(500, 1, 1 << 20, [FetchPartition("t", 0, offset, 1 << 20)], replica_id=2)


def answer(frame: bytes, records: bytes = b"") -> list:
    """A fetch response that echoes the request's offset as high watermark."""
    header, body = parse_request_header(memoryview(frame))
    offset = FETCH.decode_request(header.api_version, body).partitions[0].fetch_offset
    partition = FetchPartitionResponse("t", 0, high_watermark=offset, records=records)
    return encode_response_frame(
        FETCH, header.api_version, header.correlation_id, FetchResponse([partition])
    )


def fetching(connection, frame):
    connection.begin().respond(answer(bytes(frame)))


class Asker:
    """Sends requests on the loop and collects the answers."""

    def __init__(self, thread) -> None:
        self._thread = thread
        self.transport = thread.call(lambda: PeerTransport(thread.loop))
        self.replies: list = []

    def ask(
        self,
        port: int,
        *offsets: int,
        timeout_ms: int = 5000,
        channel: str = "fetch",
        host: str = "127.0.0.1",
    ):
        def send() -> None:
            before = len(self.replies)
            for offset in offsets:
                self.transport.request(
                    Endpoint(broker_id=1, host=host, port=port),
                    channel,
                    FETCH,
                    VERSION,
                    fetch_request(offset),
                    timeout_ms=timeout_ms,
                    on_reply=self.replies.append,
                )
            assert len(self.replies) == before, "answered within the call"

        self._thread.call(send)

    @property
    def watermarks(self) -> list[int]:
        return [
            r.partitions[0].high_watermark for r in self.replies if isinstance(r, FetchResponse)
        ]

    @property
    def failures(self) -> list[TransportError]:
        return [r for r in self.replies if isinstance(r, TransportError)]

    def wait_for(self, count: int) -> None:
        eventually(lambda: len(self.replies) >= count)

    def close(self) -> None:
        self._thread.call(self.transport.close)


@pytest.fixture
def asker(loop_thread):
    asker = Asker(loop_thread)
    yield asker
    asker.close()


def abort_all(server) -> None:
    for connection in list(server.connections):
        connection.abort()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_pipelined_requests_are_answered_in_order(loop_thread, asker):
    with serving(loop_thread, fetching) as server:
        asker.ask(server.port, *range(100))
        asker.wait_for(100)
        assert asker.watermarks == list(range(100))
        assert len(server.connections) == 1


@pytest.mark.parametrize("host", ["a..b", "h" * 64])
def test_a_name_that_no_resolver_takes_is_answered_as_no_connection(asker, host):
    """Each time: the channel would stay deaf for what it is asked later."""
    for count in (1, 2):
        asker.ask(1, 0, host=host)
        asker.wait_for(count)
    assert ["no host name" in str(failure) for failure in asker.failures] == [True, True]


def test_each_channel_has_a_connection_of_its_own(loop_thread, asker):
    with serving(loop_thread, fetching) as server:
        asker.ask(server.port, 1, channel="fetch")
        asker.ask(server.port, 2, channel="controller")
        asker.wait_for(2)
        assert len(server.connections) == 2


def test_large_records_stay_valid_after_the_callback(loop_thread, asker):
    blocks = [bytes([n]) * 1_000_000 for n in range(10)]

    def handle(connection, frame):
        number = len(asker_blocks_served)
        asker_blocks_served.append(number)
        connection.begin().respond(answer(bytes(frame), blocks[number]))

    asker_blocks_served: list[int] = []
    with serving(loop_thread, handle) as server:
        for number in range(10):
            asker.ask(server.port, number)
            asker.wait_for(number + 1)
        records = [reply.partitions[0].records for reply in asker.replies]
        assert [bytes(r) for r in records] == blocks
        assert not records[0].readonly


def test_a_refused_connection_answers_with_a_transport_error_that_names_the_broker(asker):
    port = free_port()
    asker.ask(port, 1, 2)
    asker.wait_for(2)
    assert len(asker.failures) == 2
    assert f"broker 1 at 127.0.0.1:{port} (fetch)" in asker.failures[0].reason


def test_a_broker_that_comes_back_is_found_again(loop_thread, asker):
    port = free_port()
    for expected in range(1, 4):
        asker.ask(port, 0)
        asker.wait_for(expected)
    with serving(loop_thread, fetching, port=port):
        asker.ask(port, 7)
        eventually(lambda: asker.watermarks == [7])
    with serving(loop_thread, fetching, port=port):
        asker.ask(port, 8)
        eventually(lambda: len(asker.replies) == 5)
        if asker.watermarks != [7, 8]:  # it was sent on the connection that had just died
            asker.ask(port, 8)
            eventually(lambda: asker.watermarks == [7, 8])


def test_a_lost_connection_answers_everything_pending_once(loop_thread, asker):
    holder = Holder()
    with serving(loop_thread, holder) as server:
        asker.ask(server.port, 1, 2, 3)
        holder.wait_for(3)
        loop_thread.call(partial(abort_all, server))
        asker.wait_for(3)
        assert len(asker.failures) == 3
        assert stays(lambda: len(asker.replies) == 3)


def test_a_request_without_an_answer_times_out_and_takes_its_connection_along(loop_thread, asker):
    holder = Holder()
    with serving(loop_thread, holder) as server:
        asker.ask(server.port, 1, timeout_ms=100)
        asker.ask(server.port, 2, timeout_ms=60_000)
        asker.wait_for(2)
        assert len(asker.failures) == 2
        assert "no answer to Fetch within 100 ms" in asker.failures[0].reason
        eventually(lambda: not server.connections)
        asker.ask(server.port, 3)
        holder.wait_for(3)


def test_disconnect_answers_what_is_pending(loop_thread, asker):
    holder = Holder()
    with serving(loop_thread, holder) as server:
        asker.ask(server.port, 1)
        holder.wait_for(1)
        endpoint = Endpoint(broker_id=1, host="127.0.0.1", port=server.port)
        loop_thread.call(lambda: asker.transport.disconnect(endpoint, "fetch"))
        assert len(asker.failures) == 1
        eventually(lambda: not server.connections)


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">Ii", 4, 12345),
        struct.pack(">I", 2) + b"xx",
        struct.pack(">I", 0xFFFFFFFF),
        struct.pack(">Iib", 5, 1, 0),
    ],
    ids=["another correlation id", "too short", "impossible size", "no body"],
)
def test_an_answer_that_makes_no_sense_drops_the_connection(loop_thread, asker, bad):
    with serving(loop_thread, lambda c, _: c.begin().respond([bad])) as server:
        asker.ask(server.port, 1)
        asker.wait_for(1)
        assert len(asker.failures) == 1
        eventually(lambda: not server.connections)


def test_a_callback_that_raises_spoils_nothing_else(loop_thread, asker, caplog):
    def broken(_):
        raise RuntimeError("a bug in the fetcher")

    with serving(loop_thread, fetching) as server:
        endpoint = Endpoint(broker_id=1, host="127.0.0.1", port=server.port)
        loop_thread.call(
            lambda: asker.transport.request(
                endpoint, "fetch", FETCH, 12, fetch_request(1), timeout_ms=5000, on_reply=broken
            )
        )
        asker.ask(server.port, 2)
        asker.wait_for(1)
        assert asker.watermarks == [2]
    assert "a bug in the fetcher" in caplog.text
