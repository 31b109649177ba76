"""The answer to a request that waits for several partitions, each for something of its own.

Rule: it is given once, when the last of them is settled; those that are not when the time is over
are settled by that. Source: R-NET2.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from storage_engine.broker.replicas.purgatory import RequestDeadline, WaitList
from storage_engine.core.ports import Scheduler


class Awaited(Protocol):
    """One partition of the request, not answered yet."""

    @property
    def waiters(self) -> WaitList:
        """The list that is woken when it may be settled."""
        ...

    def look(self) -> bool:
        """Whether it is settled by now; it keeps how."""
        ...

    def expire(self) -> None:
        """The time is over."""
        ...


class _Open:
    """One partition of the request that is not settled yet."""

    __slots__ = ("answer", "item")

    def __init__(self, answer: "DelayedAnswer", item: Awaited) -> None:
        self.answer = answer
        self.item = item

    def try_complete(self) -> bool:
        return self.answer.look(self)


class DelayedAnswer:
    """Waits for all partitions of one request. News of one partition cost one look, however many
    others there are."""

    __slots__ = ("_deadline", "_open", "_respond")

    def __init__(
        self,
        waiting: Sequence[Awaited],
        *,
        timeout_ms: int,
        scheduler: Scheduler,
        respond: Callable[[], None],
    ) -> None:
        self._respond = respond
        self._deadline: RequestDeadline | None = None
        opened = [_Open(self, item) for item in waiting if not item.look()]
        self._open = dict.fromkeys(opened)
        if not opened:
            self._respond()
            return
        self._deadline = RequestDeadline(scheduler, timeout_ms, self._expire)
        for each in opened:
            each.item.waiters.add(each)

    def look(self, opened: _Open) -> bool:
        """One partition may be settled now; with the last of them all are answered."""
        if opened not in self._open:
            return True
        if not opened.item.look():
            return False
        del self._open[opened]
        if not self._open:
            assert self._deadline is not None
            self._deadline.finish()
            self._respond()
        return True

    def _expire(self) -> None:
        opened, self._open = self._open, {}
        for each in opened:
            each.item.expire()
            each.item.waiters.discard(each)
        self._respond()
