"""Finds a small part of a failing schedule that still violates the same invariant (delta
debugging).

The remaining faults must violate the same rule, since another failure could hide the first. Source:
Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002).
"""

from collections.abc import Callable, Sequence

Fails = Callable[[Sequence[int]], bool]
"""Returns True when the run with just these faults still fails in the same way."""

MOST_RUNS = 300
"""The most runs of a search, which then ends with its best result so far."""


def shrink(numbers: Sequence[int], fails: Fails) -> list[int]:
    """Return a part of `numbers` of which no single one can be left out (within MOST_RUNS)."""
    kept = list(numbers)
    runs = 0
    pieces = 2
    while kept:
        size = -(-len(kept) // pieces)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            runs += 1
            if runs > MOST_RUNS:
                return kept
            if fails(rest):
                kept = rest
                pieces = max(2, pieces - 1)
                break
        else:
            if size == 1:
                return kept
            pieces = min(len(kept), 2 * pieces)
    return kept
