"""The thread of a group's member: an event loop of calls and timers, and no sockets, which kazoo
has its own thread for.

Rule: everything that concerns the group happens here, one call after the other. Implements
`core.ports` Scheduler and Clock.
"""

import contextlib
import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable

from storage_engine.net.deadline import monotonic_ms
from storage_engine.net.suspended_time import monotonic_with_sleep_ms


class Timer:
    """A call that is due later."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class LoopThread:
    """Runs from `start` to `stop`."""

    def __init__(self, name: str, on_broken: Callable[[], None]) -> None:
        """`on_broken` is called when a call raises: the thread ends, with a traceback."""
        self._on_broken = on_broken
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._timers: list[tuple[int, int, Timer]] = []
        """Of this thread only."""
        self._numbers = itertools.count()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_ms: int) -> None:
        """After the call under way, which is waited for; what else is due is dropped. Not from the
        thread itself."""
        self.call_soon(self._stop)
        if self._thread.ident is not None:
            self._thread.join(timeout_ms / 1000)

    @property
    def is_current(self) -> bool:
        return threading.get_ident() == self._thread.ident

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """From any thread."""
        self._calls.put(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """On the loop."""
        timer = Timer(callback)
        heapq.heappush(self._timers, (monotonic_ms() + delay_ms, next(self._numbers), timer))
        return timer

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """What a session's lease is measured by. (Timers wait by a clock that sleeps with the
        machine, as all waits of threads do.)"""
        return monotonic_with_sleep_ms()

    def _stop(self) -> None:
        self._stopped = True

    def _run(self) -> None:
        try:
            while not self._stopped:
                self._turn()
        finally:
            if not self._stopped:
                self._on_broken()

    def _turn(self) -> None:
        wait_s = None
        if self._timers:
            wait_s = max(0, self._timers[0][0] - monotonic_ms()) / 1000
        with contextlib.suppress(queue.Empty):
            self._calls.get(timeout=wait_s)()
        now_ms = monotonic_ms()
        while self._timers and self._timers[0][0] <= now_ms:
            _, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
