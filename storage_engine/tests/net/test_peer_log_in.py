"""This broker logs in to others before its first request, and again before its time is over."""

import time
from typing import Any

import pytest

from storage_engine.core.ports import Endpoint, TransportError
from storage_engine.core.security.sasl_client import password_client
from storage_engine.net.peer import PeerTransport
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchResponse
from storage_engine.protocol.framing import encode_response_frame, parse_request_header
from storage_engine.protocol.messages import sasl_authenticate, sasl_handshake
from storage_engine.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from storage_engine.protocol.messages.sasl_handshake import SaslHandshakeResponse
from storage_engine.tests.net.serving import eventually, running_loop, serving, stays
from storage_engine.tests.net.test_peer import answer, fetch_request

VERSION = 12


class Broker:
    """Answers log-ins as it is told, and fetches when it is told."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.handshake = SaslHandshakeResponse(mechanisms=["PLAIN"])
        self.log_in = SaslAuthenticateResponse()
        self.is_silent = False
        self.holds_fetches = False
        self.held: list[tuple] = []

    def __call__(self, connection, frame) -> None:
        header, body = parse_request_header(frame)
        exchange = connection.begin()
        spec: Any = sasl_handshake.API
        response: object = self.handshake
        if header.api_key == sasl_handshake.API.key:
            self.seen.append("handshake")
        elif header.api_key == sasl_authenticate.API.key:
            request = sasl_authenticate.API.decode_request(header.api_version, body)
            self.seen.append(request.auth_bytes.decode())
            spec, response = sasl_authenticate.API, self.log_in
        else:
            self.seen.append("fetch")
            if self.holds_fetches:
                self.held.append((exchange, bytes(frame)))
            else:
                exchange.respond(answer(bytes(frame)))
            return
        if not self.is_silent:
            exchange.respond(
                encode_response_frame(spec, header.api_version, header.correlation_id, response)
            )


class Asker:
    def __init__(self, thread, port: int) -> None:
        self._thread = thread
        self._port = port
        self.replies: list = []
        self.transport = thread.call(
            lambda: PeerTransport(
                thread.loop, log_in=lambda: password_client("PLAIN", "broker", "hunter2")
            )
        )

    def ask(self, offset: int = 1, timeout_ms: int = 5000) -> None:
        endpoint = Endpoint(broker_id=1, host="127.0.0.1", port=self._port)
        self._thread.call(
            lambda: self.transport.request(
                endpoint,
                "fetch",
                FETCH,
                VERSION,
                fetch_request(offset),
                timeout_ms=timeout_ms,
                on_reply=self.replies.append,
            )
        )

    def asked(self, *offsets: int) -> list:
        before = len(self.replies)
        for offset in offsets or (1,):
            self.ask(offset)
        eventually(lambda: len(self.replies) == before + len(offsets or (1,)))
        return self.replies[before:]

    def close(self) -> None:
        self._thread.call(self.transport.close)


@pytest.fixture
def broker_and_asker():
    broker = Broker()
    with running_loop("uvloop") as thread, serving(thread, broker) as server:
        asker = Asker(thread, server.port)
        yield broker, asker
        asker.close()


TOKEN = "\0broker\0hunter2"


def test_requests_wait_for_the_log_in_which_comes_once(broker_and_asker) -> None:
    broker, asker = broker_and_asker
    replies = asker.asked(1, 2, 3)
    assert [reply.partitions[0].high_watermark for reply in replies] == [1, 2, 3]
    assert broker.seen == ["handshake", TOKEN, "fetch", "fetch", "fetch"]


def test_a_refusal_answers_what_waits_and_names_no_secret(broker_and_asker, caplog) -> None:
    broker, asker = broker_and_asker
    broker.log_in = SaslAuthenticateResponse(error_code=58, error_message="it is not right")
    (reply,) = asker.asked()
    assert isinstance(reply, TransportError)
    assert "log-in as 'broker' by PLAIN failed: it is not right; check the user" in reply.reason
    assert "hunter2" not in reply.reason + caplog.text
    assert "fetch" not in broker.seen
    broker.log_in = SaslAuthenticateResponse()
    assert isinstance(asker.asked()[0], FetchResponse), "the next connection is another try"


def test_refusals_are_tried_again_ever_more_slowly(broker_and_asker) -> None:
    broker, asker = broker_and_asker
    broker.log_in = SaslAuthenticateResponse(error_code=58)
    began = time.monotonic()
    for _ in range(5):
        asker.asked()
    assert time.monotonic() - began > 0.05 + 0.1 + 0.2 + 0.4


def test_a_mechanism_that_the_other_does_not_take_is_told(broker_and_asker) -> None:
    broker, asker = broker_and_asker
    broker.handshake = SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512"])
    assert "does not take that mechanism; it takes SCRAM-SHA-512" in asker.asked()[0].reason


def test_a_log_in_that_takes_too_long_is_given_up(broker_and_asker, monkeypatch) -> None:
    monkeypatch.setattr("storage_engine.net.peer_log_in.TIMEOUT_MS", 100)
    broker, asker = broker_and_asker
    broker.is_silent = True
    assert "not done within 100 ms" in asker.asked()[0].reason


def test_a_request_has_its_own_time_during_a_log_in(broker_and_asker) -> None:
    broker, asker = broker_and_asker
    broker.is_silent = True
    asker.ask(timeout_ms=50)
    eventually(lambda: bool(asker.replies))
    assert "within 50 ms" in asker.replies[0].reason


def test_it_logs_in_again_behind_what_is_in_flight(broker_and_asker) -> None:
    broker, asker = broker_and_asker
    broker.log_in = SaslAuthenticateResponse(session_lifetime_ms=300)
    asker.asked()
    broker.holds_fetches = True
    broker.seen.clear()
    asker.ask(7)
    eventually(lambda: broker.seen == ["fetch", "handshake"])
    asker.ask(8)
    assert stays(lambda: broker.seen == ["fetch", "handshake"]), "new requests wait"
    broker.holds_fetches = False
    exchange, frame = broker.held.pop()
    asker._thread.call(lambda: exchange.respond(answer(frame)))
    eventually(lambda: len(asker.replies) == 3)
    assert broker.seen[:4] == ["fetch", "handshake", TOKEN, "fetch"]
    assert [reply.partitions[0].high_watermark for reply in asker.replies] == [1, 7, 8]
    eventually(lambda: broker.seen.count("handshake") >= 3)
    assert isinstance(asker.asked()[0], FetchResponse)


def test_a_second_log_in_that_fails_ends_the_connection(broker_and_asker) -> None:
    broker, asker = broker_and_asker
    broker.log_in = SaslAuthenticateResponse(session_lifetime_ms=100)
    asker.asked()
    broker.log_in = SaslAuthenticateResponse(error_code=58)
    eventually(lambda: broker.seen.count(TOKEN) == 2)
    broker.log_in = SaslAuthenticateResponse()
    eventually(lambda: isinstance(asker.asked()[0], FetchResponse))
    assert broker.seen.count("handshake") >= 3
