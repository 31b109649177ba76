"""The deadlines of members and groups. A check of one may come too early, which is harmless, but
never too late. A heartbeat only moves the deadline of its member; the entry in `Deadlines` stays,
and is corrected when it is due, so that heartbeats cost nothing there."""

import heapq
from typing import NamedTuple

DUE_MAX = 500
"""Deadlines that are checked in one step: all sessions begin anew with a new coordinator, and may
end at once."""

STALE_MIN = 1_000
"""Stale entries that are not worth the work of dropping them."""

NO_MEMBER = ""


class DeadlineKey(NamedTuple):
    """A member, or an id that was promised; without a member id the group as a whole."""

    group_id: str
    member_id: str = NO_MEMBER


class Deadlines:
    """The next deadline of each key, on the monotonic clock."""

    __slots__ = ("_heap", "_planned")

    def __init__(self) -> None:
        self._heap: list[tuple[int, DeadlineKey]] = []
        self._planned: dict[DeadlineKey, int] = {}

    def plan(self, key: DeadlineKey, when_ms: int) -> None:
        """Have the key checked at that time or earlier."""
        planned = self._planned.get(key)
        if planned is None or when_ms < planned:
            self._planned[key] = when_ms
            heapq.heappush(self._heap, (when_ms, key))

    def forget(self, key: DeadlineKey) -> None:
        """The key has no deadline any more. Stale entries of the heap are dropped when they are the
        larger part of it."""
        self._planned.pop(key, None)
        if len(self._heap) > 2 * len(self._planned) + STALE_MIN:
            self._heap = [(when_ms, each) for each, when_ms in self._planned.items()]
            heapq.heapify(self._heap)

    @property
    def first_ms(self) -> int | None:
        """Return when the next key is due; None when none is planned."""
        heap = self._heap
        while heap and self._planned.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ms: int) -> list[DeadlineKey]:
        """Return keys to check now, DUE_MAX at most; the caller plans each of them again."""
        due: list[DeadlineKey] = []
        while len(due) < DUE_MAX and (first := self.first_ms) is not None and first <= now_ms:
            _, key = heapq.heappop(self._heap)
            del self._planned[key]
            due.append(key)
        return due
