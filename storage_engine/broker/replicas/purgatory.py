"""Requests that wait: produces for their followers, fetches for data.

Rule: a waiter is answered exactly once, by whichever comes first: its condition, its time, or the
end of its partition's role. Callback-driven: no asyncio, no threads. Source: R-NET2.
"""

from collections.abc import Callable
from typing import Protocol

from storage_engine.broker.unexpected import guarded
from storage_engine.core.ports import Scheduler, Timer


class Waiter(Protocol):
    """Something that waits on partitions."""

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
        """Cancel; True for the first caller, who then has to answer."""
        if self._done:
            return False
        self._done = True
        self._timer.cancel()
        return True


class WaitList:
    """Waiters of one partition, in the order of arrival."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        # A dict keeps the order, and lets one of many leave without a search.
        self._waiters: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None

    def discard(self, waiter: Waiter) -> None:
        """Forget a waiter that was answered elsewhere; harmless when it is not here."""
        self._waiters.pop(waiter, None)

    def wake(self) -> None:
        """Let every waiter look again; those that are answered leave. One that fails leaves too:
        its time answers it."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, {}
        left = {waiter: None for waiter in waiters if not guarded("a waiter", waiter.try_complete)}
        # A waiter's answer may have added new ones meanwhile.
        self._waiters = left | self._waiters
