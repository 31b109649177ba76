"""Time that moves only when a test says so: clock, scheduler and background work in one."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from storage_engine.core.errors import HeadraceError
from storage_engine.log.cleaned_segment import CancelledError

EPOCH_MS = 1_700_000_000_000


class ScheduledCall:
    """A timer."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeLoop:
    """Clock, Scheduler and Background. Calls that are due at one time run in the order in which
    they were asked for."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._numbers = itertools.count()
        self._calls: list[tuple[int, int, ScheduledCall]] = []
        self.failures: list[Exception] = []
        """What escaped from a callback: a real loop would only log it."""

    def wall_ms(self) -> int:
        return EPOCH_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return 1_000_000 + self.now_ms

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> ScheduledCall:
        call = ScheduledCall(callback)
        heapq.heappush(self._calls, (self.now_ms + delay_ms, next(self._numbers), call))
        return call

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0, callback)

    def submit(
        self,
        work: Callable[[], Any],
        on_done: Callable[[Any], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except (OSError, HeadraceError, CancelledError) as failure:
                on_error(failure)
            else:
                on_done(result)

        self.call_later(1, run)

    def run_for(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self._calls and self._calls[0][0] <= end_ms:
            self._run_one()
        self.now_ms = end_ms

    def run_until(self, condition: Callable[[], bool], *, limit_ms: int = 60_000) -> None:
        """Run until `condition` holds; it is looked at after every call."""
        end_ms = self.now_ms + limit_ms
        while not condition():
            assert self._calls, "nothing is left to happen"
            assert self._calls[0][0] <= end_ms, f"not within {limit_ms} ms"
            self._run_one()

    def _run_one(self) -> None:
        at_ms, _, call = heapq.heappop(self._calls)
        self.now_ms = max(self.now_ms, at_ms)
        if call.callback is not None:
            call.callback()
