"""The answer to a request that waits for several partitions, each for something of its own.

Rule: it is given once, when the last of them is settled; those that are not when the time is over
are settled by that. Source: R-NET2.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from storage_engine.broker.purgatory import Deadline, WaitList
from storage_engine.core.ports import Scheduler


class Awaited(Protocol):
    """One partition of the request, not answered yet."""

    @property
    def waiters(self) -> WaitList:
        """Where somebody wakes it when it may be settled."""
        ...

    def look(self) -> bool:
        """Whether it is settled by now; it keeps how."""
        ...

    def expire(self) -> None:
        """The time is over."""
        ...


class DelayedAnswer:
    """Waits for all partitions of one request."""

    __slots__ = ("_deadline", "_done", "_respond", "_waiting")

    def __init__(
        self,
        waiting: Sequence[Awaited],
        *,
        timeout_ms: int,
        scheduler: Scheduler,
        respond: Callable[[], None],
    ) -> None:
        self._waiting = list(waiting)
        self._respond = respond
        self._done = False
        self._deadline: Deadline | None = None
        if self.try_complete():
            return
        self._deadline = Deadline(scheduler, timeout_ms, self._expire)
        for item in self._waiting:
            item.waiters.add(self)

    def try_complete(self) -> bool:
        """Look at every open partition; answer when none is left."""
        if self._done:
            return True
        self._waiting = [item for item in self._waiting if not item.look()]
        if self._waiting:
            return False
        self._finish()
        return True

    def _expire(self) -> None:
        self._deadline = None
        for item in self._waiting:
            item.expire()
            item.waiters.discard(self)
        self._finish()

    def _finish(self) -> None:
        self._done = True
        if self._deadline is not None:
            self._deadline.finish()
        self._respond()
