"""How fast this machine is, for limits on processor time that were set on another one."""

import time

_RUNS = 5
_ITEMS = 2_000
_REFERENCE_S = 0.65e-3
"""What `_work` took where the limits were set."""


def slowness() -> float:
    """How many times as long as there Python takes here, just now; at least 1.

    A limit on processor time is a promise about the code, not about the machine: a slower one, or a
    core whose other half is busy, is given as many times as long.
    """
    best_s = 1.0
    for _ in range(_RUNS):
        begun_s = time.thread_time()
        _work()
        best_s = min(best_s, time.thread_time() - begun_s)
    return max(1.0, best_s / _REFERENCE_S)


def _work() -> dict[tuple[str, int], str]:
    """Calls, tuples, a dictionary and text, as in what is measured."""
    made: dict[tuple[str, int], str] = {}
    for number in range(_ITEMS):
        key = ("name", number)
        made[key] = f"{len(made)}-{key[1] % 7}"
    return made
