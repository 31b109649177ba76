"""This broker's own log-in by SASL over a connection to another broker.

    begin -> request, answer, request, ... -> on_done(session lifetime)
                                           \\-> on_failed(reason)

It runs before the first request, and again over the same connection before what was shown expires.
Its steps run beside the loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from storage_engine.core.errors import HeadraceError
from storage_engine.core.security.sasl_client import SaslClient
from storage_engine.net.sasl_log_in import (
    Answer,
    Asked,
    LogInRequest,
    LogInSteps,
    failed_log_in,
    log_in_steps,
)
from storage_engine.protocol.apis.spec import AnyApi, Buffer
from storage_engine.protocol.framing import (
    encode_request_frame,
    parse_response,
    read_correlation_id,
)

TIMEOUT_MS = 10_000
"""The timeout of a whole log-in. Brokers delay refusals, by 100 ms unless configured."""

_CLIENT_ID = "headrace-broker"

MakeSaslClient = Callable[[], SaslClient]
"""Makes the client of one SASL exchange; called for each log-in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogInEnds:
    """The callbacks of a log-in. `on_done` or `on_failed` is called once, unless it is closed."""

    send: Callable[[list[Buffer]], None]
    on_done: Callable[[int], None]
    """Called with the time in ms for which it lasts; 0: for ever."""
    on_failed: Callable[[str], None]


class PeerLogIn:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, make: MakeSaslClient, ends: LogInEnds
    ) -> None:
        self._loop = loop
        self._client = make()
        self._steps = log_in_steps(self._client)
        self._ends = ends
        self._correlation_id = -1
        """Negative: requests' correlation ids begin at 1."""
        self._is_closed = False
        self._asked: AnyApi | None = None
        """The API whose answer is expected; None while no answer is."""
        self._timer = loop.call_later(
            TIMEOUT_MS / 1000, self._fail, f"it was not done within {TIMEOUT_MS} ms"
        )

    def begin(self) -> None:
        self._ask(*next(self._steps))

    def close(self) -> None:
        """Call no callback any more, because the connection is gone."""
        self._is_closed = True
        self._timer.cancel()

    def received(self, frame: memoryview) -> None:
        """Handle an answer that belongs to no earlier request."""
        asked, self._asked = self._asked, None
        if self._is_closed:
            return
        try:
            if asked is None or read_correlation_id(frame) != self._correlation_id:
                self._fail("it sent an answer to no request")
                return
            answer = parse_response(asked, asked.max_version, frame)
        except HeadraceError as error:
            self._fail(f"it sent an answer that can't be decoded: {error}")
            return
        step = self._loop.run_in_executor(None, _next_step, self._steps, answer)
        step.add_done_callback(self._on_step)

    def _ask(self, api: AnyApi, request: LogInRequest) -> None:
        self._asked = api
        self._correlation_id -= 1
        self._ends.send(
            encode_request_frame(api, api.max_version, self._correlation_id, _CLIENT_ID, request)
        )

    def _on_step(self, done: asyncio.Future[Asked | int]) -> None:
        if self._is_closed or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._fail(str(error) if isinstance(error, HeadraceError) else type(error).__name__)
        elif isinstance(step := done.result(), int):
            self.close()
            self._ends.on_done(step)
        else:
            self._ask(*step)

    def _fail(self, reason: str) -> None:
        if not self._is_closed:
            self.close()
            client = self._client
            self._ends.on_failed(failed_log_in(client.user, client.mechanism, reason))


def _next_step(steps: LogInSteps, answer: Answer) -> Asked | int:
    """The next request, or at the end the time for which the log-in is valid, in ms."""
    try:
        return steps.send(answer)
    except StopIteration as end:
        return int(end.value)
