"""Descriptors that a client's loop waits for beside its connections.

It has what `LocalProcesses` asks of an event loop, and what a `ClientLoop` asks of its work. All
calls are in the loop's thread.
"""

import select
from collections.abc import Callable, Iterable


class _Watched:
    """A descriptor, as `wait_readable` takes it."""

    __slots__ = ("_descriptor", "callback")

    has_buffered = False

    def __init__(self, descriptor: int, callback: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self.callback = callback

    def fileno(self) -> int:
        return self._descriptor


class WatchedDescriptors:
    """Calls back in the turn after a descriptor has become readable."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}

    def add_reader(self, descriptor: int, callback: Callable[[], None], /) -> None:
        self._watched[descriptor] = _Watched(descriptor, callback)

    def remove_reader(self, descriptor: int, /) -> bool:
        return self._watched.pop(descriptor, None) is not None

    def is_closed(self) -> bool:
        return False

    def turn(self) -> None:
        """Call back for all that are readable now."""
        if not self._watched:
            return
        poller = select.poll()
        for descriptor in self._watched:
            poller.register(descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(0):
            # A callback may have removed others.
            if (watched := self._watched.get(descriptor)) is not None:
                watched.callback()

    def due_in_ms(self, now_ms: int) -> int | None:
        return None

    def sockets(self) -> Iterable[_Watched]:
        return list(self._watched.values())
