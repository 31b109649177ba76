"""Makes full garbage collections rare, because the event loop stands still during one.

The memory of a request is freed as it ends, since its objects form no cycle (tested for every API);
the collector is there for unforeseen cycles. A full collection looks at all that is alive:
with a thousand logs, or with eight requests of 100,000 items under way, 60 to 180 ms.
"""

import gc

YOUNG_ALLOCATIONS = 700
MIDDLE_EVERY = 10
"""Collections of the young generation for one of the middle one. Both are CPython's defaults."""
FULL_EVERY = 1000
"""Collections of the middle generation for a full one: after 7 million more live objects. By
CPython's default of 10 the requests of hostile clients brought several full ones a second."""


def collect_seldom() -> None:
    """Call this when everything is loaded: later collections skip the objects alive by now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_ALLOCATIONS, MIDDLE_EVERY, FULL_EVERY)
