"""The pieces of responses, and how they are written to a connection's socket.

Up to SMALL_WRITE_BYTES are joined and sent at once. More goes piece by piece, without a copy while
the transport has nothing of its own to send. Source: R-NET1.
"""

import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from storage_engine.core.errors import LogStorageError
from storage_engine.core.ports import LogSlice
from storage_engine.net.limits import (
    IOV_BUFFERS,
    SMALL_WRITE_BYTES,
    TLS_WRITE_BYTES,
    TURN_WRITE_BYTES,
    WRITE_HIGH_WATER_BYTES,
    WRITE_PIECE_BYTES,
)

if TYPE_CHECKING:
    # Clients have their own loop, and asyncio takes longer to import than all of theirs.
    import asyncio

Buffer = bytes | bytearray | memoryview
Piece = Buffer | LogSlice
"""A piece of a response."""

ResponseBuffers = Sequence[Piece]


def joined(pieces: ResponseBuffers) -> bytes:
    """Joins small pieces into one bytes object."""
    return b"".join([p if type(p) is bytes else as_buffer(p) for p in pieces])


def as_buffer(piece: Piece) -> Buffer:
    """The bytes of a piece, without a copy."""
    view: Callable[[], memoryview] | None = getattr(piece, "view", None)
    if view is None:
        assert isinstance(piece, bytes | bytearray | memoryview)
        return piece
    return view()


class PieceRest:
    """The unsent part of a piece, whose first `skip` bytes are sent. Each send takes a new view of
    a log's slice: reading a view that was kept while the file was truncated would end the process.
    """

    __slots__ = ("_piece", "_skip")

    def __init__(self, piece: Piece, skip: int) -> None:
        self._piece: Piece = piece
        self._skip = skip

    @classmethod
    def of(cls, piece: Piece, skip: int) -> "PieceRest":
        """The rest of `piece`, which may be a rest itself."""
        if isinstance(piece, cls):
            return cls(piece._piece, piece._skip + skip)
        return cls(piece, skip)

    def __len__(self) -> int:
        return len(self._piece) - self._skip

    def view(self) -> memoryview:
        return memoryview(as_buffer(self._piece))[self._skip :]

    def copy(self, size: int) -> Buffer:
        """A copy of the first `size` bytes that are unsent."""
        read: Callable[[int, int], bytes] | None = getattr(self._piece, "read_part", None)
        if read is not None:
            return read(self._skip, size)
        return self.view()[:size]


def gather(pieces: list[Piece]) -> tuple[list[Buffer], int, list[Piece]]:
    """Views of the first WRITE_PIECE_BYTES, the number of pieces they take, and what is left of
    the last one."""
    views: list[Buffer] = []
    room = WRITE_PIECE_BYTES
    for piece in pieces[:IOV_BUFFERS]:
        view = as_buffer(piece)
        if len(view) > room:
            views.append(memoryview(view)[:room])
            return views, len(views), [PieceRest.of(piece, room)]
        views.append(view)
        room -= len(view)
        if not room:
            break
    return views, len(views), []


def after(views: list[Buffer], written: int) -> list[Buffer]:
    """The rest of `views` after their first `written` bytes."""
    for index, view in enumerate(views):
        if written < len(view):
            return [memoryview(view)[written:], *views[index + 1 :]]
        written -= len(view)
    return []


class ResponseWriter:
    """Sends `pieces`, which the connection appends to, in their order."""

    __slots__ = ("_fd", "_transport", "is_paused", "pieces")

    def __init__(self, transport: "asyncio.Transport", fd: int) -> None:
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self._transport = transport
        self._fd = fd
        self.pieces: list[Piece] = []
        """Not sent yet."""
        self.is_paused = False
        """The transport has more than enough to send; it says when and for how long."""

    def flush(self) -> None:
        """Send as much as the transport takes now, and one turn may: see `has_more`.

        HeadraceError when a slice of a log can't be read any more. Its size may be announced
        already, so no more may be sent.
        """
        pieces = self.pieces
        if not pieces or not self._may_write():
            return
        if sum(map(len, pieces)) <= SMALL_WRITE_BYTES:
            first = pieces[0]
            if isinstance(first, PieceRest):
                # The rest of a mapped slice: only a system call may read that.
                pieces[0] = first = first.copy(len(first))
            data = first if len(pieces) == 1 and type(first) is bytes else joined(pieces)
            pieces.clear()
            self._transport.write(data)
            return
        left = TURN_WRITE_BYTES
        while left > 0 and pieces and self._may_write():
            left -= self._write_some()

    @property
    def has_more(self) -> bool:
        """Whether the next turn of the loop is to send what this one was not to."""
        return bool(self.pieces) and self._may_write()

    def _may_write(self) -> bool:
        return not self.is_paused and not self._transport.is_closing()

    def _write_some(self) -> int:
        """Offer up to WRITE_PIECE_BYTES to the socket, without copying them; the bytes offered."""
        views, count, rest = gather(self.pieces)
        offered = sum(map(len, views))
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
            if written == offered:
                return offered
            views = after(views, written)
        for view in views:
            self._transport.write(view)
        return offered


class EncryptedWriter(ResponseWriter):
    """The writer of a TLS connection. Bytes of a log are copied from its file, not read where it is
    mapped: the library would end the process at a page that the disk can't give, where a system
    call returns an error."""

    __slots__ = ()

    def _write_some(self) -> int:
        """Encrypt up to TLS_WRITE_BYTES, and give them to the transport; the bytes taken."""
        chunk: list[Buffer] = []
        room = TLS_WRITE_BYTES
        pieces = self.pieces
        while pieces and room:
            rest = PieceRest.of(pieces[0], 0)
            taken = min(room, len(rest))
            chunk.append(rest.copy(taken))
            room -= taken
            if taken < len(rest):
                pieces[0] = PieceRest.of(rest, taken)
            else:
                del pieces[0]
        self._transport.write(b"".join(chunk))
        return TLS_WRITE_BYTES - room
