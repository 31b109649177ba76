"""The leader's state machine for one partition: followers' progress, high watermark, ISR.

`step(event)` returns effects and touches nothing else. The high watermark never moves back while a
leader leads. At most one change of the ISR is under way, and until its outcome is known every
decision that could acknowledge data uses the larger of the two sets (`maximal`). Source: R-REP3 to
R-REP6, KIP-497 (pending ISR), KIP-903 (stale incarnations stay out).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from storage_engine.core.ids import (
    NO_EPOCH,
    NO_TAIL_LOST,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedIsr:
    """The ISR that the partition's state in ZooKeeper names."""

    members: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        return self.members


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExpand:
    """A caught-up follower has been proposed; it already counts for the high watermark."""

    members: frozenset[BrokerId]
    joining: BrokerId

    @property
    def maximal(self) -> frozenset[BrokerId]:
        return self.members | {self.joining}

    @property
    def proposed(self) -> frozenset[BrokerId]:
        return self.members | {self.joining}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingShrink:
    """The removal of laggards has been proposed; until it is accepted they still count."""

    members: frozenset[BrokerId]
    leaving: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        return self.members

    @property
    def proposed(self) -> frozenset[BrokerId]:
        return self.members - self.leaving


IsrState = CommittedIsr | PendingExpand | PendingShrink


UNKNOWN_OFFSET = -1
"""End offset of a follower that has not fetched from this leader yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The leader's log grew."""

    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """The leader's log was flushed, where only flushed records count as replicated
    (`flush.before.ack`)."""

    flushed_end_offset: int | None
    """None when everything in the log counts, flushed or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerFetched:
    """A follower asked for records from `fetch_offset` on: it holds all below it."""

    replica: BrokerId
    fetch_offset: int
    log_end_offset: int
    """The end of the leader's log at the time of its answer."""
    now_ms: int
    eligible: bool = True
    """False for an incarnation that is not the registered one, and for a broker in controlled
    shutdown."""
    broker_epoch: BrokerEpoch = NO_TAIL_LOST
    """The follower's incarnation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrAccepted:
    """The proposed ISR was written."""

    isr: frozenset[BrokerId]
    partition_epoch: PartitionEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrOutcomeUnknown:
    """The write was rejected, or its answer never came: the state has to be read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateObserved:
    """The partition's state was read again after a proposal with unknown outcome."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: frozenset[BrokerId]
    partition_epoch: PartitionEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class LagCheck:
    """Time has passed: followers may have become laggards."""

    now_ms: int
    log_end_offset: int


Event = (
    Appended
    | Flushed
    | FollowerFetched
    | IsrAccepted
    | IsrOutcomeUnknown
    | StateObserved
    | LagCheck
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermarkAdvanced:
    """Everything below the offset is on every in-sync replica: consumers may read it, and requests
    with acks=all may be answered."""

    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeIsr:
    """Write this ISR if the state's version is still `partition_epoch`."""

    isr: frozenset[BrokerId]
    partition_epoch: PartitionEpoch
    joined_epochs: Mapping[BrokerId, BrokerEpoch] = field(default_factory=dict)
    """The joined epochs of the members of this ISR, see `PartitionState`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """Read the partition's state and report it as StateObserved."""


Effect = HighWatermarkAdvanced | ProposeIsr | ReadState


@dataclass(slots=True, eq=False)
class SessionClock:
    """The time of the last fetch in a follower's fetch session (KIP-227).

    Such a fetch names only what has changed. It speaks for the other partitions of the session,
    too: the follower still holds what it held.
    """

    fetched_ms: int = 0


@dataclass(slots=True)
class FollowerProgress:
    """The leader's view of one follower."""

    end_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = 0
    """The last time at which the follower held everything that the leader had."""
    fetched_ms: int = 0
    leader_end_at_fetch: int = 0
    session: SessionClock | None = None
    """Set while the follower is in the ISR and holds everything: each fetch of this session says
    so again. Invariant: it is settled before the leader's end, the epoch or the ISR changes."""

    def settle(self) -> None:
        """Record the last fetch of the session as one of this partition; later ones say nothing of
        it until it is named again."""
        session, self.session = self.session, None
        if session is not None:
            fetched_ms = session.fetched_ms
            if fetched_ms > self.caught_up_ms:
                self.caught_up_ms = fetched_ms
            if fetched_ms > self.fetched_ms:
                self.fetched_ms = fetched_ms

    def note_fetch(self, event: FollowerFetched) -> None:
        """Record a fetch. One from the leader's end, or from the end at the time of the fetch
        before, counts as caught up (R-REP4)."""
        self.settle()
        if event.fetch_offset >= event.log_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, event.now_ms)
        elif self.fetched_ms and event.fetch_offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = event.fetch_offset
        self.fetched_ms = event.now_ms
        self.leader_end_at_fetch = event.log_end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LagLimits:
    """The limits beyond which a follower counts as out of sync."""

    lag_max_ms: int
    lag_max_messages: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The content of a LeaderAndIsr for the partition's leader."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: frozenset[BrokerId]
    assigned_replicas: tuple[BrokerId, ...]
    joined_epochs: Mapping[BrokerId, BrokerEpoch] = field(default_factory=dict)
    """The joined epochs, see `PartitionState`."""


class LeaderPartition:
    """The state of a partition on the broker that leads it."""

    __slots__ = (
        "_flushed_end_offset",
        "_followers",
        "_joined_epochs",
        "_limits",
        "_local",
        "_log_end_offset",
        "assigned_replicas",
        "epoch_start_offset",
        "high_watermark",
        "isr",
        "leader_epoch",
        "partition_epoch",
    )

    def __init__(
        self,
        leadership: Leadership,
        *,
        local: BrokerId,
        log_end_offset: int,
        high_watermark: int,
        now_ms: int,
        limits: LagLimits,
        flushed_end_offset: int | None = None,
    ) -> None:
        """`flushed_end_offset`: see `Flushed`."""
        self._local = local
        self._limits = limits
        self._log_end_offset = log_end_offset
        self._flushed_end_offset = flushed_end_offset
        self._followers: dict[BrokerId, FollowerProgress] = {}
        self._joined_epochs: dict[BrokerId, BrokerEpoch] = {}
        """By replica, in the ISR or not, the incarnation that was last seen to hold all that is
        committed."""
        self.high_watermark = min(high_watermark, log_end_offset)
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = PartitionEpoch(-1)
        self.epoch_start_offset = log_end_offset
        self.assigned_replicas: tuple[BrokerId, ...] = ()
        self.isr: IsrState = CommittedIsr(members=leadership.isr)
        self.renew(leadership, now_ms=now_ms)

    def renew(self, leadership: Leadership, *, now_ms: int) -> list[Effect]:
        """Lead on under a newer epoch, with the log unchanged (R-CTL3).

        The followers' progress stays valid if this is the next epoch. In an epoch that this leader
        was not sent, another broker may have led, and followers may have truncated their logs.
        """
        assert leadership.leader_epoch >= self.leader_epoch
        self._settle_sessions()
        if leadership.leader_epoch > self.leader_epoch + 1:
            self._followers = {}
        if leadership.leader_epoch > self.leader_epoch:
            self.epoch_start_offset = self._log_end_offset
        self.leader_epoch = leadership.leader_epoch
        self.partition_epoch = leadership.partition_epoch
        self.assigned_replicas = leadership.assigned_replicas
        self.isr = CommittedIsr(members=leadership.isr)
        for replica, broker_epoch in leadership.joined_epochs.items():
            self._note_joined(replica, broker_epoch)
        followers = {}
        for replica in leadership.assigned_replicas:
            if replica == self._local:
                continue
            progress = self._followers.get(replica)
            if progress is None:
                # A member of the ISR gets the whole lag time for its first fetch.
                in_sync = replica in leadership.isr
                progress = FollowerProgress(caught_up_ms=now_ms if in_sync else 0)
            followers[replica] = progress
        self._followers = followers
        return self._advance_high_watermark()

    def step(self, event: Event) -> list[Effect]:
        """Apply one event; the effects are for the driver to carry out, in order."""
        match event:
            case Appended():
                self._see_end(event.log_end_offset)
                return self._advance_high_watermark()
            case Flushed():
                self._flushed_end_offset = event.flushed_end_offset
                return self._advance_high_watermark()
            case FollowerFetched():
                return self._on_follower_fetched(event)
            case LagCheck():
                self._see_end(event.log_end_offset)
                return self._shrink(event.now_ms)
            case IsrAccepted():
                return self._commit(event.isr, event.partition_epoch)
            case IsrOutcomeUnknown():
                return [] if isinstance(self.isr, CommittedIsr) else [ReadState()]
            case StateObserved():
                return self._on_observed(event)

    def _see_end(self, log_end_offset: int) -> None:
        """Take note of the log's end. What sessions said was about the end before."""
        if log_end_offset != self._log_end_offset:
            self._settle_sessions()
            self._log_end_offset = log_end_offset

    def _settle_sessions(self) -> None:
        for progress in self._followers.values():
            progress.settle()

    def note_fetch_at_end(
        self,
        replica: BrokerId,
        end_offset: int,
        *,
        now_ms: int,
        broker_epoch: BrokerEpoch,
        session: SessionClock | None = None,
    ) -> bool:
        """Record another fetch from the end by a member of the ISR that is known to hold
        everything: only its time changes. This does what FollowerFetched would do at a fraction of
        the cost, since a fetch may name a thousand idle partitions. Return False, with nothing
        recorded, where the fetch may mean more.

        From then on each further fetch in `session` counts as one of this partition as well, until
        the leader's end, the epoch or the ISR changes (`has_in_session`).
        """
        progress = self._followers.get(replica)
        if (
            progress is None
            or not progress.end_offset == self._log_end_offset == end_offset
            or not isinstance(self.isr, CommittedIsr)
            or replica not in self.isr.members
            or self._joined_epochs.get(replica, NO_TAIL_LOST) < broker_epoch
        ):
            return False
        progress.caught_up_ms = max(progress.caught_up_ms, now_ms)
        progress.fetched_ms = now_ms
        progress.leader_end_at_fetch = end_offset
        progress.session = session
        return True

    def holds_all_everywhere(self, log_end_offset: int) -> bool:
        """Whether every follower has all up to this end, so that a LagCheck would do nothing."""
        if log_end_offset != self._log_end_offset:
            return False
        return all(each.end_offset == log_end_offset for each in self._followers.values())

    def has_in_session(self, replica: BrokerId, session: SessionClock) -> bool:
        """Whether the fetches of the session speak for this partition without naming it."""
        progress = self._followers.get(replica)
        return progress is not None and progress.session is session

    def leave_session(self, replica: BrokerId, session: SessionClock) -> None:
        """End the session for this partition, which the follower's fetches leave out now."""
        if self.has_in_session(replica, session):
            self._followers[replica].settle()

    def follower_end_offset(self, replica: BrokerId) -> int:
        """Return a follower's end offset; UNKNOWN_OFFSET while it has not fetched."""
        progress = self._followers.get(replica)
        return progress.end_offset if progress else UNKNOWN_OFFSET

    def _on_follower_fetched(self, event: FollowerFetched) -> list[Effect]:
        progress = self._followers.get(event.replica)
        if progress is None:
            return []
        self._see_end(event.log_end_offset)
        progress.note_fetch(event)
        effects: list[Effect] = []
        if event.eligible and self._holds_what_is_committed(progress):
            self._note_joined(event.replica, event.broker_epoch)
            effects.extend(self._expand(event.replica))
        effects.extend(self._advance_high_watermark())
        return effects

    def _holds_what_is_committed(self, progress: FollowerProgress) -> bool:
        """Return True when the follower holds all that is committed: that may reach as far as this
        epoch's start, though the high watermark here is still lower."""
        return progress.end_offset >= max(self.high_watermark, self.epoch_start_offset)

    def _note_joined(self, replica: BrokerId, broker_epoch: BrokerEpoch) -> None:
        known = self._joined_epochs.get(replica, NO_TAIL_LOST)
        if broker_epoch > known:
            self._joined_epochs[replica] = broker_epoch

    def _expand(self, replica: BrokerId) -> list[Effect]:
        """Propose a follower that holds what is committed for the ISR."""
        isr = self.isr
        if not isinstance(isr, CommittedIsr) or replica in isr.members:
            return []
        self.isr = PendingExpand(members=isr.members, joining=replica)
        return [self._proposal(self.isr)]

    def _proposal(self, isr: PendingExpand | PendingShrink) -> ProposeIsr:
        joined = self._joined_epochs
        return ProposeIsr(
            isr=isr.proposed,
            partition_epoch=self.partition_epoch,
            joined_epochs={r: joined[r] for r in isr.proposed if r in joined},
        )

    def _shrink(self, now_ms: int) -> list[Effect]:
        isr = self.isr
        if not isinstance(isr, CommittedIsr):
            return []
        laggards = frozenset(self._laggards(isr.members, now_ms))
        if not laggards:
            return []
        self.isr = PendingShrink(members=isr.members, leaving=laggards)
        return [self._proposal(self.isr)]

    def _laggards(self, members: Iterable[BrokerId], now_ms: int) -> Iterable[BrokerId]:
        limits = self._limits
        for replica in members:
            progress = self._followers.get(replica)
            if progress is None or progress.end_offset == self._log_end_offset:
                continue
            lag = self._log_end_offset - max(progress.end_offset, 0)
            too_long = now_ms - progress.caught_up_ms > limits.lag_max_ms
            too_far = limits.lag_max_messages is not None and lag > limits.lag_max_messages
            if too_long or too_far:
                yield replica

    def _commit(self, isr: frozenset[BrokerId], partition_epoch: PartitionEpoch) -> list[Effect]:
        if partition_epoch <= self.partition_epoch:
            return []
        self._settle_sessions()
        self.isr = CommittedIsr(members=isr)
        self.partition_epoch = partition_epoch
        return self._advance_high_watermark()

    def _on_observed(self, event: StateObserved) -> list[Effect]:
        """Settle a proposal of unknown outcome. A newer leader epoch is left to the LeaderAndIsr
        that will bring it."""
        isr = self.isr
        if isinstance(isr, CommittedIsr) or event.leader_epoch != self.leader_epoch:
            return []
        if event.leader != self._local:
            return []
        if event.partition_epoch > self.partition_epoch:
            return self._commit(event.isr, event.partition_epoch)
        return [self._proposal(isr)]

    def _advance_high_watermark(self) -> list[Effect]:
        """Advance the high watermark to the smallest end offset of the maximal ISR (R-REP5); for
        the leader itself the end of what counts as replicated is taken."""
        lowest = self._log_end_offset
        if self._flushed_end_offset is not None:
            lowest = min(lowest, self._flushed_end_offset)
        followers = self._followers
        for replica in self.isr.maximal:
            if replica == self._local:
                continue
            progress = followers.get(replica)
            if progress is None:
                # It is in the ISR but no longer assigned: the controller is about to remove it.
                return []
            if progress.end_offset < lowest:
                lowest = progress.end_offset
        if lowest <= self.high_watermark:
            return []
        self.high_watermark = lowest
        return [HighWatermarkAdvanced(high_watermark=lowest)]
