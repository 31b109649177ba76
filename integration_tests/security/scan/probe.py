"""A client that sends one request and looks at what comes back, byte for byte."""

import contextlib
import socket
from typing import Any, NamedTuple

from storage_engine.protocol.apis.registry import spec_for
from storage_engine.protocol.framing import encode_request_frame, parse_response
from storage_engine.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from storage_engine.protocol.messages.sasl_handshake import SaslHandshakeRequest

ANSWER_S = 20.0
_HANDSHAKE, _AUTHENTICATE = 17, 36


class Answer(NamedTuple):
    """What a broker has answered."""

    message: Any
    raw: bytes


class Probe:
    """A connection to a broker."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=ANSWER_S)

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def log_in(self, user: str, password: str) -> None:
        self._send(*log_in_frames(user, password))
        for key, version in ((_HANDSHAKE, 1), (_AUTHENTICATE, 1)):
            answer = self._receive(key, version)
            assert answer is not None and not answer.message.error_code, answer

    def ask(self, key: int, version: int, request: Any, *, after: bytes = b"") -> Answer | None:
        """The answer; None when the connection is closed instead. `after`: sent before it, in the
        same bytes."""
        try:
            self._send(after, frame(key, version, request))
            return self._receive(key, version)
        except (ConnectionError, BrokenPipeError):
            return None

    def close(self) -> None:
        self._socket.close()

    def bytes_until_closed(self, *frames: bytes) -> bytes:
        """All that a broker sends that closes the connection then."""
        received = b""
        with contextlib.suppress(ConnectionError):
            self._send(*frames)
            while some := self._socket.recv(65_536):
                received += some
        return received

    def _send(self, *frames: bytes) -> None:
        self._socket.sendall(b"".join(frames))

    def _receive(self, key: int, version: int) -> Answer | None:
        size = self._exactly(4)
        if size is None:
            return None
        raw = self._exactly(int.from_bytes(size))
        if raw is None:
            return None
        return Answer(parse_response(spec_for(key), version, memoryview(raw)), raw)

    def _exactly(self, count: int) -> bytes | None:
        received = b""
        while len(received) < count:
            some = self._socket.recv(count - len(received))
            if not some:
                return None
            received += some
        return received


def frame(key: int, version: int, request: Any, *, number: int = 1) -> bytes:
    pieces = encode_request_frame(spec_for(key), version, number, "scan", request)
    return b"".join(map(bytes, pieces))


def log_in_frames(user: str, password: str) -> tuple[bytes, bytes]:
    token = f"\0{user}\0{password}".encode()
    return (
        frame(_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")),
        frame(_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=token)),
    )
