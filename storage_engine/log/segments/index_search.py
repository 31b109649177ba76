"""Search in the rising column of an index. It is right for any column, and quick for an even one.

Batches of a log are mostly of similar size, so an entry's place is about proportional to its value.
From there the bounds are widened until the value is between them; a bisection does the rest. So a
look-up in an index of a large segment costs about as much as in a small one, where a bisection
alone takes one more step for each doubling.
"""

from bisect import bisect_right
from collections.abc import Callable

PLAIN_ENTRIES = 16
"""Up to this many entries a plain bisection reads no more of them."""

FIRST_STEP = 2


def count_up_to(count: int, value: int, at: Callable[[int], int]) -> int:
    """Return how many of the `count` entries are at most `value`; `at(number)` strictly increases.

    A damaged column gives any number from 0 to `count`.
    """
    if count <= PLAIN_ENTRIES:
        return bisect_right(range(count), value, key=at)
    first, last = at(0), at(count - 1)
    if last <= value:
        return count
    if value < first:
        return 0
    # From here on at(low - 1) <= value < at(high), as far as these were read.
    guess = (value - first) * (count - 1) // (last - first)
    step = FIRST_STEP
    if at(guess) <= value:
        low, high = guess + 1, guess + 1 + step
        while high < count and at(high) <= value:
            low, step = high + 1, step * 2
            high = low + step
        high = min(high, count)
    else:
        low, high = guess - step, guess
        while low > 0 and at(low - 1) > value:
            high, step = low - 1, step * 2
            low = high - step
        low = max(low, 0)
    return bisect_right(range(count), value, low, high, key=at)
