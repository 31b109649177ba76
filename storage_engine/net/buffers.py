"""Memory for large frames, used again once nobody looks at it any more.

Rule: a buffer is handed out again only when no view of it is left, which its reference count shows;
so a frame that somebody still holds is never overwritten.
"""

import mmap
import sys
from collections.abc import Callable, Sequence

from storage_engine.core.ports import LogSlice
from storage_engine.net.limits import IOV_BUFFERS, POOLED_BYTES, WRITE_PIECE_BYTES

Buffer = bytes | bytearray | memoryview
Piece = Buffer | LogSlice
"""A piece of a response."""

ResponseBuffers = Sequence[Piece]

_ROUND_BYTES = 64 * 1024


def _references(buffers: list[mmap.mmap], index: int) -> int:
    return sys.getrefcount(buffers[index])


_FREE_REFERENCES = _references([mmap.mmap(-1, 1)], 0)
"""The result of `_references` for a buffer that only its list knows; measured, since it is not the
same in every Python."""


class BufferPool:
    """Anonymous memory for frames above EXACT_RECEIVE_BYTES.

    Pages are taken from the system as bytes arrive: a frame that only announces its size costs
    nothing.
    """

    __slots__ = ("_buffers", "_pooled_bytes", "_pooled_max_bytes")

    def __init__(self, pooled_max_bytes: int = POOLED_BYTES) -> None:
        self._buffers: list[mmap.mmap] = []
        self._pooled_bytes = 0
        self._pooled_max_bytes = pooled_max_bytes

    def take(self, size: int) -> memoryview:
        """A writable view of exactly `size` bytes, with arbitrary contents."""
        buffers = self._buffers
        for index in range(len(buffers)):
            if len(buffers[index]) >= size and _references(buffers, index) == _FREE_REFERENCES:
                return memoryview(buffers[index])[:size]
        capacity = max(_ROUND_BYTES, 1 << (size - 1).bit_length())
        if self._pooled_bytes + capacity > self._pooled_max_bytes:
            self._drop_free()
        if self._pooled_bytes + capacity > self._pooled_max_bytes:
            return memoryview(mmap.mmap(-1, size))
        fresh = mmap.mmap(-1, capacity)
        self._buffers.append(fresh)
        self._pooled_bytes += capacity
        return memoryview(fresh)[:size]

    def _drop_free(self) -> None:
        """Give back what is free: it was too small for the frame at hand."""
        kept = [
            index
            for index in range(len(self._buffers))
            if _references(self._buffers, index) != _FREE_REFERENCES
        ]
        self._buffers = [self._buffers[index] for index in kept]
        self._pooled_bytes = sum(map(len, self._buffers))


def joined(pieces: ResponseBuffers) -> bytes:
    """Joins small pieces into one bytes object."""
    try:
        return b"".join(pieces)  # type: ignore[arg-type]
    except TypeError:
        return b"".join([as_buffer(piece) for piece in pieces])


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

    A slice of a log is looked at anew for each send: a view that is kept while the file is
    truncated would end the process when it is read.
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
