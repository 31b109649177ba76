"""Requests that go on to the writer: what is told, and what is tried again."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace_registry import forwarding
from headrace_registry.election.identity import Identity
from headrace_registry.forwarding import Forwarding, NotDoneError, RawRequest
from storage_engine.core.schemas.registry.registry_error import RegistryError
from storage_engine.net.deadline import Deadline

NOT_WRITER = b'{"error_code":50004,"message":"Leader not known."}'


def answer(status: str, body: bytes, *headers: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}".encode(), b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Writer:
    """Answers each connection with the same bytes, and notes what it got."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.identity = Identity(host="127.0.0.1", port=self.socket.getsockname()[1])
        self.answer = b""
        self.got = b""
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                self.got = b""
                while not self.got.endswith(b"}"):
                    part = connection.recv(65_536)
                    if not part:
                        return
                    self.got += part
                connection.sendall(self.answer)

    def close(self) -> None:
        socket.create_connection(("127.0.0.1", self.identity.port)).close()
        self.thread.join()
        self.socket.close()


@pytest.fixture
def writer() -> Iterator[Writer]:
    found = Writer()
    yield found
    found.close()


def send(identity: Identity, **more: Any) -> Any:
    raw = RawRequest(
        method="PUT",
        target="/config/a%2Fb?x=1",
        body=b'{"compatibility":"FULL"}',
        headers={"authorization": "Basic eA==", "content-type": "application/json"},
        is_forwarded=False,
        is_repeatable=more.pop("is_repeatable", True),
    )
    return Forwarding(None).send(raw, identity, Deadline.after(5_000))


def test_a_request_goes_on_as_it_came(writer) -> None:
    writer.answer = answer("422 Unprocessable", b"{}", b"x-headrace-position: 17")
    found = send(writer.identity)
    assert (found.status, found.body, found.position) == (422, b"{}", 17)
    head, _, body = writer.got.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"put /config/a%2fb?x=1 http/1.1"
    assert b"authorization: basic ea==" in lines
    assert b"x-headrace-forwarded: 1" in lines
    assert body == b'{"compatibility":"FULL"}'


def test_who_is_not_there_or_not_the_writer_is_not_the_end(writer) -> None:
    with pytest.raises(NotDoneError):
        send(Identity(host="127.0.0.1", port=1))
    writer.answer = answer("500 Error", NOT_WRITER)
    with pytest.raises(NotDoneError):
        send(writer.identity, is_repeatable=False)


def test_an_error_of_the_writer_is_the_answer(writer) -> None:
    writer.answer = answer("500 Error", b'{"error_code":50002,"message":"late"}')
    assert send(writer.identity).status == 500


def test_an_end_without_an_answer_is_told_where_it_may_not_be_done_twice(writer) -> None:
    with pytest.raises(NotDoneError):
        send(writer.identity, is_repeatable=True)
    with pytest.raises(RegistryError) as caught:
        send(writer.identity, is_repeatable=False)
    assert caught.value.code == 50003


def test_a_writer_that_hangs_is_left_after_a_while(writer, monkeypatch) -> None:
    monkeypatch.setattr(forwarding, "_ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NotDoneError):
        send(Identity(host="127.0.0.1", port=silent.getsockname()[1]))
