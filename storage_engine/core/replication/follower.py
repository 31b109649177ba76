"""Finds the offset to which a follower truncates its log so that it agrees with the leader's: only
leader epochs decide, never the follower's own high watermark (R-REP8). And the quota for the
traffic of replicas that are not in sync, a bucket that leaks at the rate: an excess is paid back by
waiting, so that the rate holds on average however large one answer is. Source: KIP-73, KIP-101,
KIP-279, KIP-595 (the leader names the divergence in its answer to a fetch).
"""

from dataclasses import dataclass
from typing import Protocol

from storage_engine.core.errors import ErrorCode, KafkaError


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
    `log_start_offset`: the leader's; 0 for a consumer, to which it does not matter what is below.
    A follower that may have other batches there is sent below it, so that it begins anew.
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
"""How far the traffic may be ahead of the rate, as in Kafka's window of one second: a fetch is
larger than what a small rate allows in a moment."""

ALL = "*"


@dataclass(slots=True)
class ReplicationQuota:
    """The quota of one direction on one broker."""

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
