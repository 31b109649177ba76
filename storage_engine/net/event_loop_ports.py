"""Clock, scheduler and background work on an asyncio loop: the real side of core.ports. Every
callback comes back on the loop.
"""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from storage_engine.net.deadline import monotonic_with_sleep_ms

Result = TypeVar("Result")

BACKGROUND_THREADS = 16
"""Background threads do fsync, deletions of files, cold reads, preparations of appends and
conversions for fetches. Kinds of work that may take long have limits of their own, which leave a
thread for the flushes that acknowledgements wait for.

They have the priority of the loop. One of a lower priority holds the interpreter's lock while
others have the processors: beside three busy processes and hostile batches a write took 188 ms
with a nice value of 10 (99th percentile; 411 at most), 125 without (252); a request beside long
ones 66 instead of 34
where no other process was busy. The median is lower with it, by 2 to 4 ms."""

SIDE_BY_SIDE = 16
"""Threads for flushes at a stop: a file system joins waiting flushes in one write of its journal.
900 flushes of small files took 3.1 s one after another, 0.17 s on 8 threads, 0.06 s on 32."""


class SystemClock:
    """The machine's clocks. A broker's lease ends by the monotonic one, so it runs on while the
    machine is suspended."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # The functions themselves, since they are called for each request.
    monotonic_ms = staticmethod(monotonic_with_sleep_ms)
    work_ns = staticmethod(time.perf_counter_ns)
    """Nanoseconds, to bound and to measure the loop's work."""


class LoopScheduler:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)


class ThreadBackground:
    """Long work on a few threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = concurrent.futures.ThreadPoolExecutor(
            BACKGROUND_THREADS, thread_name_prefix="background"
        )

    def submit(
        self,
        work: Callable[[], Result],
        on_done: Callable[[Result], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        def finished(future: concurrent.futures.Future[Result]) -> None:
            error = future.exception()
            if error is None:
                self._call(lambda: on_done(future.result()))
            elif isinstance(error, Exception):
                self._call(lambda: on_error(error))

        self._threads.submit(work).add_done_callback(finished)

    def _call(self, callback: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        """Wait for what is under way; begin nothing more."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def run_side_by_side(works: Sequence[Callable[[], None]]) -> list[Exception | None]:
    """Run short waits for a medium on many threads; return what each has raised, in their order."""
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        futures = [threads.submit(work) for work in works]
    errors = []
    for future in futures:
        error = future.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        errors.append(error)
    return errors


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A fresh loop of the fastest kind at hand; the caller closes it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
