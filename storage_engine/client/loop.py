"""The one thread of a client: an event loop of calls, timers and connections.

    any thread -> call_soon, call, ask, wake -> [thread] calls, timers, work.turn() -> connections

All long work happens in the thread. One lock guards what the thread shares with callers. It is held
only briefly: never while sending, encoding, or calling back. The module implements `core.ports`
Scheduler and Clock.

A signal handler may call a client while it has interrupted a call that holds the lock, so the lock
can be taken again by its thread, and a wait releases it wholly. What a caller has begun under the
lock may thus change at each call of a function in it. CPython runs handlers, and other threads,
after a call, at the beginning of a function and at the end of a loop's turn, nowhere else: lines
without these happen at once.
"""

import heapq
import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from storage_engine.client.changed import Changed
from storage_engine.core.errors import HeadraceError
from storage_engine.net.blocking import Readable, wait_readable
from storage_engine.net.deadline import Deadline, monotonic_ms, monotonic_with_sleep_ms

_LONGEST_WAIT_MS = 60_000
"""The loop waits so long at most while it has nothing to do; it is woken when it has."""

Result = TypeVar("Result")


class LoopWork(Protocol):
    """The work of a loop beside calls and timers. The loop calls all methods in its thread."""

    def turn(self) -> None:
        """Do what is due, and do not wait."""
        ...

    def due_in_ms(self, now_ms: int) -> int | None:
        """The time until the next turn is due; 0: now, None: not by time alone. Called with the
        loop's lock held, so that nothing is overlooked that callers have added meanwhile."""
        ...

    def sockets(self) -> Iterable[Readable]:
        """The connections that end the wait for the next turn."""
        ...


class Waker:
    """Ends another thread's wait for connections, beside which `wait_readable` takes it. A wake is
    kept until it is cleared."""

    __slots__ = ("_descriptor",)

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    @property
    def has_buffered(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._descriptor

    def wake(self) -> None:
        """May be called from any thread."""
        os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        """Forget all wakes so far."""
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return

    def close(self) -> None:
        os.close(self._descriptor)


class LoopTimer:
    """A call that is due later."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class _Asked(Generic[Result]):
    """A question to the thread."""

    __slots__ = ("results",)

    def __init__(self) -> None:
        self.results: list[Result] = []
        """The answer, once it is there."""


class LoopEndedError(HeadraceError):
    """The loop has ended before it gave an answer."""


_loops: "weakref.WeakSet[ClientLoop]" = weakref.WeakSet()


def _end_those_of_the_parent() -> None:
    for loop in list(_loops):
        loop.forked()


os.register_at_fork(after_in_child=_end_those_of_the_parent)


class ClientLoop:
    """Runs from `start` to `stop`, or until something raises, which ends it with a traceback."""

    def __init__(
        self,
        name: str,
        *,
        work: LoopWork | None = None,
        on_end: Callable[[bool], None] | None = None,
        on_fork: Callable[[], None] | None = None,
    ) -> None:
        """`on_end` is called in the thread, as the last thing. Its argument says whether an error
        has ended the loop, and not `stop`. `on_fork` is called in the child of a fork, where there
        is no thread."""
        self.changed = Changed()
        self.lock = self.changed.lock
        """Callers wait for it until something has changed that is shared with the thread."""
        self._work = work
        self._on_end = on_end
        self._on_fork = on_fork
        self._waker: Waker
        self._timers: list[tuple[int, int, LoopTimer]] = []
        """A heap that only the thread uses."""
        self._timer_numbers = itertools.count()
        # The lock guards what follows.
        self._calls: deque[Callable[[], None]] = deque()
        self._sleeping = False
        self._stopping = False
        self._ended = False
        self._is_done = False
        """True once no call is made any more, after `on_end`."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._of_parent = False
        _loops.add(self)

    def start(self) -> None:
        self._waker = Waker()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the call that is running; other due work is dropped. May be called
        from any thread."""
        with self.lock:
            self._stopping = True
            self.wake()
            self.changed.notify_all()

    def join(self, timeout_ms: int | None = None) -> None:
        """Wait for the end of the thread, if it was ever started. Not in the thread itself."""
        if self._thread.ident is None:
            return
        deadline = None if timeout_ms is None else Deadline.after(timeout_ms)
        with self.lock, self.changed.waiting() as waiting:
            while not self._is_done:
                if not waiting.wait(deadline):
                    return
        # It needs no lock any more.
        self._thread.join()

    @property
    def is_current(self) -> bool:
        """Whether the caller is in the thread of the loop."""
        return threading.get_ident() == self._thread.ident

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called, or the loop has ended."""
        return self._stopping

    @property
    def has_ended(self) -> bool:
        """Whether no call is carried out any more."""
        return self._ended

    @property
    def is_of_parent(self) -> bool:
        """Whether it was made before a fork, in whose child there is no thread of it."""
        return self._of_parent

    def forked(self) -> None:
        """End the loop in the child of a fork: a caller would wait for it for ever, also for its
        lock, where the thread held it."""
        self.lock._at_fork_reinit()  # type: ignore[attr-defined]
        self._sleeping = False
        self._stopping = self._ended = self._is_done = self._of_parent = True
        if self._on_fork is not None:
            self._on_fork()

    # For any thread.

    def wake(self) -> None:
        """Begins the next turn now. The caller holds the lock."""
        if self._sleeping:
            # Only the thread says that it is awake: a handler that comes now may wait for it, and
            # it may sleep again before this goes on.
            self._waker.wake()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call it in the next turn; never where the loop ends before that."""
        with self.lock:
            self._calls.append(callback)
            self.wake()

    def call(self, work: Callable[[], None]) -> None:
        """Do `work` in the thread, and return when it is done. Raises its HeadraceError, or
        LoopEndedError."""

        def begin(answer: Callable[[HeadraceError | None], None]) -> None:
            answer(_error_of(work))

        if (error := self.ask(begin)) is not None:
            raise error

    def ask(
        self,
        begin: Callable[[Callable[[Result], None]], None],
        timeout_ms: int | None = None,
    ) -> Result:
        """Call `begin` in the thread, and return what is first given to its argument, then or
        later. Raises TimeoutError, or LoopEndedError."""
        asked: _Asked[Result] = _Asked()

        def answer(result: Result) -> None:
            with self.lock:
                if not asked.results:
                    asked.results.append(result)
                    self.changed.notify_all()

        def call() -> None:
            begin(answer)

        deadline = None if timeout_ms is None else Deadline.after(timeout_ms)
        with self.lock, self.changed.waiting() as waiting:
            self._calls.append(call)
            self.wake()
            while not asked.results:
                if self._ended:
                    raise LoopEndedError(f"the thread {self._thread.name} has ended")
                if not waiting.wait(deadline):
                    raise TimeoutError
        return asked.results[0]

    # For callers in the thread.

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> LoopTimer:
        timer = LoopTimer(callback)
        heapq.heappush(self._timers, (monotonic_ms() + delay_ms, next(self._timer_numbers), timer))
        return timer

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """The clock that a session's lease is measured by. (Timers wait by a clock that sleeps with
        the machine, as all waits of threads do.)"""
        return monotonic_with_sleep_ms()

    # The thread.

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            with self.lock:
                is_broken = not self._stopping
                self._stopping = self._ended = True
                self._sleeping = False
                self._waker.close()
                self.changed.notify_all()
            if self._on_end is not None:
                self._on_end(is_broken)
            with self.lock:
                self._is_done = True
                self.changed.notify_all()

    def _turn(self) -> bool:
        """Do what is due, then wait for more; False at the end."""
        self._waker.clear()
        with self.lock:
            self._sleeping = False
            calls, self._calls = self._calls, deque()
        for call in calls:
            if self._stopping:
                return False
            call()
        now_ms = monotonic_ms()
        while self._timers and self._timers[0][0] <= now_ms and not self._stopping:
            _, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
        if self._stopping:
            return False
        sockets: Iterable[Readable] = ()
        if self._work is not None:
            self._work.turn()
            sockets = self._work.sockets()
        with self.lock:
            wait_ms = self._wait_ms()
            self._sleeping = wait_ms > 0
        if wait_ms > 0:
            wait_readable([self._waker, *sockets], wait_ms)
        return True

    def _wait_ms(self) -> int:
        if self._calls or self._stopping:
            return 0
        now_ms = monotonic_ms()
        due_ms = [_LONGEST_WAIT_MS]
        if self._timers:
            due_ms.append(self._timers[0][0] - now_ms)
        if self._work is not None and (due_in_ms := self._work.due_in_ms(now_ms)) is not None:
            due_ms.append(due_in_ms)
        return max(0, min(due_ms))


def _error_of(work: Callable[[], None]) -> HeadraceError | None:
    try:
        work()
    except HeadraceError as error:
        return error
    return None
