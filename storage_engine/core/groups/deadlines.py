"""When each group has to be looked at next. Its one rule: a look too early is harmless, none is too
late.

A heartbeat only moves the deadline of its member; the group's entry here stays, and is put right
when it comes up. So the many heartbeats cost nothing. Invariant: of each group in `_planned` that
entry is in the heap; other entries of it are stale.
"""

import heapq


class Deadlines:
    """The next deadline of each group, on the monotonic clock."""

    __slots__ = ("_heap", "_planned")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._planned: dict[str, int] = {}

    def plan(self, group_id: str, when_ms: int) -> None:
        """Look at the group then, or earlier."""
        planned = self._planned.get(group_id)
        if planned is None or when_ms < planned:
            self._planned[group_id] = when_ms
            heapq.heappush(self._heap, (when_ms, group_id))

    @property
    def first_ms(self) -> int | None:
        """When the next group is due."""
        heap = self._heap
        while heap and self._planned.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ms: int) -> list[str]:
        """The groups to look at now; each is to be planned again."""
        due = []
        while (first := self.first_ms) is not None and first <= now_ms:
            _, group_id = heapq.heappop(self._heap)
            del self._planned[group_id]
            due.append(group_id)
        return due
