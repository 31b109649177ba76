"""Memory for large frames, reused when no view of it is left.

A buffer is handed out again only when no view of it is left, which its reference count shows; so a
frame that somebody still holds is never overwritten.
"""

import mmap
import sys

from storage_engine.net.limits import POOLED_BYTES

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
        """Frees unused buffers, which were too small for the present frame."""
        kept = [
            index
            for index in range(len(self._buffers))
            if _references(self._buffers, index) != _FREE_REFERENCES
        ]
        self._buffers = [self._buffers[index] for index in kept]
        self._pooled_bytes = sum(map(len, self._buffers))
