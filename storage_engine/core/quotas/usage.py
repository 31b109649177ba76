"""The credit of those who share bounds, for as many of them as are active."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from storage_engine.core.quotas.token_bucket import TokenBucket

Who = TypeVar("Who", bound=Hashable)

KEPT_MAX = 10_000
"""Clients choose their ids. Whoever makes more than these is served, and those who were away for
longest begin anew."""


class Usage(Generic[Who]):
    """What is used of one kind. Who has all credit is not kept."""

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._buckets: dict[Who, TokenBucket] = {}
        """In the order of their last use."""

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, who: Who, bound: float, amount: float, now_ms: int) -> int:
        """Counts `amount` against `bound`; then how long `who` has to wait, in ms."""
        bucket = self._buckets.pop(who, None)
        if bucket is None:
            bucket = TokenBucket(bound, self._burst_s, now_ms)
        elif bucket.rate != bound:
            bucket.change_rate(bound, now_ms)
        bucket.take(amount, now_ms)
        self._buckets[who] = bucket
        self._forget(now_ms)
        return bucket.wait_ms(now_ms)

    def _forget(self, now_ms: int) -> None:
        """Two of the oldest at most: each call adds one."""
        for _ in range(2):
            oldest = next(iter(self._buckets))
            is_crowded = len(self._buckets) > KEPT_MAX
            if not is_crowded and not self._buckets[oldest].is_full(now_ms):
                return
            del self._buckets[oldest]
            if not self._buckets:
                return
