"""Memory for batches, used again when nobody sees the last batch in it any more.

Its one rule: memory is given again only after the array that was given, and every view of it, is
gone. The first write to a fresh page costs ten times what the write does, and the allocator gives
pieces of this size back to the system each time.
"""

import weakref
from collections import deque

import numpy as np

from storage_engine.protocol.records.varints import Bytes

LEAST_BYTES = 64 << 10
"""The allocator keeps smaller pieces itself."""

MOST_BYTES = 1 << 20

KEPT_BYTES = 4 << 20
"""Of each size, while no batch is in it."""


class BatchMemory:
    """Pieces whose sizes are powers of two. For any number of threads: a deque's own steps are
    atomic, and no lock is held when a view goes at any moment, as in a garbage collection."""

    def __init__(self) -> None:
        self._free: dict[int, deque[bytearray]] = {}
        size = LEAST_BYTES
        while size <= MOST_BYTES:
            self._free[size] = deque(maxlen=KEPT_BYTES // size)
            size *= 2

    def take(self, size: int) -> Bytes:
        """`size` bytes with anything in them."""
        if not LEAST_BYTES <= size <= MOST_BYTES:
            return np.empty(size, np.uint8)
        free = self._free[1 << (size - 1).bit_length()]
        try:
            piece = free.pop()
        except IndexError:
            piece = bytearray(1 << (size - 1).bit_length())
        # Views of this array keep it alive, since what it is made of is no array itself.
        given: Bytes = np.frombuffer(piece, np.uint8, size)
        weakref.finalize(given, free.append, piece).atexit = False
        return given

    def free_bytes(self) -> int:
        """What is kept for later."""
        return sum(size * len(free) for size, free in self._free.items())
