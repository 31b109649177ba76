"""A monotonic clock that does not stand still while the machine is suspended.

Whatever must end by itself when nobody renews it, a lease above all, is measured by this clock.
ZooKeeper lets a session expire while its broker's machine sleeps. By Python's `time.monotonic`,
which sleeps too (Linux: CLOCK_MONOTONIC), the broker would hold its lease for another session
timeout after it has woken, and lead beside its successor.
"""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has CLOCK_BOOTTIME; elsewhere (macOS, BSD) CLOCK_MONOTONIC counts the sleep itself."""


def monotonic_with_sleep_ms() -> int:
    """Milliseconds since some start; comparable within one process only."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000
