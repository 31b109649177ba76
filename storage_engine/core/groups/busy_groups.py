"""Groups whose conversion is done in pieces, since it looks at all members. Requests to them wait
meanwhile, and are stepped in their order afterwards."""

from collections import deque
from collections.abc import Callable, Iterator

from storage_engine.core.coordinator_log import PIECE
from storage_engine.core.groups.consumer.events import (
    AssignmentComputed,
    ConsumerHeartbeat,
    PatternResolved,
)
from storage_engine.core.groups.events import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    Join,
    Leave,
    MemberHeartbeat,
    ReadOffsets,
    Sync,
)

GroupRequest = (
    Join
    | Sync
    | MemberHeartbeat
    | Leave
    | CommitOffsets
    | ReadOffsets
    | DeleteOffsets
    | DeleteGroup
    | ConsumerHeartbeat
    | PatternResolved
    | AssignmentComputed
)
"""The events about one group. Those that wait are as many as clients have requests open."""


class BusyGroups:
    def __init__(
        self, work: Callable[[Iterator[None]], None], step: Callable[[GroupRequest], None]
    ) -> None:
        """`work` has a generator drawn in pieces, `step` steps an event at once."""
        self._work = work
        self._step = step
        self._waiting: dict[str, deque[GroupRequest]] = {}
        self._conversions: dict[str, deque[Iterator[None]]] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def convert(self, group_id: str, steps: Iterator[None]) -> None:
        """Have the steps done in pieces; a request to the group waits until its last conversion is
        complete."""
        if group_id not in self._waiting:
            self._waiting[group_id] = deque()
            self._conversions[group_id] = deque()
            self._work(self._go_on(group_id))
        self._conversions[group_id].append(steps)

    def wait(self, event: GroupRequest) -> None:
        """Step the event of a busy group after those that wait."""
        self._waiting[event.group_id].append(event)

    def put_first(self, event: GroupRequest) -> None:
        """Step the event of a busy group before those that wait."""
        self._waiting[event.group_id].appendleft(event)

    def _go_on(self, group_id: str) -> Iterator[None]:
        waiting, conversions = self._waiting[group_id], self._conversions[group_id]
        while waiting or conversions:
            while conversions:
                yield from conversions.popleft()
            for _ in range(min(PIECE, len(waiting))):
                self._step(waiting.popleft())
                if conversions:
                    break
            yield
        del self._waiting[group_id], self._conversions[group_id]
