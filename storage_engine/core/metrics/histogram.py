"""A histogram with fixed buckets, as a plain list: to observe a value costs one search of a tuple.

It knows no format; whoever shows it makes cumulative buckets of the counts.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

NS_PER_MS = 1_000_000

LATENCY_MS = (
    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000,
)  # fmt: skip
"""The upper ends of the buckets of request times: from an append in memory to a fetch that waits as
long as clients let it."""

LATENCY_NS = tuple(int(each * NS_PER_MS) for each in LATENCY_MS)

SIZE_BYTES = tuple(float(1 << power) for power in range(8, 27, 2))
"""The upper ends of the buckets of batch sizes: 256 bytes to 64 MiB."""


class Histogram:
    """Invariant: `counts` has one place more than `bounds`, for what is above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: the upper ends of the buckets, inclusive, ascending."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total: float = 0
        """The sum of all values."""

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def add(self, other: "Histogram") -> None:
        """Count the values of another one with the same bounds, too."""
        assert self.bounds == other.bounds, "they have the same buckets"
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """Return for each bound, and last for none, how many values are not above it."""
        return list(accumulate(self.counts))

    def quantile(self, share: float) -> float:
        """Return the upper end of the bucket that has the value at `share` (0 to 1) of all; 0 when
        there is none, and the highest bound for what is above."""
        wanted = share * self.count
        if not wanted:
            return 0.0
        below = self.cumulative()
        return self.bounds[min(bisect_left(below, wanted), len(self.bounds) - 1)]
