"""The log-in of one connection: its requests, answers and times.

    opened -> ApiVersions -> SaslHandshake -> tokens -> the listener's handlers get the frames
                                                        ... SaslHandshake: again, tokens
                                                        ... its time is over: only SaslHandshake

Before the log-in nothing else is read, frames are small, and the time is bounded; a log-in that
fails is answered after `connection.failed.authentication.delay.ms`, and then the client closes the
connection, or the broker does.
Source: KIP-43, KIP-152, KIP-306, KIP-368.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.ports import Clock, Scheduler, Timer
from storage_engine.core.security.sasl_client import OAUTHBEARER
from storage_engine.core.security.sasl_server import (
    TOKENS_IN_REQUESTS,
    SaslExchange,
    SaslRefusal,
    SaslState,
)
from storage_engine.net.client_log import ClientLog
from storage_engine.net.connection import Connection
from storage_engine.protocol.apis.registry import API_VERSIONS_KEY, name_of
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.apis.wire import INT32
from storage_engine.protocol.framing import RequestHeader, parse_request_header
from storage_engine.protocol.messages import sasl_authenticate, sasl_handshake
from storage_engine.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from storage_engine.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

log = ClientLog(__name__)

SMALL_FRAME_BYTES = 32 * 1024
"""The limit of requests and tokens before the log-in, except tokens of OAUTHBEARER, which have
`sasl.server.max.receive.size`: the frames of thousands of strangers are in memory."""

REFUSED_GRACE_MS = 1_000
"""The time for a refused client to close the connection. If the broker closed it together with the
answer, some clients would report only the lost connection."""

FIRST_REQUESTS_MAX = 4
"""The most ApiVersions before the handshake: clients ask once, or again in an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogInLimits:
    """The limits for a client that has not logged in yet."""

    token_max_bytes: int = 512 * 1024
    """`sasl.server.max.receive.size`."""
    timeout_ms: int = 30_000
    """From the first byte to the last token; also for each re-authentication."""
    failed_delay_ms: int = 100
    """`connection.failed.authentication.delay.ms`: the least duration of a failed log-in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogInParts:
    """The parts that the log-ins of a broker share."""

    scheduler: Scheduler
    clock: Clock
    limits: LogInLimits
    on_done: Callable[["SaslLogIn"], None]
    """Called after each log-in, also after a re-authentication."""


class SaslLogIn:
    """Handles a connection's frames, in place of the server's handlers, until it has logged in."""

    def __init__(self, connection: Connection, exchange: SaslExchange, parts: LogInParts) -> None:
        self.connection = connection
        self.started_ms = parts.clock.monotonic_ms()
        self._exchange = exchange
        self._parts = parts
        self._tokens_in_requests = True
        self._first_requests = 0
        self._timer: Timer | None = None
        """Ends a log-in that takes too long, or requires another when its time is over."""
        self._divert(SMALL_FRAME_BYTES)

    def lost(self) -> None:
        """The connection is closed: stop the timer."""
        self._set_timer(None)

    # Frames.

    def _take(self, frame: memoryview) -> None:
        exchange = self._exchange
        if exchange.state is SaslState.TOKENS and not self._tokens_in_requests:
            self._take_raw_token(bytes(frame))
            return
        try:
            header, body = parse_request_header(frame)
            if header.api_key == API_VERSIONS_KEY and exchange.state is SaslState.STARTING:
                self._take_api_versions(frame)
            elif header.api_key == sasl_handshake.API.key:
                request = sasl_handshake.API.decode_request(header.api_version, body)
                self.handshake(self._call(sasl_handshake.API, header), request)
            elif header.api_key == sasl_authenticate.API.key:
                token = sasl_authenticate.API.decode_request(header.api_version, body)
                self._authenticate(self._call(sasl_authenticate.API, header), token)
            else:
                self._close(f"{name_of(header.api_key)} came before the end of its log-in")
        except InvalidRequestError as failure:
            hint = "; is its security protocol that of this listener?"
            self._close(f"{failure}{hint if exchange.state is SaslState.STARTING else ''}")

    def _take_api_versions(self, frame: memoryview) -> None:
        self._first_requests += 1
        if self._first_requests > FIRST_REQUESTS_MAX:
            self._close("it asks for ApiVersions over and over and does not log in")
        else:
            self.connection.listener.handle(self.connection, frame)

    def _call(self, spec: ApiSpec[Req, Resp], header: RequestHeader) -> ApiCall[Resp]:
        connection = self.connection
        return ApiCall(
            spec,
            header.api_version,
            header.correlation_id,
            connection,
            connection.begin(),
            header.client_id or "",
        )

    def _take_raw_token(self, token: bytes) -> None:
        exchange = self.connection.begin()
        try:
            answer = self._exchange.token(token, now_ms=self._parts.clock.wall_ms())
        except SaslRefusal as refusal:
            # A raw token has no error answer: the connection is closed instead.
            self._refuse(refusal, self.connection.shut)
            return
        exchange.respond([INT32.pack(len(answer.token)) + answer.token])
        self._go_on(answer.session_lifetime_ms)

    # Requests.

    def handshake(
        self, call: ApiCall[SaslHandshakeResponse], request: SaslHandshakeRequest
    ) -> None:
        """Answer a handshake: the first one, or that of a re-authentication."""
        exchange = self._exchange
        try:
            exchange.handshake(request.mechanism)
        except SaslRefusal as refusal:
            response = SaslHandshakeResponse(
                error_code=refusal.code, mechanisms=exchange.mechanisms
            )
            self._refuse(refusal, partial(call.respond, response))
            return
        self._tokens_in_requests = call.version >= TOKENS_IN_REQUESTS
        is_long = request.mechanism == OAUTHBEARER
        largest = self._parts.limits.token_max_bytes
        self._divert(largest if is_long else min(largest, SMALL_FRAME_BYTES))
        call.respond(SaslHandshakeResponse(mechanisms=exchange.mechanisms))

    def _authenticate(
        self, call: ApiCall[SaslAuthenticateResponse], request: SaslAuthenticateRequest
    ) -> None:
        try:
            answer = self._exchange.token(request.auth_bytes, now_ms=self._parts.clock.wall_ms())
        except SaslRefusal as refusal:
            response = SaslAuthenticateResponse(error_code=refusal.code, error_message=str(refusal))
            self._refuse(refusal, partial(call.respond, response))
            return
        call.respond(
            SaslAuthenticateResponse(
                auth_bytes=answer.token, session_lifetime_ms=answer.session_lifetime_ms or 0
            )
        )
        self._go_on(answer.session_lifetime_ms)

    # After a token.

    def _go_on(self, session_lifetime_ms: int | None) -> None:
        """Continue after the answer to a token: the client may be logged in now."""
        exchange = self._exchange
        if exchange.state is not SaslState.AUTHENTICATED:
            return
        assert exchange.principal is not None
        self.connection.principal = exchange.principal
        self.connection.deliver_to_listener()
        if session_lifetime_ms is None:
            self._set_timer(None)
        else:
            self._set_timer(session_lifetime_ms, self._expire)
        self._parts.on_done(self)

    def _divert(self, frame_max_bytes: int) -> None:
        """Receive the client's frames from now on; the log-in's time is limited."""
        self.connection.divert(self._take, frame_max_bytes)
        if self._timer is None or self._exchange.is_again:
            self._set_timer(self._parts.limits.timeout_ms, self._time_out)

    def _time_out(self) -> None:
        self._close(f"it has not logged in within {self._parts.limits.timeout_ms} ms")

    def _expire(self) -> None:
        """The session's time is over: any frame but another handshake closes the connection."""
        self._timer = None
        self.connection.divert(self._take_expired, self.connection.frame_max_bytes)

    def _take_expired(self, frame: memoryview) -> None:
        if int.from_bytes(frame[:2], "big") == sasl_handshake.API.key:
            self._take(frame)
        else:
            self._close("the time of its log-in is over, and it did not log in again")

    def _refuse(self, refusal: SaslRefusal, answer: Callable[[], None]) -> None:
        """Answer after a delay, so that guesses take time; nothing more is read."""
        log.warning(
            self.connection.peer_host,
            "log-in refused connection=%s listener=%s mechanism=%s user=%s reason=%s",
            self.connection.name,
            self.connection.listener_name,
            self._exchange.mechanism or "?",
            self._exchange.claimed or "?",
            refusal.reason,
        )
        self.connection.hold()
        self._set_timer(None)

        def end() -> None:
            if not self.connection.closed:
                self.connection.divert(self._take_nothing_more, SMALL_FRAME_BYTES)
                answer()
                self._set_timer(REFUSED_GRACE_MS, self.connection.shut)
            self.connection.release()

        self._parts.scheduler.call_later(self._parts.limits.failed_delay_ms, end)

    def _take_nothing_more(self, _frame: memoryview) -> None:
        self.connection.shut()

    def _close(self, reason: str) -> None:
        self._set_timer(None)
        self.connection.close(reason)

    def _set_timer(self, delay_ms: int | None, work: Callable[[], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay_ms is not None and work is not None:
            self._timer = self._parts.scheduler.call_later(delay_ms, work)
