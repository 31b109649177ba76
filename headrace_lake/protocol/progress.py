"""How far a table holds each partition of its topic.

A table's commit carries it as versions of applications, which every Delta writer keeps:

    application                       version
    headrace:<topic id>:<partition>          the end offset: where reading goes on
    headrace:<topic id>:<partition>:epoch    the leader epoch of the record before it, -1: unknown
    headrace:<topic id>:table                the version of the table that this commit makes
    headrace:<topic id>:swept                the version of the last sweep, in its own commit

The end offset and the rows below it are in one commit, so they can't part.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from storage_engine.core.ids import NO_EPOCH, LeaderEpoch, topic_id_to_text


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeProgress:
    """How far a partition is in the table."""

    end_offset: int
    """The position behind the last consumed offset, which may be a marker's."""
    leader_epoch: LeaderEpoch = NO_EPOCH
    """The epoch of the record, or marker, before `end_offset`."""


Progress = Mapping[int, LakeProgress]
"""By partition; one that the table has nothing of is missing."""


def marker_application(topic_id: UUID) -> str:
    return f"{_prefix(topic_id)}table"


def sweep_application(topic_id: UUID) -> str:
    return f"{_prefix(topic_id)}swept"


def offset_application(topic_id: UUID, partition: int) -> str:
    return f"{_prefix(topic_id)}{partition}"


def epoch_application(topic_id: UUID, partition: int) -> str:
    return f"{_prefix(topic_id)}{partition}:epoch"


def as_applications(topic_id: UUID, progress: Progress) -> dict[str, int]:
    """Return the versions of applications that tell this progress."""
    found: dict[str, int] = {}
    for partition, each in sorted(progress.items()):
        found[offset_application(topic_id, partition)] = each.end_offset
        found[epoch_application(topic_id, partition)] = each.leader_epoch
    return found


def of_applications(
    topic_id: UUID, versions: Mapping[str, int], partitions: Iterable[int]
) -> dict[int, LakeProgress]:
    """The inverse of `as_applications`, for those of the partitions that are there."""
    found = {}
    for partition in partitions:
        end_offset = versions.get(offset_application(topic_id, partition))
        if end_offset is not None:
            epoch = versions.get(epoch_application(topic_id, partition), NO_EPOCH)
            found[partition] = LakeProgress(end_offset=end_offset, leader_epoch=LeaderEpoch(epoch))
    return found


def _prefix(topic_id: UUID) -> str:
    return f"headrace:{topic_id_to_text(topic_id)}:"
