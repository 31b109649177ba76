"""Waits for changes of what a lock guards, also in a signal handler.

`threading.Condition` forgets a change between a check and the wait that follows the check. Under
a lock nothing comes there, but a handler does, and it may have waited for just that change.
"""

import contextlib
import threading
from types import TracebackType
from typing import Self

from storage_engine.net.deadline import Deadline


class Changed:
    """Wakes callers for all changes since they called `waiting`."""

    __slots__ = ("_waiting", "lock")

    def __init__(self, lock: "threading.RLock | None" = None) -> None:
        """`lock`: None for a new one."""
        self.lock = threading.RLock() if lock is None else lock
        self._waiting: list[Waiting] = []

    def waiting(self) -> "Waiting":
        """Return the `with` block in which the caller checks and waits, with the lock held."""
        return Waiting(self)

    def notify_all(self) -> None:
        """Wake all waiting callers. The lock must be held."""
        for each in list(self._waiting):
            each.notify()

    def add(self, waiting: "Waiting") -> None:
        self._waiting.append(waiting)

    def remove(self, waiting: "Waiting") -> None:
        self._waiting.remove(waiting)


class Waiting:
    """A caller that may have to wait."""

    __slots__ = ("_changed", "_quiet")

    def __init__(self, changed: Changed) -> None:
        self._changed = changed
        # Held as long as nothing has changed that the caller has not been notified of.
        self._quiet = threading.Lock()
        self._quiet.acquire()

    def __enter__(self) -> Self:
        self._changed.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._changed.remove(self)

    def notify(self) -> None:
        with contextlib.suppress(RuntimeError):
            # It is notified already.
            self._quiet.release()

    def wait(self, deadline: Deadline | None) -> bool:
        """Release the lock, wholly, until something has changed since the last wait, or the time is
        over; False at once when it is over before."""
        if deadline is not None and deadline.passed:
            return False
        lock = self._changed.lock
        timeout_s = -1.0 if deadline is None else deadline.left_ms / 1000
        held = lock._release_save()  # type: ignore[attr-defined]
        try:
            self._quiet.acquire(timeout=timeout_s)
            return True
        finally:
            lock._acquire_restore(held)  # type: ignore[attr-defined]
