"""The time at which an operation gives up, which is passed to all calls that it consists of; and a
clock that does not stand still while the machine is suspended.

Whatever must end by itself when nobody renews it, a lease above all, is measured by this clock.
ZooKeeper lets a session expire while its broker's machine sleeps. By Python's `time.monotonic`,
which sleeps too (Linux: CLOCK_MONOTONIC), the broker would hold its lease for another session
timeout after it has woken, and lead beside its successor.
"""

import time

from storage_engine.core.errors import DeadlineExceededError


class Deadline:
    __slots__ = ("at_ms", "timeout_ms")

    def __init__(self, at_ms: int, timeout_ms: int) -> None:
        self.at_ms = at_ms
        self.timeout_ms = timeout_ms

    @classmethod
    def after(cls, timeout_ms: int) -> "Deadline":
        return cls(monotonic_ms() + timeout_ms, timeout_ms)

    def no_later_than(self, timeout_ms: int) -> "Deadline":
        """This deadline, or the one `timeout_ms` from now when that is earlier."""
        other = Deadline.after(timeout_ms)
        return self if self.at_ms <= other.at_ms else other

    @property
    def left_ms(self) -> int:
        """The remaining milliseconds, never negative."""
        return max(0, self.at_ms - monotonic_ms())

    @property
    def passed(self) -> bool:
        return monotonic_ms() >= self.at_ms

    def check(self, what: str) -> None:
        """DeadlineExceededError when it has passed; `what` begins the message: "no answer came"."""
        if self.passed:
            raise DeadlineExceededError(f"{what} within {self.timeout_ms} ms")


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def sleep_ms(duration_ms: int) -> None:
    """Wait between retries."""
    time.sleep(duration_ms / 1000)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has CLOCK_BOOTTIME; elsewhere (macOS, BSD) CLOCK_MONOTONIC counts the sleep itself."""


def monotonic_with_sleep_ms() -> int:
    """Milliseconds since some start; comparable within one process only."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000
