"""Nobody holds the console's places by sending half a request, or by not reading an answer."""

import contextlib
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.http.bounded_protocol import BoundedProtocol
from headrace_console.http.listening import MOST_CONNECTIONS
from headrace_console.tests.console_support import running_console
from storage_engine.core.security.security_protocol import Secret

LIMIT_S = 1.0
SLACK_S = 15.0
HALF_HEAD = b"GET /healthz HTTP/1.1\r\nHost: "
HALF_BODY = (
    b"POST /api/v1/login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
    b'Content-Length: 100\r\n\r\n{"password": '
)


@pytest.fixture
def url(monkeypatch) -> Iterator[str]:
    monkeypatch.setattr(BoundedProtocol, "request_timeout_s", LIMIT_S)
    monkeypatch.setattr(BoundedProtocol, "unread_timeout_s", LIMIT_S)
    password = Secret("a long enough password")
    settings = ConsoleSettings(bootstrap_servers="127.0.0.1:1", port=0, password=password)
    with running_console(settings) as address:
        yield address


@contextlib.contextmanager
def connected(url: str, count: int = 1, receive_bytes: int = 0) -> Iterator[list[socket.socket]]:
    where = urlsplit(url)
    with contextlib.ExitStack() as stack:
        sockets = []
        for _ in range(count):
            each = stack.enter_context(socket.socket())
            if receive_bytes:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            each.settimeout(LIMIT_S + SLACK_S)
            each.connect((where.hostname, where.port))
            sockets.append(each)
        yield sockets


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the other side closes; TimeoutError when it does not."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            data += part
    return data


def test_more_half_requests_than_there_are_places_keep_nobody_out_and_are_closed(url) -> None:
    host = urlsplit(url).netloc.encode()
    with connected(url, MOST_CONNECTIONS + 20) as held:
        for place, each in enumerate(held):
            with contextlib.suppress(OSError):
                each.sendall((HALF_HEAD, HALF_BODY % host, b"")[place % 3])
        for _ in range(5):
            assert httpx.get(f"{url}healthz").status_code == 200
        answers = {rest_of(each)[:12] for each in held}
        assert answers == {b"", b"HTTP/1.1 408"}, "the oldest gave room, the others were told"
    assert httpx.get(f"{url}healthz").status_code == 200


@pytest.mark.slow
def test_a_byte_now_and_then_buys_no_time(url) -> None:
    with connected(url) as (one,):
        began_s = time.monotonic()
        with contextlib.suppress(OSError):
            for byte in HALF_HEAD * 10:
                one.sendall(bytes([byte]))
                time.sleep(LIMIT_S / 5)
        assert time.monotonic() - began_s < LIMIT_S + SLACK_S
        # The same on a connection that has had an answer.
    with connected(url) as (one,):
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n" % urlsplit(url).netloc.encode())
        assert b"200 OK" in one.recv(65_536)
        one.sendall(HALF_HEAD)
        assert rest_of(one).startswith(b"HTTP/1.1 408")


def test_who_does_not_read_an_answer_is_closed(url) -> None:
    ask = b"GET /static/css/parts.css HTTP/1.1\r\nHost: %s\r\n\r\n" % urlsplit(url).netloc.encode()
    # More than the buffers of both systems hold.
    left = memoryview(ask * 1_500)
    with connected(url, receive_bytes=4_096) as (one,):
        one.settimeout(LIMIT_S + SLACK_S)
        began_s = time.monotonic()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while True:
                left = left[one.send(left[:4_096]) :] if left else left
                if not left:
                    time.sleep(0.1)
                    one.send(b"\r\n")
                assert time.monotonic() - began_s < 60
