"""Who waits until all live brokers have been told what the controller has decided.

A broker that is gone, or to which a delivery has failed, is not waited for any more, and one that
hangs is for `TELL_MS`: it learns later what it has missed, as brokers of Kafka do.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from storage_engine.core.control.controller import Controller
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import Scheduler, Timer

TELL_MS = 5_000
"""The longest wait. A broker that takes no order for so long is in trouble; its session ends soon,
or it is too busy to answer clients as well."""


@dataclass(slots=True, eq=False)
class _Waiter:
    owed: Mapping[BrokerId, int]
    then: Callable[[], None]
    timer: Timer | None = None


class ToldBrokers:
    """The waiters, in the order of their arrival: whoever came later waits for as much or more, so
    that a look at the first one is enough."""

    def __init__(self, core: Controller, scheduler: Scheduler) -> None:
        """`core` is only read."""
        self._core = core
        self._scheduler = scheduler
        self._waiters: deque[_Waiter] = deque()

    def wait(self, then: Callable[[], None]) -> None:
        """`then` is called once, when all live brokers have been told what they are owed now."""
        waiter = _Waiter(self._core.owed_now(), then)
        self._waiters.append(waiter)
        self.look()
        if self._waiters:
            # Nobody came after it, so it waits, too.
            waiter.timer = self._scheduler.call_later(TELL_MS, partial(self._expire, waiter))

    def look(self) -> None:
        """Called after each event."""
        while self._waiters and self._core.are_settled(self._waiters[0].owed):
            self._release()

    def close(self) -> None:
        """The controller has ended: what is decided stays so, and nobody waits for it any more."""
        while self._waiters:
            self._release()

    def _expire(self, last: _Waiter) -> None:
        """`last` and those before it have waited long enough."""
        while last in self._waiters:
            self._release()

    def _release(self) -> None:
        waiter = self._waiters.popleft()
        if waiter.timer is not None:
            waiter.timer.cancel()
        waiter.then()
