"""A member of a group of the classic protocol, as a pure state machine. A member joins a generation
only when it has stopped reading the partitions of the one before.

                 subscribed            answered            assigned
    OUT ---------------------> JOINING ---------> SYNCING ---------> MEMBER
     ^                          ^    ^               |                 |  rebalance, lost session,
     | unsubscribed,            |    +---------------+                 |  other topics
     | fatal error      revoked |      rebalance                       v
     +--------------------------+------------------------------- REVOKING
                                         or POLL_TIMED_OUT: not polled for max.poll.interval.ms

`step(event)` returns effects. The driver carries them out in order. A member has at most one
request in flight; a newer one replaces the older, whose answer is ignored. Owners give up
partitions in their own thread, and report it (`Released`); until then a member that is still in the
group keeps its session. Source: Kafka's classic group protocol, KIP-62, KIP-345, KIP-394.
"""

import enum
from dataclasses import dataclass
from typing import assert_never

from storage_engine.client.consumer.membership import (
    ASK_AGAIN,
    NO_GENERATION,
    NO_LONGER_A_MEMBER,
    NO_MEMBER,
    CommitAnswered,
    Fail,
    FindCoordinator,
    MemberEvent,
    MembershipTick,
    Polled,
    Released,
    Subscribed,
    Unsubscribed,
)
from storage_engine.core.errors import ErrorCode

_REBALANCES = frozenset({ErrorCode.REBALANCE_IN_PROGRESS})


class Stage(enum.Enum):
    OUT = "not in the group"
    JOINING = "waits for the other members"
    SYNCING = "waits for its assignment"
    MEMBER = "in the group"
    REVOKING = "must give up its partitions before it joins again"
    POLL_TIMED_OUT = "left the group: it did not poll in time"
    FAILED = "failed: the coordinator refused it for good"


# --- events ---


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswered:
    error: ErrorCode
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswered:
    error: ErrorCode
    now_ms: int
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswered:
    error: ErrorCode
    now_ms: int


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The topics, or the numbers of their partitions, are others than when it joined."""


Event = MemberEvent | JoinAnswered | SyncAnswered | HeartbeatAnswered | TopicsChanged


# --- effects ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SendJoin:
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSync:
    """Sends SyncGroup for the generation of the last JoinGroup."""

    member_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeartbeat:
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLeave:
    """Sends LeaveGroup; the answer is ignored."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The owner has to let go of everything. `lost`: it may be another's already, so that commits
    are refused."""

    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """The partitions that the leader has assigned to the owner, encoded."""

    assignment: bytes


Wanted = SendJoin | SendSync | SendHeartbeat
"""A request to send; it takes the place of an earlier one."""

Effect = Wanted | SendLeave | FindCoordinator | Release | Take | Fail


class ClassicMembership:
    """The membership of one consumer. Invariant: `owns` is true from a Take until every Release
    since then is answered by a Released: a late one must not be taken for the end of partitions
    that were given later."""

    def __init__(
        self, *, heartbeat_interval_ms: int, max_poll_interval_ms: int, is_static: bool = False
    ) -> None:
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._max_poll_interval_ms = max_poll_interval_ms
        self._is_static = is_static
        self.stage = Stage.OUT
        self.member_id = NO_MEMBER
        self.generation = NO_GENERATION
        self.owns = False
        self._releases = 0
        """The owner has been asked to release its partitions and has not yet done so."""
        self._heartbeat_ms = 0
        """The time when the next heartbeat is due."""
        self._heartbeat_is_out = False
        """Whether a heartbeat is sent and not answered."""
        self._polled_ms = 0
        self._effects: list[Effect] = []

    def step(self, event: Event) -> list[Effect]:
        match event:
            case Subscribed():
                self._polled_ms = event.now_ms
                self._join_anew(lost=False)
            case Unsubscribed():
                self._leave()
                self.stage, self.owns, self._releases = Stage.OUT, False, 0
            case Polled():
                is_news = event.now_ms > self._polled_ms
                self._polled_ms = max(self._polled_ms, event.now_ms)
                if self.stage is Stage.POLL_TIMED_OUT and is_news:
                    self._join_anew(lost=True)
            case Released():
                self._releases = max(0, self._releases - 1)
                self.owns = self._releases > 0
                if self.stage is Stage.REVOKING and not self.owns:
                    self._join()
            case MembershipTick():
                self._tick(event.now_ms)
            case TopicsChanged():
                if self.stage is Stage.MEMBER:
                    self._join_anew(lost=False)
            case _:
                self._answered(event)
        effects, self._effects = self._effects, []
        return effects

    def _answered(
        self, event: JoinAnswered | SyncAnswered | HeartbeatAnswered | CommitAnswered
    ) -> None:
        match event:
            case JoinAnswered():
                self._join_answered(event)
            case SyncAnswered():
                self._sync_answered(event)
            case HeartbeatAnswered():
                self._heartbeat_is_out = False
                self._heartbeat_ms = event.now_ms + self._heartbeat_interval_ms
                self._apply_error(event.error)
                if event.error in ASK_AGAIN and self._is_in:
                    self._heartbeat_ms = event.now_ms
            case CommitAnswered():
                if event.generation == self.generation and event.error not in ASK_AGAIN:
                    self._apply_error(event.error)
            case _:
                assert_never(event)

    def due_ms(self) -> int | None:
        """The time of the next MembershipTick; None while only answers and the owner can change
        anything."""
        match self.stage:
            case Stage.MEMBER | Stage.REVOKING if self._is_in:
                lapse_ms = self._polled_ms + self._max_poll_interval_ms
                return lapse_ms if self._heartbeat_is_out else min(self._heartbeat_ms, lapse_ms)
            case Stage.JOINING | Stage.SYNCING:
                return self._polled_ms + self._max_poll_interval_ms
            case _:
                return None

    @property
    def _is_in(self) -> bool:
        """Whether the group waits for its heartbeats."""
        return self.generation != NO_GENERATION and self.stage in (Stage.MEMBER, Stage.REVOKING)

    def _tick(self, now_ms: int) -> None:
        if self.stage in (Stage.OUT, Stage.POLL_TIMED_OUT, Stage.FAILED):
            return
        if now_ms >= self._polled_ms + self._max_poll_interval_ms:
            self._leave()
            self.stage = Stage.POLL_TIMED_OUT
        elif self._is_in and now_ms >= self._heartbeat_ms and not self._heartbeat_is_out:
            self._heartbeat_is_out = True
            self._effects.append(
                SendHeartbeat(member_id=self.member_id, generation=self.generation)
            )

    def _join_anew(self, *, lost: bool) -> None:
        """Gives up the present partitions and joins again."""
        self._heartbeat_is_out = False
        if lost:
            self.generation = NO_GENERATION
        if self.owns:
            self.stage = Stage.REVOKING
            self._releases += 1
            self._effects.append(Release(lost=lost))
        else:
            self._join()

    def _join(self) -> None:
        self.stage, self._heartbeat_is_out = Stage.JOINING, False
        self._effects.append(SendJoin(member_id=self.member_id))

    def _leave(self) -> None:
        """A static member keeps its part until its session ends."""
        if self.member_id != NO_MEMBER and not self._is_static:
            self._effects.append(SendLeave(member_id=self.member_id))
            self.member_id = NO_MEMBER
        self.generation = NO_GENERATION

    def _join_answered(self, event: JoinAnswered) -> None:
        if self.stage is not Stage.JOINING:
            return
        match event.error:
            case ErrorCode.NONE:
                self.member_id, self.generation = event.member_id, event.generation
                self.stage = Stage.SYNCING
                self._effects.append(SendSync(member_id=self.member_id, generation=self.generation))
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = event.member_id
                self._join()
            case _:
                self._apply_error(event.error)

    def _sync_answered(self, event: SyncAnswered) -> None:
        if self.stage is not Stage.SYNCING:
            return
        if event.error is ErrorCode.NONE:
            self.stage, self.owns = Stage.MEMBER, True
            self._heartbeat_ms = event.now_ms + self._heartbeat_interval_ms
            self._effects.append(Take(assignment=event.assignment))
        else:
            self._apply_error(event.error)

    def _apply_error(self, error: ErrorCode) -> None:
        """Apply an error, whatever request it answers."""
        if error is ErrorCode.NONE or self.stage in (Stage.OUT, Stage.POLL_TIMED_OUT, Stage.FAILED):
            return
        waits = self.stage in (Stage.JOINING, Stage.SYNCING)
        if error in ASK_AGAIN:
            self._effects.append(FindCoordinator())
            if waits:
                self._join()
        elif error in NO_LONGER_A_MEMBER:
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = NO_MEMBER
            if self.stage is not Stage.REVOKING or self.generation != NO_GENERATION:
                self._join_anew(lost=True)
        elif error in _REBALANCES:
            if self.stage is not Stage.REVOKING:
                self._join_anew(lost=False)
        else:
            self.generation = NO_GENERATION
            self.stage = Stage.FAILED
            self._effects.append(Fail(error=error))
