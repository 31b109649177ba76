"""Groups whose conversion is done in pieces, since it looks at all members. Clients are told to ask
again meanwhile: rights, and that a transaction goes on, are checked before the step. Only members
that leave wait, and are stepped in their order afterwards."""

from collections import deque
from collections.abc import Callable, Iterator

from storage_engine.core.coordinator_log import PIECE
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer.events import (
    AssignmentComputed,
    ConsumerHeartbeat,
    PatternResolved,
)
from storage_engine.core.groups.events import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    GroupLog,
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
        self,
        log: GroupLog,
        work: Callable[[Iterator[None]], None],
        step: Callable[[GroupRequest], None],
    ) -> None:
        """`work` has a generator drawn in pieces, `step` steps an event at once."""
        self._log = log
        self._work = work
        self._step = step
        self.waiting: dict[str, deque[GroupRequest]] = {}
        """The events that wait, by busy group; for reading only."""
        self._conversions: dict[str, deque[Iterator[None]]] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self.waiting

    def convert(self, group_id: str, steps: Iterator[None]) -> None:
        """Have the steps done in pieces; the group is busy until its last conversion is
        complete."""
        if group_id not in self.waiting:
            self.waiting[group_id] = deque()
            self._conversions[group_id] = deque()
            self._work(self._go_on(group_id))
        self._conversions[group_id].append(steps)

    def receive(self, event: GroupRequest) -> None:
        """Take up an event of a busy group. What clients don't ask for again is stepped after those
        that wait; the rest is answered as in Kafka while a coordinator loads, since Java's consumer
        does not expect COORDINATOR_LOAD_IN_PROGRESS of each request."""
        match event:
            case PatternResolved() | AssignmentComputed() | Leave():
                self.waiting[event.group_id].append(event)
            case ConsumerHeartbeat() if event.member_epoch < 0:
                self.waiting[event.group_id].append(event)
            case MemberHeartbeat():
                self._log.refuse(event.request, ErrorCode.NONE)
            case Sync():
                self._log.refuse(event.request, ErrorCode.REBALANCE_IN_PROGRESS)
            case _:
                self._log.refuse(event.request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def put_first(self, event: GroupRequest) -> None:
        """Step the event of a busy group before those that wait."""
        self.waiting[event.group_id].appendleft(event)

    def _go_on(self, group_id: str) -> Iterator[None]:
        waiting, conversions = self.waiting[group_id], self._conversions[group_id]
        while waiting or conversions:
            while conversions:
                yield from conversions.popleft()
            for _ in range(min(PIECE, len(waiting))):
                self._step(waiting.popleft())
                if conversions:
                    break
            yield
        del self.waiting[group_id], self._conversions[group_id]
