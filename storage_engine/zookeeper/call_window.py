"""The operations of a session: kazoo has some of them, the rest wait for their turn.

Every call is finished exactly once, in the order of submission unless it fails.
"""

import functools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kazoo.interfaces import IAsyncResult

from storage_engine.core.ports import Clock, ZkCallback, ZkReply, ZkStatus
from storage_engine.zookeeper import replies

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 128
"""The most operations with kazoo. It wakes its thread with one byte per request through a socket
pair: some 280 of them fill it, and the loop would block."""
MAX_BACKLOG = 200_000
"""The most operations that wait: those of a controller that loads 100,000 partitions, twice."""


@dataclass(slots=True, kw_only=True, eq=False)
class PendingCall:
    """One operation. Compared by identity."""

    name: str
    path: str
    send: Callable[[], IAsyncResult]
    """Passes it to kazoo; returns kazoo's asynchronous result."""
    decode: Callable[[Any], ZkReply]
    on_reply: ZkCallback
    sent_monotonic_ms: int = 0
    done: bool = False


class CallWindow:
    """Used on the loop only."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        clock: Clock,
        on_answer: Callable[[int], None],
    ) -> None:
        """`on_answer(sent_monotonic_ms)` is called when the server has answered a call that was
        sent then."""
        self._post = post
        self._clock = clock
        self._on_answer = on_answer
        self._backlog: deque[PendingCall] = deque()
        self._in_flight: set[PendingCall] = set()

    @property
    def is_full(self) -> bool:
        return len(self._backlog) >= MAX_BACKLOG

    def submit(self, call: PendingCall) -> None:
        self._backlog.append(call)
        self._send_backlog()

    def send_now(self, call: PendingCall) -> None:
        """Send a call before those of the backlog."""
        call.sent_monotonic_ms = self._clock.monotonic_ms()
        try:
            result = call.send()
        except Exception:
            # Other calls come after it, and its caller waits for an answer.
            log.exception("zookeeper %s not sent path=%.200s", call.name, call.path)
            self.refuse(call)
        else:
            result.rawlink(functools.partial(self._on_result, call))

    def refuse(self, call: PendingCall, reply: ZkReply = replies.UNKNOWN) -> None:
        """Finish a call without having sent it, in the loop's next turn."""
        self._post(functools.partial(self._finish, call, reply))

    def refuse_backlog(self) -> None:
        """Refuse the calls that kazoo does not have yet."""
        for call in self._backlog:
            self.refuse(call)
        self._backlog.clear()

    def refuse_all(self) -> None:
        """Refuse all calls, also those that kazoo has."""
        for call in self._in_flight:
            self.refuse(call)
        self.refuse_backlog()

    def _send_backlog(self) -> None:
        while self._backlog and len(self._in_flight) < MAX_IN_FLIGHT:
            call = self._backlog.popleft()
            self._in_flight.add(call)
            self.send_now(call)

    def _on_result(self, call: PendingCall, result: IAsyncResult) -> None:
        error = result.exception
        answered = error is None or replies.is_answer(error)
        if answered:
            self._on_answer(call.sent_monotonic_ms)
        try:
            reply = call.decode(result.value) if error is None else replies.from_error(error)
        except Exception:
            log.exception("zookeeper %s: answer not read path=%.200s", call.name, call.path)
            reply = replies.UNKNOWN
        if error is not None and reply.status is ZkStatus.UNKNOWN and not call.done:
            # An answer without a status of its own is a mistake of this code.
            level = logging.ERROR if answered else logging.INFO
            log.log(
                level, "zookeeper %s unknown path=%.200s reason=%r", call.name, call.path, error
            )
        self._finish(call, reply)

    def _finish(self, call: PendingCall, reply: ZkReply) -> None:
        # kazoo may fail a request twice when it is being closed.
        if call.done:
            return
        call.done = True
        self._in_flight.discard(call)
        self._send_backlog()
        call.on_reply(reply)
