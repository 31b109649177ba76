"""Where reading goes on: when a table is opened, and after a fetch that was refused.

An offset names a record only together with the leader epoch before it: an unclean election cuts off
offsets and gives them to other records. So each fetch says both, and the leader gives rows only if
its log has the record before them, else the epoch at which the two part. That answer names a place
and not what to do: what is in no commit is dropped, and the log is asked here, by
OffsetForLeaderEpoch, about what the table holds. Source: KIP-101, KIP-320.
"""

from dataclasses import dataclass
from uuid import UUID

from headrace_lake.protocol.progress import LakeProgress
from headrace_lake.protocol.stops import (
    ACCEPTED_GAPS,
    TOPIC_ID,
    StopKind,
    TableStoppedError,
    property_set_by,
)
from storage_engine.core.ids import topic_id_to_text
from storage_engine.core.replication.leader_epochs import EpochEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAnswer:
    """The leader's word about a partition. All of it is asked after the progress was read."""

    topic_id: UUID
    start_offset: int
    end_offset: int
    """The high watermark."""
    epoch_end: EpochEnd | None
    """The end of the progress's epoch; None where that is not known."""


def resume(
    name: str,
    topic_id: UUID,
    progress: LakeProgress | None,
    log: LogAnswer,
    *,
    accepts_gaps: bool = False,
) -> LakeProgress:
    """Return the position of the first fetch; `name` is `<topic>-<partition>`, `topic_id` the
    table's. Its epoch is unknown where the table does not hold what is right before it.

    TableStoppedError when the log's offsets are no longer those that the table holds, and for
    records that were never read, unless gaps are accepted.
    """
    if log.topic_id != topic_id:
        raise recreated(name, log.topic_id)
    if progress is None:
        return LakeProgress(end_offset=log.start_offset)
    end_offset = progress.end_offset
    kept_until = log.end_offset
    if log.epoch_end is not None:
        kept_until = min(kept_until, log.epoch_end.end_offset)
        if log.epoch_end.epoch != progress.leader_epoch:
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
    if log.start_offset > end_offset:
        return LakeProgress(end_offset=log.start_offset)
    return progress


def recreated(name: str, topic_id: UUID) -> TableStoppedError:
    new_id = topic_id_to_text(topic_id)
    return TableStoppedError(
        StopKind.RECREATED,
        f"{name}: the topic was deleted and created anew, its id is now {new_id}: write it to a "
        "table at another location, or keep the old rows and let the new ones follow: "
        f"{property_set_by(TOPIC_ID, new_id)}",
    )
