"""Accepts connections from listening sockets. Connections that it can't take wait in the system's
queue, and cost nothing meanwhile.

The servers of the event loops do not guarantee this: asyncio's tries a thousand times in a row and
writes a trace for each when the process is out of descriptors, and uvloop's may stop listening for
good. Source: R-NET1.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from storage_engine.core.system_errors import Reach, reach_of_socket_error
from storage_engine.net.limits import (
    ACCEPT_PAUSE_MS,
    ACCEPTS_PER_TURN,
    LISTEN_BACKLOG,
    LOG_AGAIN_MS,
    RATE_WAIT_MAX_MS,
)

if TYPE_CHECKING:
    from storage_engine.net.serving import AcceptRate

log = logging.getLogger(__name__)


class Acceptor:
    """Listens on the sockets that a server of the loop has bound, in its stead."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bound: asyncio.Server,
        take: Callable[[socket.socket], None],
        rate: "AcceptRate | None" = None,
    ) -> None:
        """`bound` was made with `start_serving=False`; it keeps its sockets. `take` gets each
        connection, which does not block, and owns it."""
        self._loop = loop
        self._take = take
        self._rate = rate
        self._sockets: list[socket.socket] = []
        self._resuming: asyncio.TimerHandle | None = None
        self._may_log_at: dict[str, float] = {}
        """Reason -> time of the loop."""
        for each in bound.sockets:
            # Of our own, since the loops forbid watching a socket that they look after.
            listener = socket.socket(fileno=os.dup(each.fileno()))
            listener.setblocking(False)
            listener.listen(LISTEN_BACKLOG)
            self._sockets.append(listener)
        self._resume()

    def close(self) -> None:
        """Accepts no more connections."""
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        for listener in self._sockets:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        self._sockets = []

    def _resume(self) -> None:
        self._resuming = None
        for listener in self._sockets:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            wait_ms = 0 if self._rate is None else self._rate.wait_ms()
            if wait_ms:
                self._wait_for_the_rate(wait_ms)
                return
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if reach_of_socket_error(error) is Reach.CONNECTION:
                    # That client has gone again.
                    continue
                self._pause(error)
                return
            if self._rate is not None:
                self._rate.count()
            connection.setblocking(False)
            self._take(connection)

    def _wait_for_the_rate(self, wait_ms: int) -> None:
        self._stop_for(min(wait_ms, RATE_WAIT_MAX_MS))
        if self._may_log("rate"):
            log.warning("new connections wait: max.connection.creation.rate is used up")

    def _pause(self, error: OSError) -> None:
        """Stops accepting connections until descriptors are free."""
        self._stop_for(ACCEPT_PAUSE_MS)
        if self._may_log("error"):
            log.error(
                "new connections wait, they can't be accepted: %s; raise the limit of open files"
                " (ulimit -n), or lower max.connections",
                error.strerror or error,
            )

    def _stop_for(self, wait_ms: int) -> None:
        if self._resuming is not None:
            return
        for listener in self._sockets:
            self._loop.remove_reader(listener.fileno())
        self._resuming = self._loop.call_later(wait_ms / 1000, self._resume)

    def _may_log(self, reason: str) -> bool:
        """Whether it is time for another line about connections that wait for this reason."""
        now = self._loop.time()
        if now < self._may_log_at.get(reason, now):
            return False
        self._may_log_at[reason] = now + LOG_AGAIN_MS / 1000
        return True
