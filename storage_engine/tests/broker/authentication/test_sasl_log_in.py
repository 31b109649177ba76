"""The steps of a log-in and of the next one over the same connection: what is taken, what ends the
connection, and how much room and time a client has."""

import logging
import struct
import time

import pytest

from storage_engine.broker.authentication import sasl_log_in
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.sasl_server import (
    LogInRefusedError,
    OAuthBearerServer,
    OfferedMechanism,
    PlainServer,
)
from storage_engine.protocol.apis import api_versions, metadata
from storage_engine.protocol.framing import encode_request_frame
from storage_engine.tests.broker.authentication.logging_in import (
    ALICE,
    REQUEST_MAX_BYTES,
    LogInClient,
    gated_server,
    plain,
)
from storage_engine.tests.net.serving import framed

WRONG = b"\0alice\0wrong"


def frame_of(spec, version, request) -> bytes:
    return b"".join(bytes(each) for each in encode_request_frame(spec, version, 1, "c", request))


@pytest.fixture
def server(monkeypatch):
    """Who is refused has little time to read why."""
    monkeypatch.setattr(sasl_log_in, "REFUSED_GRACE_MS", 50)
    with gated_server() as made:
        yield made


@pytest.fixture
def client(server):
    with LogInClient(server.port) as made:
        yield made


def test_raw_tokens_follow_a_handshake_of_version_0(client) -> None:
    assert client.handshake(version=0).error_code == 0
    client.send(ALICE)
    assert client.receive() == b""
    assert client.is_served()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_wrong_password_is_answered_and_the_connection_closed(
    server, client, version, caplog
) -> None:
    client.handshake()
    answer = client.authenticate(WRONG, version)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "PLAIN" in (answer.error_message or "")
    assert client.closed_by_server()
    assert server.principals == []
    assert "user=alice" in caplog.text
    assert "wrong" not in caplog.text.replace("password is wrong", "")


def test_who_is_refused_may_read_why_before_the_connection_ends() -> None:
    with gated_server(failed_delay_ms=0) as server, LogInClient(server.port) as client:
        client.handshake()
        assert client.authenticate(WRONG).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(10)
        client.send_handshake()
        assert client.closed_by_server(), "nothing more is taken"


def test_a_wrong_raw_token_closes_the_connection_without_an_answer(client) -> None:
    client.handshake(version=0)
    client.send(WRONG)
    with pytest.raises((EOFError, ConnectionError)):
        client.receive()


def test_a_refusal_comes_after_its_delay() -> None:
    with gated_server(failed_delay_ms=300) as server, LogInClient(server.port) as client:
        client.handshake()
        before = time.monotonic()
        # What follows a refused token is not looked at.
        client.send_token(WRONG)
        client.send_token(ALICE)
        client.receive()
        # Timers count whole milliseconds.
        assert time.monotonic() - before > 0.298
        assert client.closed_by_server()
        assert server.principals == []


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(client) -> None:
    answer = client.handshake("GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN"]
    assert client.closed_by_server()


def test_api_versions_are_told_before_the_log_in_but_not_for_ever() -> None:
    request = frame_of(api_versions.API, 0, api_versions.ApiVersionsRequest())
    with gated_server() as server, LogInClient(server.port) as client:
        for _ in range(2):
            client.socket.sendall(request)
            assert client.receive() == request[4:], "the handler of the listener has answered"
        assert client.log_in().error_code == 0
        assert client.is_served()
    with gated_server() as server, LogInClient(server.port) as client:
        client.socket.sendall(request * 9)
        assert client.closed_by_server()


@pytest.mark.parametrize("when", ["before", "in the middle", "token first", "handshake twice"])
def test_any_other_request_before_the_end_of_the_log_in_ends_the_connection(
    server, client, when, caplog
) -> None:
    request = frame_of(metadata.API, 9, metadata.MetadataRequest(topics=None))
    if when in ("in the middle", "handshake twice"):
        client.handshake()
    if when == "token first":
        client.send_token()
    elif when == "handshake twice":
        client.send_handshake()
    else:
        client.socket.sendall(request)
    assert client.closed_by_server()
    assert server.principals == []


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        framed(b"\x60\x82\x02\x00\x06\x09"),
        struct.pack(">i", 40_000) + bytes(100),
    ],
)
def test_what_is_no_log_in_ends_the_connection(server, client, data: bytes, caplog) -> None:
    caplog.set_level(logging.WARNING)
    client.socket.sendall(data)
    assert client.closed_by_server()
    assert server.principals == []
    assert "unexpected error" not in caplog.text


def test_a_log_in_in_pieces_and_requests_that_follow_in_the_same_bytes_are_taken(
    server, client
) -> None:
    client.send_handshake()
    client.send_token()
    client.send(b"\x4e\x20 one", b"\x4e\x20 two")
    for _ in range(2):
        client.receive()
    assert [client.receive(), client.receive()] == [b"\x4e\x20 one", b"\x4e\x20 two"]
    assert server.principals == ["User:alice"] * 2


def test_after_the_log_in_requests_may_be_as_large_as_ever(client) -> None:
    large = b"\x4e\x20" + bytes(REQUEST_MAX_BYTES - 2)
    client.log_in()
    client.send(large)
    assert client.receive() == large


def test_only_tokens_of_oauthbearer_may_be_large() -> None:
    def check(_token: str):
        raise LogInRefusedError("it is not good")

    offered = {
        "PLAIN": plain(),
        "OAUTHBEARER": OfferedMechanism(make=lambda: OAuthBearerServer(check)),
    }
    token = b"n,,\x01auth=Bearer " + bytes([65]) * 200_000 + b"\x01\x01"
    with gated_server(offered=offered) as server:
        with LogInClient(server.port) as client:
            client.handshake("OAUTHBEARER")
            assert b"invalid_token" in client.authenticate(token).auth_bytes
        with LogInClient(server.port) as client:
            client.handshake("PLAIN")
            client.socket.sendall(struct.pack(">i", 200_000))
            assert client.closed_by_server()
        with LogInClient(server.port) as client:
            client.handshake("OAUTHBEARER")
            client.socket.sendall(struct.pack(">i", 600_000))
            assert client.closed_by_server()


@pytest.mark.parametrize("step", ["nothing", "half a frame", "handshake", "half a token"])
def test_who_does_not_log_in_within_the_time_is_sent_away(step: str) -> None:
    with gated_server(timeout_ms=200) as server, LogInClient(server.port) as client:
        if step == "half a frame":
            client.socket.sendall(b"\0\0")
        elif step != "nothing":
            client.handshake()
        if step == "half a token":
            client.socket.sendall(struct.pack(">i", 500) + b"\0\x24")
        before = time.monotonic()
        assert client.closed_by_server()
        assert time.monotonic() - before < 10


def test_a_client_logs_in_again_over_the_same_connection() -> None:
    offered = {"PLAIN": plain(max_reauth_ms=60_000)}
    with gated_server(offered=offered) as server, LogInClient(server.port) as client:
        for _ in range(3):
            assert client.log_in().session_lifetime_ms == 60_000
            assert client.is_served()


def test_who_does_not_log_in_again_in_time_is_served_no_more() -> None:
    with gated_server(offered={"PLAIN": plain(max_reauth_ms=100)}) as server:
        with LogInClient(server.port) as client:
            client.log_in()
            time.sleep(0.3)
            client.send(b"\x4e\x20 too late")
            assert client.closed_by_server()
        assert server.principals == []
        with LogInClient(server.port) as client:
            client.log_in()
            time.sleep(0.3)
            assert client.log_in().error_code == 0, "also after its time"


def test_a_second_log_in_that_fails_ends_the_connection(client) -> None:
    client.log_in()
    client.handshake()
    assert client.authenticate(WRONG).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.closed_by_server()


def test_no_request_passes_during_the_second_log_in(client) -> None:
    client.log_in()
    client.handshake()
    client.send(b"\x4e\x20 in between")
    assert client.closed_by_server()


def test_two_log_ins_with_other_users_are_one_too_many() -> None:
    users = {"alice": "hunter2", "bob": "hunter3"}
    both = OfferedMechanism(
        make=lambda: PlainServer(lambda user, password: users.get(user) == password)
    )
    with gated_server(offered={"PLAIN": both}) as server, LogInClient(server.port) as client:
        client.log_in()
        client.handshake()
        answer = client.authenticate(b"\0bob\0hunter3")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.closed_by_server()
