"""Requests that wait: produces for their followers, fetches for data. Their conditions are checked
once at the end of a turn of the event loop, however many requests that turn had.

A waiter is answered exactly once, by whichever comes first: its condition, its time, or the end of
its partition's role. Callback-driven: no asyncio, no threads. Source: R-NET2.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from storage_engine.broker.unexpected import report
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler, Timer


class Waiter(Protocol):
    """A request that waits on partitions."""

    def try_complete(self) -> bool:
        """Answer if the condition holds by now. True when it is answered, now or before."""
        ...


class RequestDeadline:
    """Runs `expire` once after `delay_ms` unless cancelled first."""

    __slots__ = ("_done", "_timer")

    def __init__(self, scheduler: Scheduler, delay_ms: int, expire: Callable[[], None]) -> None:
        self._done = False

        def run() -> None:
            if not self._done:
                self._done = True
                expire()

        self._timer: Timer = scheduler.call_later(delay_ms, run)

    def finish(self) -> bool:
        """Cancel; True for the first caller, which then has to answer."""
        if self._done:
            return False
        self._done = True
        self._timer.cancel()
        return True


class WaitList:
    """Waiters of one partition, in the order of arrival."""

    __slots__ = ("_checked", "_waiters")

    def __init__(self) -> None:
        # A dict keeps the order, and lets one of many leave without a search.
        self._waiters: dict[Waiter, None] = {}
        self._checked = 0
        """The waiters that `wake` is checking now: they still count."""

    def __len__(self) -> int:
        return len(self._waiters) + self._checked

    def add(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None

    def discard(self, waiter: Waiter) -> None:
        """Remove a waiter that was answered elsewhere; harmless when it is not here."""
        self._waiters.pop(waiter, None)

    def wake(self) -> None:
        """Check every waiter; those that are answered leave. One whose check fails leaves too, and
        is answered when its time is over."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, {}
        before, self._checked = self._checked, self._checked + len(waiters)
        left: dict[Waiter, None] = {}
        try:
            for each in waiters:
                try:
                    is_answered = each.try_complete()
                except Exception as error:  # noqa: BLE001 - reported; the others are looked at
                    report("a waiter", error)
                else:
                    if not is_answered:
                        left[each] = None
        finally:
            self._checked = before
        # A waiter's answer may have added new ones meanwhile.
        self._waiters = left | self._waiters


class Awaited(Protocol):
    """A partition of a request that is not answered yet."""

    @property
    def waiters(self) -> WaitList:
        """The list that is woken when the partition may be settled."""
        ...

    def check(self) -> bool:
        """Whether the partition is settled by now; the outcome is kept."""
        ...

    def expire(self) -> None:
        """Settle the partition as timed out."""
        ...


class _Open:
    """A partition of a request that is not settled yet."""

    __slots__ = ("answer", "item")

    def __init__(self, answer: "DelayedAnswer", item: Awaited) -> None:
        self.answer = answer
        self.item = item

    def try_complete(self) -> bool:
        return self.answer.check(self)


class DelayedAnswer:
    """Waits for all partitions of one request, and responds once the last of them is settled; at
    the timeout the open ones expire. News of one partition costs one check, however many others
    there are."""

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
        opened = [_Open(self, item) for item in waiting if not item.check()]
        self._open = dict.fromkeys(opened)
        if not opened:
            self._respond()
            return
        self._deadline = RequestDeadline(scheduler, timeout_ms, self._expire)
        for each in opened:
            each.item.waiters.add(each)

    def check(self, opened: _Open) -> bool:
        """Check whether a partition is settled now; when it is the last one, answer the request."""
        if opened not in self._open:
            return True
        if not opened.item.check():
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


class EndOfTurn:
    """The partitions of one broker that have something to do at the end of the present turn."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._due: list[tuple[TopicPartition, Callable[[], None]]] = []

    def call(self, tp: TopicPartition, work: Callable[[], None]) -> None:
        """Do the work at the end of the turn; its failure is reported as that of the partition, and
        does not affect others."""
        if not self._due:
            self._scheduler.call_soon(self._run)
        self._due.append((tp, work))

    def _run(self) -> None:
        due, self._due = self._due, []
        for tp, work in due:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - whatever it is, the others are served
                report(f"appends to {tp}", error)
