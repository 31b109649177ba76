"""Waiting for many replies at once."""

from collections.abc import Callable


class Gather:
    """Calls back once, when every one of a number of replies has come."""

    __slots__ = ("_done", "_open")

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._open = count
        self._done = done
        if count == 0:
            done()

    def one(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._done()
