"""Makes full garbage collections rare, because the event loop stands still during one.

The memory of a request is freed as it ends, since its objects form no cycle (tested for every API);
the collector is there for cycles that nobody foresaw. A full collection looks at all that is alive:
with a thousand logs, or with eight requests of 100,000 items under way, 60 to 180 ms.
"""

import gc

YOUNG_ALLOCATIONS = 700
MIDDLE_EVERY = 10
"""Collections of the young generation. Both are CPython's own defaults."""
FULL_EVERY = 1000
"""Collections of the middle one: after 7 million objects that were made and not freed again. By
CPython's default of 10 the requests of hostile clients brought several full ones a second."""


def collect_seldom() -> None:
    """Call it when all is loaded: what is alive by now is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_ALLOCATIONS, MIDDLE_EVERY, FULL_EVERY)
