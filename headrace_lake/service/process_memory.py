"""Gives memory back to the system that a process of many threads would keep.

glibc has an arena for each thread, and Arrow a pool: both keep what was freed for the thread that
had it. Rows are read in one thread and freed in others, so that would be a multiple of what is in
use.
"""

import ctypes
import sys

import pyarrow as pa

from storage_engine.net.deadline import monotonic_ms

ARENAS = 2
INTERVAL_MS = 2_000
"""Between two times: a look through all arenas takes milliseconds."""

_M_ARENA_MAX = -8


class ProcessMemory:
    """For one thread; does nothing where there is no glibc."""

    def __init__(self) -> None:
        self._libc = _glibc()
        self._at_ms = 0
        if self._libc is not None:
            self._libc.mallopt(_M_ARENA_MAX, ARENAS)

    def give_back(self) -> None:
        """Give unused memory back, if it is time to."""
        now_ms = monotonic_ms()
        if now_ms < self._at_ms:
            return
        self._at_ms = now_ms + INTERVAL_MS
        pa.default_memory_pool().release_unused()
        if self._libc is not None:
            self._libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") else None
