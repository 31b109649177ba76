"""A member of a group of the consumer protocol, as a pure state machine: the coordinator assigns,
and a member follows by heartbeats.

            subscribed               answered
    OUT ----------------> JOINING ------------> MEMBER
     ^                     ^   ^                  |  fenced
     | unsubscribed,       |   |     released     v
     | fatal error         |   +-------------- FENCED
     +---------------------+-------- POLL_TIMED_OUT: not polled for max.poll.interval.ms

A heartbeat with member epoch 0 joins and says everything; later ones say what has changed, and
everything again after one whose answer was lost, so that the answer says everything, too. One is
under way at a time.

What an answer takes away is released by the owner, in its own thread, and the rest is read on. Only
then a heartbeat says what the owner has: the coordinator gives nothing to another member that this
one has not left out of it. So the owner takes nothing while a heartbeat may be on its way that
leaves it out. A member that is fenced gives up everything before it joins anew. Source: KIP-848.
"""

import enum
from collections import deque
from dataclasses import dataclass
from uuid import UUID

from storage_engine.client.consumer.membership import (
    ASK_AGAIN,
    NO_LONGER_A_MEMBER,
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
from storage_engine.core.groups.assignors.assignment import Assignment

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2
"""The epoch with which a static member leaves: its partitions wait for it for a session timeout."""

UNRELEASED_MAX_MS = 60_000
"""How long a static member waits for its name: one that was killed holds it until its session ends,
after 45 s by default and 60 s at most."""
UNRELEASED_PAUSE_MS = 1_000

_FENCED = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        # The group was deleted, or its last members' sessions have ended.
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class ConsumerStage(enum.Enum):
    OUT = "not in the group"
    JOINING = "waits for the answer to its first heartbeat"
    MEMBER = "in the group"
    FENCED = "must give up its partitions before it joins again"
    POLL_TIMED_OUT = "left the group: it did not poll in time"
    FAILED = "failed: the coordinator refused it for good"


# --- events ---


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatAnswered:
    """A heartbeat was answered, or has failed."""

    now_ms: int
    error: ErrorCode
    message: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assignment: Assignment | None = None
    """None: as before."""


@dataclass(frozen=True, slots=True)
class TopicsKnown:
    """The names of these topics are known."""

    topics: frozenset[UUID]


Event = MemberEvent | BeatAnswered | TopicsKnown


# --- effects ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBeat:
    """Sends ConsumerGroupHeartbeat."""

    epoch: int
    is_full: bool
    """Whether it says everything."""
    tells_subscription: bool
    owned: Assignment | None
    """The partitions that the owner has; None: as they were told last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFarewell:
    """Sends the last heartbeat; the answer is ignored."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePartitions:
    """The owner has to let go of partitions, None of all. `lost`: they may be another's already, so
    that commits are refused."""

    lost: bool
    partitions: Assignment | None = None


@dataclass(frozen=True, slots=True)
class TakePartitions:
    """The owner gets these partitions beside those that it has."""

    partitions: Assignment


Effect = SendBeat | SendFarewell | FindCoordinator | ReleasePartitions | TakePartitions | Fail


class ConsumerMembership:
    """The membership of one consumer. Invariant: `owned` has each partition from the effect that
    gives it to the owner until the Released by which the owner has let it go."""

    def __init__(self, *, max_poll_interval_ms: int, is_static: bool = False) -> None:
        self._max_poll_interval_ms = max_poll_interval_ms
        self._leaving_epoch = STATIC_LEAVING_EPOCH if is_static else LEAVING_EPOCH
        self.stage = ConsumerStage.OUT
        self.epoch = JOINING_EPOCH
        self.joins = 1
        """It goes up whenever the partitions that it has may be another's."""
        self.owned: Assignment = {}
        self.assigned: Assignment = {}
        """By the last answer that says so."""
        self.known: frozenset[UUID] = frozenset()
        """The topics whose names are known, of those that are owned or assigned."""
        self._gives_anything = False
        """Whether the owner is told of its part even if that is empty: it has just joined."""
        self._releases: deque[Assignment | None] = deque()
        """The partitions that the owner was asked to release and still has; None: all."""
        self._beat: SendBeat | None = None
        """The heartbeat that is under way."""
        self._beat_ms = 0
        """The time when the next heartbeat is due."""
        self._told: Assignment | None = None
        """The last `owned` that the coordinator has heard; None: it may have heard anything."""
        self._owes_answer = False
        """Whether the coordinator waits to hear of `owned`: it has taken something away, which the
        owner may not even have got."""
        self._subscription_is_told = False
        self._unreleased_since_ms: int | None = None
        self._polled_ms = 0
        self._effects: list[Effect] = []

    def step(self, event: Event) -> list[Effect]:
        match event:
            case Subscribed():
                self._polled_ms = event.now_ms
                self._subscription_is_told = False
                if self.stage not in (
                    ConsumerStage.JOINING,
                    ConsumerStage.MEMBER,
                    ConsumerStage.FENCED,
                ):
                    self._join_anew()
            case Unsubscribed():
                self._leave()
                self.stage, self.owned = ConsumerStage.OUT, {}
                self._releases.clear()
            case Polled():
                is_news = event.now_ms > self._polled_ms
                self._polled_ms = max(self._polled_ms, event.now_ms)
                if self.stage is ConsumerStage.POLL_TIMED_OUT and is_news:
                    self._join_anew()
            case Released():
                self._released()
            case MembershipTick():
                self._tick(event.now_ms)
            case _:
                self._heard(event)
        self._reconcile()
        self.known &= self.owned.keys() | self.assigned.keys()
        if self._beat is None and self._has_news:
            self._send()
        effects, self._effects = self._effects, []
        return effects

    def _heard(self, event: CommitAnswered | BeatAnswered | TopicsKnown) -> None:
        match event:
            case CommitAnswered():
                if event.error in NO_LONGER_A_MEMBER:
                    # The coordinator says with a heartbeat's answer what has become of the member.
                    self._beat_ms = 0
            case BeatAnswered():
                self._answered(event)
            case TopicsKnown():
                self.known |= event.topics

    def due_ms(self) -> int | None:
        """The time of the next MembershipTick; None while only answers and the owner can change
        anything."""
        if self.stage not in (ConsumerStage.JOINING, ConsumerStage.MEMBER):
            return None
        lapse_ms = self._polled_ms + self._max_poll_interval_ms
        return lapse_ms if self._beat is not None else min(self._beat_ms, lapse_ms)

    @property
    def unknown_topics(self) -> frozenset[UUID]:
        """The assigned topics whose names are not known: the owner can't read them yet."""
        return frozenset(self.assigned.keys() - self.known)

    # --- what is due ---

    def _tick(self, now_ms: int) -> None:
        if self.stage not in (ConsumerStage.JOINING, ConsumerStage.MEMBER):
            return
        if now_ms >= self._polled_ms + self._max_poll_interval_ms:
            self._leave()
            self.stage = ConsumerStage.POLL_TIMED_OUT
        elif self._beat is None and now_ms >= self._beat_ms:
            self._send()

    @property
    def _has_news(self) -> bool:
        """Whether a heartbeat does not wait until it is due."""
        match self.stage:
            case ConsumerStage.JOINING:
                return self._unreleased_since_ms is None
            case ConsumerStage.MEMBER:
                tells_owned = self._told != self.owned or self._is_waited_for
                return tells_owned or not self._subscription_is_told
            case _:
                return False

    @property
    def _is_waited_for(self) -> bool:
        """Whether the coordinator waits for what is true by now."""
        return self._owes_answer and not self._releases

    def _send(self) -> None:
        is_full = self.stage is ConsumerStage.JOINING or self._told is None
        self._beat = SendBeat(
            epoch=self.epoch,
            is_full=is_full,
            tells_subscription=is_full or not self._subscription_is_told,
            owned=self.owned
            if is_full or self._told != self.owned or self._is_waited_for
            else None,
        )
        # What is subscribed to from now on is told by the next one.
        self._subscription_is_told = True
        self._effects.append(self._beat)

    # --- the way in and out ---

    def _join_anew(self) -> None:
        """Joins, as soon as the owner has nothing of its former membership."""
        self._lose()
        if self.owned:
            self.stage = ConsumerStage.FENCED
            self._releases.append(None)
            self._effects.append(ReleasePartitions(lost=True))
        else:
            self.stage = ConsumerStage.JOINING

    def _lose(self) -> None:
        """Forgets what the coordinator has assigned and was told."""
        self.epoch, self.assigned = JOINING_EPOCH, {}
        self._told, self._owes_answer = None, False
        self.joins += 1
        self._beat, self._unreleased_since_ms = None, None
        self._gives_anything = True

    def _leave(self) -> None:
        if self.stage in (ConsumerStage.JOINING, ConsumerStage.MEMBER):
            self._effects.append(SendFarewell(epoch=self._leaving_epoch))
        self._lose()

    def _released(self) -> None:
        if not self._releases:
            return
        gone = self._releases.popleft()
        self.owned = {} if gone is None else without(self.owned, gone)
        if self.stage is ConsumerStage.FENCED and not self._releases:
            self.stage = ConsumerStage.JOINING

    # --- assignments ---

    def _reconcile(self) -> None:
        """Takes away first: the owner knows partitions by the names of their topics, and a topic
        that was made anew has the name of the old one."""
        if self.stage is not ConsumerStage.MEMBER or self._releases:
            return
        if gone := without(self.owned, self.assigned):
            self._releases.append(gone)
            self._effects.append(ReleasePartitions(lost=False, partitions=gone))
            return
        if self._told is None or (self._beat is not None and self._beat.owned is not None):
            return
        new = without(self.assigned, self.owned)
        new = {topic: new[topic] for topic in new.keys() & self.known}
        if new or (self._gives_anything and not self.unknown_topics):
            self._gives_anything = False
            self.owned = {
                topic: self.owned.get(topic, frozenset()) | new.get(topic, frozenset())
                for topic in self.owned.keys() | new.keys()
            }
            self._effects.append(TakePartitions(new))

    # --- answers ---

    def _answered(self, event: BeatAnswered) -> None:
        beat, self._beat = self._beat, None
        if beat is None or self.stage not in (ConsumerStage.JOINING, ConsumerStage.MEMBER):
            return
        if event.error is not ErrorCode.NONE:
            self._failed(event)
            return
        self.stage, self.epoch = ConsumerStage.MEMBER, event.epoch
        self._unreleased_since_ms = None
        self._beat_ms = event.now_ms + event.interval_ms
        if beat.owned is not None:
            self._told, self._owes_answer = beat.owned, False
        if event.assignment is not None:
            self._owes_answer |= bool(without(self.assigned, event.assignment))
            self.assigned = event.assignment

    def _failed(self, event: BeatAnswered) -> None:
        # Whatever it has said may have arrived or not.
        self._told, self._subscription_is_told = None, False
        self._beat_ms = event.now_ms
        if event.error in ASK_AGAIN:
            self._effects.append(FindCoordinator())
        elif event.error in _FENCED and self.stage is ConsumerStage.MEMBER:
            self._join_anew()
        elif event.error in _FENCED:
            # The group still has this member, from a join whose answer was lost.
            self._effects += [SendFarewell(epoch=self._leaving_epoch), FindCoordinator()]
        elif event.error is ErrorCode.UNRELEASED_INSTANCE_ID and self._may_wait(event.now_ms):
            self._beat_ms = event.now_ms + UNRELEASED_PAUSE_MS
        else:
            self._lose()
            self.stage = ConsumerStage.FAILED
            self._effects.append(Fail(error=event.error, message=event.message))

    def _may_wait(self, now_ms: int) -> bool:
        """Whether to wait for a name that a member has. It may be this one, from a join whose
        answer was lost; the coordinator ignores the farewell of any other."""
        if self._unreleased_since_ms is None:
            self._unreleased_since_ms = now_ms
            self._effects.append(SendFarewell(epoch=self._leaving_epoch))
        return now_ms - self._unreleased_since_ms < UNRELEASED_MAX_MS


def without(these: Assignment, those: Assignment) -> Assignment:
    """Return the partitions of `these` that are not among `those`."""
    left = {topic: numbers - those.get(topic, frozenset()) for topic, numbers in these.items()}
    return {topic: numbers for topic, numbers in left.items() if numbers}
