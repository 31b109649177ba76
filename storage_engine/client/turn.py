"""Lets one call at a time use a client that has connections, and closes it when that is possible.

A call of another thread waits for its turn, or fails with one line where the client is for one
thread. So does a call in a signal handler that has interrupted another one, and any in the child of
a fork, where the connections are the parent's. `end` is always possible: a call at work carries it
out.
"""

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from storage_engine.core.errors import HeadraceError

_END_S = 10.0
"""How long `end` waits for a call of another thread; after that the call ends the client."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ClientInUseError(HeadraceError):
    """A call that can't be made while another one is at work."""


class Turn:
    """The turns of one client: a `with` block around each of its calls."""

    def __init__(self, client: str, end: Callable[[bool], None], *, waits: bool = True) -> None:
        """`end` closes everything; its argument says whether an error has ended the call that
        carries it out. `waits`: calls of other threads wait for their turn."""
        self._client = client
        self._end = end
        self._waits = waits
        self._process = os.getpid()
        self._lock = threading.RLock()
        # The nested calls of the thread that has the lock.
        self._calls = 0
        self._lent = False
        self.is_ending = False
        """Whether the call at work should come to its end: the client is closed then."""
        self._finishing = False
        self._ended = False

    def __enter__(self) -> None:
        self.check()
        if not self._lock.acquire(blocking=self._waits):
            raise ClientInUseError(
                f"the {self._client} is in use by another thread: it is for one thread, give each "
                "one of its own"
            )
        if self._calls and not self._lent:
            self._lock.release()
            raise ClientInUseError(
                f"the {self._client} is at work: a signal handler that interrupts it can only "
                "close it; let it set a flag that your loop checks"
            )
        if not self._calls and self.is_ending:
            self._finish(after_error=False)
        if self._ended:
            self._lock.release()
            self.check()
        self._calls += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._calls -= 1
        try:
            if not self._calls and self.is_ending:
                self._finish(after_error=kind is not None)
        finally:
            self._lock.release()

    def check(self) -> None:
        """Raise the error of a client that is closed, or was made before a fork."""
        if self._process != os.getpid():
            raise HeadraceError(
                f"the {self._client} was made before a fork; make one in each process"
            )
        if self._ended or (self.is_ending and self._calls and not self._finishing):
            raise HeadraceError(f"the {self._client} is closed")

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Let user code that runs within a call use the client."""
        before, self._lent = self._lent, True
        try:
            yield
        finally:
            self._lent = before

    def end(self) -> None:
        """Close the client: now; or where this is a handler, or a thread that has waited long, by
        the call that is at work. A second time, and in the child of a fork, it does nothing."""
        if self._ended or self._process != os.getpid():
            return
        self.is_ending = True
        if not self._lock.acquire(timeout=_END_S):
            return
        try:
            if not self._calls:
                self._finish(after_error=False)
        finally:
            self._lock.release()

    def end_after_error(self) -> None:
        """Like `end`, where an error has left the block that uses the client."""
        if not self._ended and self._process == os.getpid():
            with self._lock:
                self._finish(after_error=True)

    def _finish(self, *, after_error: bool) -> None:
        if self._finishing:
            return
        self.is_ending = self._finishing = True
        self._calls += 1
        try:
            self._end(after_error)
        finally:
            self._calls -= 1
            self._ended = True


Stepped = TypeVar("Stepped")


class InTurns(Protocol):
    """A client whose calls take turns."""

    _turn: Turn


Client = TypeVar("Client", bound=InTurns)


def steps_in_turn(turn: Turn, steps: Iterator[Stepped]) -> Iterator[Stepped]:
    """Yield the same steps, each as a call of its own: other calls may come between."""
    while True:
        with turn:
            try:
                step = next(steps)
            except StopIteration:
                return
        yield step


def in_turn(
    method: Callable[Concatenate[Client, Arguments], Result],
) -> Callable[Concatenate[Client, Arguments], Result]:
    """Make each call of a client's method take a turn of its `_turn`."""

    @functools.wraps(method)
    def call(self: Client, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with self._turn:
            return method(self, *arguments, **named)

    return call
