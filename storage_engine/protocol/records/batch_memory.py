"""Memory for batches, reused when the last batch in it has no user any more.

Memory is given out again only after the array that was given out, and every view of it, is gone.
The first write to a fresh page costs ten times the write itself, and the allocator gives pieces of
this size back to the system each time.
"""

import weakref
from collections import deque

import numpy as np

from storage_engine.protocol.records.varints import Bytes

LEAST_BYTES = 64 << 10
"""The allocator keeps smaller pieces itself."""

MOST_BYTES = 1 << 20

KEPT_BYTES = 4 << 20
"""The most bytes of each size that are kept while no batch uses them."""


class BatchMemory:
    """Pieces whose sizes are powers of two. Any number of threads may use it: a deque's single
    steps are atomic, and no lock is held when a view is freed at any moment, as in a garbage
    collection."""

    def __init__(self) -> None:
        self._free: dict[int, deque[bytearray]] = {}
        size = LEAST_BYTES
        while size <= MOST_BYTES:
            self._free[size] = deque(maxlen=KEPT_BYTES // size)
            size *= 2

    def take(self, size: int) -> Bytes:
        """Return `size` bytes with arbitrary content."""
        if not LEAST_BYTES <= size <= MOST_BYTES:
            return np.empty(size, np.uint8)
        free = self._free[1 << (size - 1).bit_length()]
        try:
            piece = free.pop()
        except IndexError:
            piece = bytearray(1 << (size - 1).bit_length())
        # Views of this array keep it alive, since it is made of an object that is no array itself.
        given: Bytes = np.frombuffer(piece, np.uint8, size)
        weakref.finalize(given, free.append, piece).atexit = False
        return given

    def free_bytes(self) -> int:
        """Return the number of bytes that are kept for later."""
        return sum(size * len(free) for size, free in self._free.items())
