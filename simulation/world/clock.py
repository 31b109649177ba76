"""Simulated time: one loop for all processes, and a view of it for each. Time moves only to the
next call that is due.

Calls that are due at one time run in the order in which they were scheduled, so a run is a function
of its seed. Implements core.ports' Clock, Scheduler and Background.
"""

import heapq
import itertools
from collections.abc import Callable
from typing import TypeVar

from storage_engine.core.errors import HeadraceError
from storage_engine.log.cleaning.compaction_job import CancelledError

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
"""The wall clock at the start."""
BOOT_MS = 1_000_000
"""The monotonic clock at the start: not 0, so that an unset time is not taken for a real one."""

STEP_NS = 20_000
"""The assumed cost of a step of long work: some hundred steps fit in a turn of the event loop."""

OnEvent = Callable[["ProcessLoop | None"], None]


class ScheduledCall:
    """A scheduled call."""

    __slots__ = ("callback", "owner")

    def __init__(self, callback: Callable[[], None], owner: "ProcessLoop | None") -> None:
        self.callback: Callable[[], None] | None = callback
        self.owner = owner
        """The process with which it dies or pauses; None: it belongs to no process."""

    def cancel(self) -> None:
        self.callback = None


class SimulatedLoop:
    """All future calls, in order."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.events = 0
        self._numbers = itertools.count()
        self._calls: list[tuple[int, int, ScheduledCall]] = []
        self._touched: ProcessLoop | None = None
        self.work_ms = 1
        """How long background work takes."""
        self.after_event: OnEvent | None = None
        """Called after every event with the process in which it happened."""

    def wall_ms(self) -> int:
        return EPOCH_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return BOOT_MS + self.now_ms

    def call_later(
        self, delay_ms: int, callback: Callable[[], None], owner: "ProcessLoop | None" = None
    ) -> ScheduledCall:
        call = ScheduledCall(callback, owner)
        heapq.heappush(self._calls, (self.now_ms + delay_ms, next(self._numbers), call))
        return call

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0, callback)

    def put(self, delay_ms: int, call: ScheduledCall) -> None:
        heapq.heappush(self._calls, (self.now_ms + delay_ms, next(self._numbers), call))

    def submit(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], None],
        on_error: Callable[[Exception], None],
        owner: "ProcessLoop | None" = None,
    ) -> None:
        """Do the work of a background thread after `work_ms`, with its callback."""

        def run() -> None:
            try:
                result = work()
            except (OSError, HeadraceError, CancelledError) as failure:
                on_error(failure)
            else:
                on_done(result)

        self.call_later(self.work_ms, run, owner)

    def run_for(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        calls = self._calls
        while calls and calls[0][0] <= end_ms:
            self._run_one()
        self.now_ms = end_ms

    def run_until(self, condition: Callable[[], bool], *, limit_ms: int = 60_000) -> None:
        """Run until `condition` holds; it is checked after every event. AssertionError when it does
        not within `limit_ms`."""
        end_ms = self.now_ms + limit_ms
        while not condition():
            assert self._calls, "nothing is left to happen"
            assert self._calls[0][0] <= end_ms, f"not within {limit_ms} ms"
            self._run_one()

    def _run_one(self) -> None:
        at_ms, _, call = heapq.heappop(self._calls)
        if at_ms > self.now_ms:
            self.now_ms = at_ms
        callback, owner = call.callback, call.owner
        if callback is None or (owner is not None and not owner.admit(call)):
            return
        self._touched = owner
        callback()
        self.events += 1
        if self.after_event is not None:
            self.after_event(self._touched)

    def touch(self, process: "ProcessLoop") -> None:
        """Record that the event under way happens in this process."""
        self._touched = process


class ProcessLoop:
    """The loop of one process's life: its calls are dropped when it ends; while the process is
    stopped (SIGSTOP) they wait, to run all at once afterwards."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._dead = False
        self._standing: list[ScheduledCall] | None = None
        """The calls that became due while the process is stopped."""
        self._behind = 0
        """The number of these that have not run since: what arrives now comes after them."""
        self.held: list[Callable[[], None]] | None = None
        """The held background work; with a list, work begins only when `release` is called."""
        self._looked = 0
        self.wall_ms = loop.wall_ms
        self.monotonic_ms = loop.monotonic_ms

    def kill(self) -> None:
        self._dead = True
        self._standing = None

    @property
    def paused(self) -> bool:
        return self._standing is not None

    def pause(self) -> None:
        if not self._dead and self._standing is None:
            self._standing = []

    def resume(self) -> None:
        standing, self._standing = self._standing or [], None
        for call in standing:
            self._line_up(call)

    def _line_up(self, call: ScheduledCall) -> None:
        self._behind += 1
        self._loop.put(0, call)
        self._loop.call_soon(self._had_its_turn)

    def _had_its_turn(self) -> None:
        self._behind -= 1

    def work_ns(self) -> int:
        """Work takes no simulated time: each call of this clock stands for a step's work."""
        self._looked += STEP_NS
        return self._looked

    def release(self) -> None:
        """Begin the background work that was held, and hold no more."""
        held, self.held = self.held or [], None
        for begin in held:
            begin()

    def admit(self, call: ScheduledCall) -> bool:
        """Return True when a call that is due may run now; that of a stopped process is kept."""
        if self._dead:
            return False
        if self._standing is not None:
            self._standing.append(call)
            return False
        return True

    def enter(self, callback: Callable[[], None]) -> None:
        """Run a callback from outside: now, or when the process runs again."""
        if self._dead:
            return
        if self._standing is not None:
            self._standing.append(ScheduledCall(callback, self))
            return
        if self._behind:
            self._line_up(ScheduledCall(callback, self))
            return
        self._loop.touch(self)
        callback()

    def deliver_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Have something arrive from outside after a delay, wherever the process is then."""
        self._loop.call_later(delay_ms, lambda: self.enter(callback))

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> ScheduledCall:
        return self._loop.call_later(delay_ms, callback, self)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_later(0, callback, self)

    def submit(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        if self.held is not None:
            self.held.append(lambda: self.submit(work, on_done, on_error))
            return
        self._loop.submit(work, on_done, on_error, self)
