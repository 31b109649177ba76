"""HTTP connections that nobody can hold without using them.

uvicorn waits for ever for the rest of a request, and for a client that does not read its answer.
Here both have a limit, from the first byte to the last, so that a byte now and then buys no time.
When all places are taken, the connection that has waited longest for a request is closed.

    open ──► waits for the rest of a request ──► is answered ──► idle (uvicorn's own limit) ──► …
                 REQUEST_TIMEOUT_S, then 408        UNREAD_TIMEOUT_S for a client that does not read

Source: R-CON3.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_TIMEOUT_S = 20.0
"""The limit from a request's first byte, or the opening of the connection, to its last byte: 4 MiB
take that long at 2 Mbit/s."""
UNREAD_TIMEOUT_S = 30.0
"""The time in which a client must read some of the bytes that wait for it."""

_TOO_SLOW_TEXT = b"the request took too long to come"
_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_TOO_SLOW_TEXT), _TOO_SLOW_TEXT)
)


class BoundedProtocol(H11Protocol):
    """One connection of a client."""

    request_timeout_s = REQUEST_TIMEOUT_S
    unread_timeout_s = UNREAD_TIMEOUT_S

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._whole_by: asyncio.TimerHandle | None = None
        self._read_by: asyncio.TimerHandle | None = None
        self._waits_since_s: float | None = None
        """Since when it waits for a request or its rest; None: it answers a whole request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_waiting()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._end_waiting()
        self._end_unread()

    def data_received(self, data: bytes) -> None:
        if self._waits_since_s is None:
            self._begin_waiting()
        elif self._whole_by is None:
            self._limit_request()
        super().data_received(data)
        self._note_state()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_state()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._read_by is None:
            self._limit_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_unread()

    def _note_state(self) -> None:
        """Note, after each event, whether a whole request is unanswered, or one is waited for."""
        theirs = self.conn.their_state
        if theirs is h11.SEND_BODY:
            return
        if theirs is h11.IDLE:
            if self.timeout_keep_alive_task is not None:
                # Idle, with uvicorn's limit; it may be closed for others.
                self._end_waiting()
                self._waits_since_s = self.loop.time()
            return
        self._end_waiting()

    def _begin_waiting(self) -> None:
        self._waits_since_s = self.loop.time()
        self._limit_request()

    def _limit_request(self) -> None:
        if self._whole_by is None:
            self._whole_by = self.loop.call_later(self.request_timeout_s, self._too_slow)

    def _end_waiting(self) -> None:
        self._waits_since_s = None
        if self._whole_by is not None:
            self._whole_by.cancel()
            self._whole_by = None

    def _limit_unread(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._read_by = self.loop.call_later(self.unread_timeout_s, self._still_unread, left)

    def _still_unread(self, left_before: int) -> None:
        if self.transport.get_write_buffer_size() < left_before:
            self._limit_unread()
        else:
            self.transport.abort()

    def _end_unread(self) -> None:
        if self._read_by is not None:
            self._read_by.cancel()
            self._read_by = None

    def _too_slow(self) -> None:
        """Close, after a 408 if no answer has begun. The request's handler sees a disconnect."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and self.conn.their_state in (
            h11.IDLE,
            h11.SEND_BODY,
        ):
            self.transport.write(_TOO_SLOW)
        self.transport.close()

    def _make_room(self) -> None:
        waiting = [
            (each._waits_since_s, place, each)
            for place, each in enumerate(self.connections)
            if isinstance(each, BoundedProtocol) and each is not self
            if each._waits_since_s is not None
        ]
        if waiting:
            oldest = min(waiting)[2]
            self.connections.discard(oldest)
            oldest.transport.abort()
