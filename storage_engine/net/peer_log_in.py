"""This broker's own log-in by SASL over a connection to another broker.

    begin -> SaslHandshake -> token, answer, token, ... -> on_done(session lifetime)
                                                        \\-> on_failed(reason)

It runs before the first request, and again over the same connection before what was shown expires.
The steps of a mechanism take milliseconds (thousands of hashes), so they run beside the loop.
Source: KIP-43, KIP-152, KIP-368.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from storage_engine.core.errors import ErrorCode, HeadraceError
from storage_engine.core.security.sasl_client import SaslClient
from storage_engine.core.security.sasl_exchange import TOKENS_IN_REQUESTS
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.framing import (
    encode_request_frame,
    parse_response,
    read_correlation_id,
)
from storage_engine.protocol.messages import sasl_authenticate, sasl_handshake
from storage_engine.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from storage_engine.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

TIMEOUT_MS = 10_000
"""Of a whole log-in. The broker that is asked delays refusals, by 100 ms unless it is set."""

_CLIENT_ID = "headrace-broker"

MakeSaslClient = Callable[[], SaslClient]
"""One exchange for each log-in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogInEnds:
    """What becomes of a log-in. One of the last two is called, once, unless it is closed."""

    send: Callable[[list[Buffer]], None]
    on_done: Callable[[int], None]
    """Called with the time in ms for which it lasts; 0: for ever."""
    on_failed: Callable[[str], None]


class PeerLogIn:
    """One log-in."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, make: MakeSaslClient, ends: LogInEnds
    ) -> None:
        self._loop = loop
        self._client = make()
        self._ends = ends
        self._correlation_id = -1
        """Below those of requests, which begin at 1."""
        self._is_closed = False
        self._takes: Callable[[memoryview], None] | None = None
        """Who takes the answer that is expected now."""
        self._timer = loop.call_later(
            TIMEOUT_MS / 1000, self._fail, f"it was not done within {TIMEOUT_MS} ms"
        )

    def begin(self) -> None:
        version = TOKENS_IN_REQUESTS
        self._takes = self._take_handshake
        self._send(
            sasl_handshake.API, version, SaslHandshakeRequest(mechanism=self._client.mechanism)
        )

    def close(self) -> None:
        """The connection is gone: nothing is called any more."""
        self._is_closed = True
        self._timer.cancel()

    def received(self, frame: memoryview) -> None:
        """An answer that is none to an earlier request."""
        takes, self._takes = self._takes, None
        if self._is_closed:
            return
        try:
            if takes is None or read_correlation_id(frame) != self._correlation_id:
                self._fail("it sent an answer to no request")
            else:
                takes(frame)
        except HeadraceError as error:
            self._fail(f"it sent an answer that can't be decoded: {error}")

    def _send(self, spec: ApiSpec[Any, Any], version: int, request: object) -> None:
        self._correlation_id -= 1
        self._ends.send(
            encode_request_frame(spec, version, self._correlation_id, _CLIENT_ID, request)
        )

    def _take_handshake(self, frame: memoryview) -> None:
        version = TOKENS_IN_REQUESTS
        answer: SaslHandshakeResponse = parse_response(sasl_handshake.API, version, frame)
        if answer.error_code:
            self._fail(
                f"it does not take {self._client.mechanism}, but"
                f" {', '.join(answer.mechanisms) or 'no log-in'}"
            )
        else:
            self._respond(None)

    def _take_token(self, frame: memoryview) -> None:
        version = sasl_authenticate.API.max_version
        answer: SaslAuthenticateResponse = parse_response(sasl_authenticate.API, version, frame)
        if answer.error_code:
            code = ErrorCode.of(answer.error_code)
            self._fail(f"it refused {self._client.user!r}: {answer.error_message or code.meaning}")
        else:
            self._respond(answer.auth_bytes, answer.session_lifetime_ms)

    def _respond(self, challenge: bytes | None, session_lifetime_ms: int = 0) -> None:
        step = self._loop.run_in_executor(None, self._client.respond, challenge)
        step.add_done_callback(lambda done: self._on_response(done, session_lifetime_ms))

    def _on_response(self, done: asyncio.Future[bytes], session_lifetime_ms: int) -> None:
        if self._is_closed or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._fail(str(error) if isinstance(error, HeadraceError) else type(error).__name__)
        elif self._client.is_done:
            self.close()
            self._ends.on_done(session_lifetime_ms)
        else:
            self._takes = self._take_token
            token = SaslAuthenticateRequest(auth_bytes=done.result())
            self._send(sasl_authenticate.API, sasl_authenticate.API.max_version, token)

    def _fail(self, reason: str) -> None:
        if not self._is_closed:
            self.close()
            self._ends.on_failed(f"log-in by {self._client.mechanism} failed: {reason}")
