"""Ends another thread's wait for connections. A wake is kept until it is cleared."""

import os


class Waker:
    """`wait_readable` takes it beside connections."""

    __slots__ = ("_descriptor",)

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    @property
    def has_buffered(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._descriptor

    def wake(self) -> None:
        """May be called from any thread."""
        os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        """Forget all wakes so far."""
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return

    def close(self) -> None:
        os.close(self._descriptor)
