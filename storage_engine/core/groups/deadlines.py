"""The next deadline of each group. A check may come too early, which is harmless, but never too
late.

A heartbeat only moves the deadline of its member; the group's entry here stays, and is corrected
when it is due, so that heartbeats cost nothing here. Invariant: the heap has the entry of each
group in `_planned`; its other entries are stale.
"""

import heapq


class Deadlines:
    """The next deadline of each group, on the monotonic clock."""

    __slots__ = ("_heap", "_planned")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._planned: dict[str, int] = {}

    def plan(self, group_id: str, when_ms: int) -> None:
        """Have the group checked at that time or earlier."""
        planned = self._planned.get(group_id)
        if planned is None or when_ms < planned:
            self._planned[group_id] = when_ms
            heapq.heappush(self._heap, (when_ms, group_id))

    @property
    def first_ms(self) -> int | None:
        """Return when the next group is due; None when none is planned."""
        heap = self._heap
        while heap and self._planned.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ms: int) -> list[str]:
        """Return the groups to check now; the caller plans each of them again."""
        due = []
        while (first := self.first_ms) is not None and first <= now_ms:
            _, group_id = heapq.heappop(self._heap)
            del self._planned[group_id]
            due.append(group_id)
        return due
