"""Where reading goes on, and whether rows that were read follow those before them.

An offset names a record only together with the leader epoch before it: an unclean election cuts off
offsets and gives them to other records. So the log is asked, by OffsetForLeaderEpoch, whether it
still has the epoch of the record before a position up to that position. Source: KIP-101, KIP-320.
"""

import enum
from dataclasses import dataclass
from uuid import UUID

from headrace_lake.protocol.progress import PartitionProgress
from headrace_lake.protocol.stops import (
    ACCEPTED_GAPS,
    TOPIC_ID,
    StopKind,
    TableStoppedError,
    property_set_by,
)
from storage_engine.core.ids import NO_EPOCH, LeaderEpoch, topic_id_to_text


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeEpochEnd:
    """The answer to OffsetForLeaderEpoch. An epoch that the log does not know is (-1, -1)."""

    leader_epoch: LeaderEpoch
    end_offset: int


EpochEnd = LakeEpochEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAnswer:
    """The leader's word about a partition. All of it is asked after the progress was read."""

    topic_id: UUID
    start_offset: int
    end_offset: int
    """The high watermark."""
    epoch_end: EpochEnd | None
    """None where the progress has no epoch to ask for."""
    leader_epoch: LeaderEpoch = NO_EPOCH
    """The epoch of the leader that answered; `may_follow` needs it."""


def resume(
    name: str,
    topic_id: UUID,
    progress: PartitionProgress | None,
    log: LogAnswer,
    *,
    accepts_gaps: bool = False,
) -> int:
    """Return the offset to read from; `name` is `<topic>-<partition>`, `topic_id` the table's.

    TableStoppedError when the log's offsets are no longer those that the table holds, and for
    records that were never read, unless gaps are accepted.
    """
    if log.topic_id != topic_id:
        raise recreated(name, log.topic_id)
    if progress is None:
        return log.start_offset
    end_offset = progress.end_offset
    kept_until = log.end_offset
    if log.epoch_end is not None:
        kept_until = min(kept_until, log.epoch_end.end_offset)
        if log.epoch_end.leader_epoch != progress.leader_epoch:
            kept_until = min(kept_until, end_offset - 1)
    if kept_until < end_offset:
        raise TableStoppedError(
            StopKind.TRUNCATED,
            f"{name}: the table holds records up to offset {end_offset}, and the log lost some of "
            f"them (offset {max(kept_until, 0)} on) and gave their offsets to others, or will: "
            "write the topic to a table at another location",
        )
    if log.start_offset > end_offset and not accepts_gaps:
        raise TableStoppedError(
            StopKind.GAP,
            f"{name}: records from offset {end_offset} to {log.start_offset} were deleted by "
            "retention before they came into the table: write the topic to a table at another "
            f"location, or go on without them: {property_set_by(ACCEPTED_GAPS, 'true')}",
        )
    return max(end_offset, log.start_offset)


class RowsFollow(enum.Enum):
    """Whether fetched rows may be put behind those before them."""

    YES = enum.auto()
    ASK_FIRST = enum.auto()
    """Only if `may_follow` says so."""


def rows_follow(
    name: str,
    topic_id: UUID,
    position: PartitionProgress | None,
    *,
    fetched_topic_id: UUID,
    first_leader_epoch: LeaderEpoch,
) -> RowsFollow:
    """Return whether rows may follow the position at which they were fetched.

    `first_leader_epoch` is that of their first batch. `fetched_topic_id` is the topic's id in the
    fetch, or as it was asked for after the rows came.
    """
    if fetched_topic_id != topic_id:
        raise recreated(name, fetched_topic_id)
    if position is None or position.leader_epoch in (NO_EPOCH, first_leader_epoch):
        return RowsFollow.YES
    return RowsFollow.ASK_FIRST


def may_follow(
    name: str,
    topic_id: UUID,
    position: PartitionProgress,
    log: LogAnswer,
    *,
    fetched_from: LeaderEpoch,
) -> bool:
    """Return whether rows may follow the position, after it was asked for; else drop them, and
    fetch again.

    `fetched_from` is the epoch of the leader that the rows came from. The same leader must have
    answered: its log has only grown meanwhile. Another one may have a branch that was lost before,
    on which the position is, and the rows are not.
    """
    if resume(name, topic_id, position, log) != position.end_offset:
        return False
    return log.leader_epoch == fetched_from


def recreated(name: str, topic_id: UUID) -> TableStoppedError:
    new_id = topic_id_to_text(topic_id)
    return TableStoppedError(
        StopKind.RECREATED,
        f"{name}: the topic was deleted and created anew, its id is now {new_id}: write it to a "
        "table at another location, or keep the old rows and let the new ones follow: "
        f"{property_set_by(TOPIC_ID, new_id)}",
    )
