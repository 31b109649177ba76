"""What is answered on one connection and not sent yet, and how it gets into the socket.

Up to SMALL_WRITE_BYTES are joined and sent at once. More goes piece by piece, without a copy while
the transport has nothing of its own to send. Source: R-NET1.
"""

import asyncio
import errno
import os

from storage_engine.core.errors import LogStorageError
from storage_engine.net.buffers import Piece, after, gather, joined
from storage_engine.net.limits import SMALL_WRITE_BYTES, WRITE_HIGH_WATER_BYTES


class ResponseWriter:
    """Sends `pieces`, which the connection appends to, in their order."""

    __slots__ = ("_fd", "_transport", "is_paused", "pieces")

    def __init__(self, transport: asyncio.Transport, fd: int) -> None:
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self._transport = transport
        self._fd = fd
        self.pieces: list[Piece] = []
        """Not sent yet."""
        self.is_paused = False
        """The transport has more than enough to send; it says when and for how long."""

    def flush(self) -> None:
        """Send as much as the transport takes now.

        HeadraceError when a slice of a log can't be read any more. Its size may be announced
        already, so no more may be sent.
        """
        pieces = self.pieces
        if not pieces or not self._may_write():
            return
        if sum(map(len, pieces)) <= SMALL_WRITE_BYTES:
            data = joined(pieces)
            pieces.clear()
            self._transport.write(data)
            return
        while pieces and self._may_write():
            self._write_some()

    def _may_write(self) -> bool:
        return not self.is_paused and not self._transport.is_closing()

    def _write_some(self) -> None:
        """Offer up to WRITE_PIECE_BYTES to the socket, without copying them."""
        views, count, rest = gather(self.pieces)
        self.pieces[:count] = rest
        if self._transport.get_write_buffer_size() == 0:
            try:
                written = os.writev(self._fd, views)
            except BlockingIOError:
                written = 0
            except OSError as error:
                if error.errno == errno.EFAULT:
                    # A page of a mapped segment that its disk can't give. Nothing here may touch
                    # it: the transport would copy it, which ends the process (SIGBUS). The client
                    # asks again, and the read on a thread then learns what the disk says.
                    raise LogStorageError(
                        "bytes of a log can't be read as they are sent"
                    ) from error
                # The transport meets the same error and reports it as connection_lost.
                written = 0
            views = after(views, written)
        for view in views:
            self._transport.write(view)
