"""How much of the long tests a run does. HEADRACE_FAULTS=full: all of it."""

import os

ALL_FAULTS = os.environ.get("HEADRACE_FAULTS") == "full"


def examples(count: int) -> int:
    """Of hypothesis: so many in full, a third by default."""
    return count if ALL_FAULTS else max(10, count // 3)
