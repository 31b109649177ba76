"""The offsets at which the leader epochs of a log begin; epochs and start offsets both strictly
increase. By them alone, never by its own high watermark, a follower finds the offset to which it
truncates its log so that it agrees with the leader's (R-REP8).

The traffic of replicas that are not in sync has a quota, which is a leaky bucket: after more bytes
than the rate allows, the next ones wait, so that the rate holds on average. Source:
KIP-73, KIP-101, KIP-279, KIP-595 (the leader names the divergence in its answer to a fetch).
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from storage_engine.core.errors import ErrorCode, KafkaError

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    """The first offset that a leader of `epoch` wrote, or would have written."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest epoch that is at most the requested one, with its exclusive `end_offset`; both -1
    when unknown.
    """

    epoch: int
    end_offset: int


UNDEFINED_END = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochCache:
    """The epochs of one log, oldest first."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        """Entries that contradict earlier ones, as a torn checkpoint can have them, are dropped."""
        self._entries: list[EpochStart] = []
        for epoch, start_offset in entries or ():
            if epoch >= 0 and start_offset >= 0 and self._extends(epoch, start_offset):
                self._entries.append(EpochStart(epoch, start_offset))

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The latest epoch; -1 when there is none."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`; return True when that changed anything.

        A known latest epoch keeps its start. Entries of later epochs or offsets belong to a history
        that was truncated, and are dropped.
        """
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return where `epoch` ends, as OffsetForLeaderEpoch answers it.

        The latest epoch ends at the log's end; an older one where the next begins; one newer than
        the latest is undefined. For an epoch without records here, the answer names the largest one
        below it (KIP-279); for one older than all, itself with the start of the first known epoch,
        which may lie below the log's start.
        """
        entries = self._entries
        if epoch < 0 or not entries or epoch > entries[-1].epoch:
            return UNDEFINED_END
        if epoch == entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        following = bisect_right(entries, epoch, key=_epoch_of)
        if following == 0:
            return EpochEnd(epoch, entries[0].start_offset)
        return EpochEnd(entries[following - 1].epoch, entries[following].start_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the epoch that wrote `offset`; -1 when unknown."""
        preceding = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[preceding - 1].epoch if preceding else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop the epochs that begin at or after `end_offset`; return True when that changed
        anything."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        changed = len(kept) != len(self._entries)
        self._entries = kept
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop the epochs that ended below the log's new start; return True when that changed
        anything.

        The epoch of the last deleted offset stays, with its own start. Kafka moves that start up to
        the log's start; then the leader can't tell whether a follower has the same batches below
        it, and the follower keeps wrong ones, with the state of their producers.
        """
        preceding = bisect_right(self._entries, start_offset - 1, key=_start_of)
        if preceding <= 1:
            return False
        self._entries = self._entries[preceding - 1 :]
        return True

    def clear(self) -> None:
        self._entries = []

    def _extends(self, epoch: int, start_offset: int) -> bool:
        if not self._entries:
            return True
        last = self._entries[-1]
        return epoch > last.epoch and start_offset > last.start_offset


def _epoch_of(entry: EpochStart) -> int:
    return entry.epoch


def _start_of(entry: EpochStart) -> int:
    return entry.start_offset


class EpochEnds(Protocol):
    """The part of a leader-epoch cache that truncation needs, see `LeaderEpochCache`."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, its exclusive end offset); (-1, -1) when there is
        none."""
        ...

    def epoch_at(self, offset: int) -> int:
        """Return the epoch that wrote `offset`; -1 when unknown."""
        ...


def truncation_offset(
    epochs: EpochEnds, *, log_end_offset: int, diverging_epoch: int, leader_end_offset: int
) -> int:
    """Return the end offset to truncate to, after the leader said that its `diverging_epoch` ends
    at `leader_end_offset`.

    A follower without that epoch truncates to the end of its own next lower one; the next fetch
    then compares that one (KIP-279 needs these rounds after fast failovers).
    """
    own_epoch, own_end_offset = epochs.end_offset_for(diverging_epoch, log_end_offset)
    if own_epoch == -1:
        return min(leader_end_offset, log_end_offset)
    if own_epoch != diverging_epoch:
        return min(own_end_offset, log_end_offset)
    return min(own_end_offset, leader_end_offset, log_end_offset)


def divergence(
    epochs: EpochEnds,
    *,
    log_end_offset: int,
    fetch_offset: int,
    last_fetched_epoch: int,
    log_start_offset: int = 0,
) -> tuple[int, int] | None:
    """Check a fetch on the leader: return (epoch, end offset) where the follower's log diverges, or
    None.

    `last_fetched_epoch` is the epoch of the record just below `fetch_offset`, -1 for an empty log.
    `log_start_offset`: the leader's; 0 for a consumer, which does not care about records below it.
    For a follower that may have other batches below it, the returned end offset lies below it, so
    that the follower begins anew.
    Raises KafkaError UNKNOWN_LEADER_EPOCH for an epoch that this leader can't judge: no log is
    truncated on a guess.
    """
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = epochs.end_offset_for(last_fetched_epoch, log_end_offset)
    if epoch == last_fetched_epoch and end_offset >= fetch_offset:
        is_older = log_start_offset > 0 and epoch < epochs.epoch_at(log_start_offset)
        if is_older and epochs.epoch_at(log_start_offset - 1) < 0:
            # The leader's log began in the middle: its first epoch may have begun before.
            return (epoch, log_start_offset - 1)
        return None
    if epoch == -1:
        # A leader records its epoch before it serves, so its cache has all epochs that a follower
        # can have.
        raise KafkaError(
            f"leader epoch {last_fetched_epoch} is newer than the leader's own",
            ErrorCode.UNKNOWN_LEADER_EPOCH,
        )
    return (epoch, end_offset)


BURST_MS = 1000
"""The traffic may be ahead of the rate by as much as it allows in this time, Kafka's window of one
second: one fetch is often larger than a small rate allows at a moment."""

ALL = "*"


@dataclass(slots=True)
class ReplicationQuota:
    bytes_per_second: int
    _level: float = 0.0
    """The bytes that have not leaked yet."""
    _at_ms: int = 0

    def record(self, size_bytes: int, *, now_ms: int) -> None:
        self._leak(now_ms)
        self._level += size_bytes

    def delay_ms(self, *, now_ms: int) -> int:
        """Return how long to wait before sending or fetching more; 0 for not at all."""
        self._leak(now_ms)
        over = self._level - self.bytes_per_second * BURST_MS / 1000
        return 0 if over <= 0 else int(over * 1000 / self.bytes_per_second) + 1

    def _leak(self, now_ms: int) -> None:
        leaked = self.bytes_per_second * max(0, now_ms - self._at_ms) / 1000
        self._level = max(0.0, self._level - leaked)
        self._at_ms = now_ms


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The throttled replicas of a topic: `partition:broker` each, or `*` for all."""

    everyone: bool = False
    replicas: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def of(cls, items: tuple[str, ...]) -> "ThrottledReplicas":
        """Parse the value of a setting that has been validated."""
        if not items:
            return NONE_THROTTLED
        pairs = (item.split(":") for item in items if item != ALL)
        return cls(
            everyone=ALL in items,
            replicas=frozenset((int(partition), int(broker)) for partition, broker in pairs),
        )

    def covers(self, partition: int, broker: int) -> bool:
        return self.everyone or (partition, broker) in self.replicas


NONE_THROTTLED = ThrottledReplicas()
