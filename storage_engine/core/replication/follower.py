"""Finds the offset to which a follower truncates its log so that it agrees with the leader's.

Only leader epochs decide, never the follower's own high watermark (R-REP8). Source: KIP-101,
KIP-279, KIP-595 (the leader names the divergence in its answer to a fetch).
"""

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
