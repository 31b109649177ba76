"""Lets TLS clients in when their first message is there, and only some in each turn of the loop.

    accepted -> waits for a record's head, then for all of it -> its turn -> the handshake
             -> no TLS, gone, or silent for too long          -> closed

To answer a first message the server signs, which takes up to some milliseconds: a thousand that
come at once must not be one turn. Whoever says nothing has cost a descriptor and a timer. The bytes
stay in the socket, which becomes readable when enough of them are there (SO_RCVLOWAT). Source: RFC
8446, section 5.1.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from storage_engine.net.limits import HANDSHAKE_TIMEOUT_MS

_HEAD_BYTES = 5
_HANDSHAKE = 22
"""The type of a record that holds a first message."""
_RECORD_MAX_BYTES = 2**14
"""Of what a record holds when it is not encrypted."""


class HelloGate:
    """The clients of one listener that have not begun their handshake."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        per_turn: Callable[[], int],
        admit: Callable[[socket.socket], None],
        refuse: Callable[[socket.socket, str], None],
    ) -> None:
        """`admit` begins a handshake; `refuse` gets the reason. Either owns the socket from then
        on."""
        self._loop = loop
        self._per_turn = per_turn
        self._admit = admit
        self._refuse = refuse
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._ready: deque[socket.socket] = deque()
        self._is_admitting = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._ready)

    def wait(self, sock: socket.socket) -> None:
        """Let it in when it has said what it wants."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _HEAD_BYTES)
        self._waiting[sock] = self._loop.call_later(
            HANDSHAKE_TIMEOUT_MS / 1000, self._give_up, sock, "it was silent for too long"
        )
        self._loop.add_reader(sock.fileno(), self._look, sock)

    def close(self) -> None:
        """Let nobody in any more."""
        for sock in list(self._waiting):
            self._give_up(sock, "the broker stops")
        while self._ready:
            self._refuse(self._ready.popleft(), "the broker stops")

    def _look(self, sock: socket.socket) -> None:
        """There are as many bytes as were waited for, or the client is gone."""
        try:
            head = sock.recv(_HEAD_BYTES, socket.MSG_PEEK)
            if len(head) < _HEAD_BYTES:
                self._give_up(sock, "it has gone before it said anything")
                return
            size = int.from_bytes(head[3:], "big")
            if head[0] != _HANDSHAKE or head[1] != 3 or not 0 < size <= _RECORD_MAX_BYTES:
                self._give_up(sock, "it does not speak TLS: is its security.protocol right?")
                return
            wanted = _HEAD_BYTES + size
            if len(sock.recv(wanted, socket.MSG_PEEK)) < wanted:
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) >= wanted:
                    self._give_up(sock, "it has gone before its first message was there")
                else:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
                return
        except BlockingIOError:
            return
        except OSError as error:
            self._give_up(sock, error.strerror or str(error))
            return
        self._forget(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self._ready.append(sock)
        self._admit_soon()

    def _admit_soon(self) -> None:
        if not self._is_admitting:
            self._is_admitting = True
            self._loop.call_soon(self._admit_some)

    def _admit_some(self) -> None:
        self._is_admitting = False
        for _ in range(min(self._per_turn(), len(self._ready))):
            self._admit(self._ready.popleft())
        if self._ready:
            self._admit_soon()

    def _give_up(self, sock: socket.socket, reason: str) -> None:
        self._forget(sock)
        self._refuse(sock, reason)

    def _forget(self, sock: socket.socket) -> None:
        self._waiting.pop(sock).cancel()
        self._loop.remove_reader(sock.fileno())
