"""Changes the committed offsets of a group from outside it: sets, shifts and deletes them.

The group must have no members, since members would continue from their positions and commit those.
New offsets are within the partitions' logs. Source: KIP-122, KIP-496.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from storage_engine.client.admin.groups import group_members, has_members, offsets_where_there
from storage_engine.client.admin.topics import names_in
from storage_engine.client.asking import GROUP, ask_coordinator
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.groups.committed_offsets import (
    OffsetCommitter,
    committed_offsets,
    worst_error,
)
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition, numbers_by_topic
from storage_engine.protocol.messages.offset_delete import API as OFFSET_DELETE
from storage_engine.protocol.messages.offset_delete import OffsetDeleteRequest

_Topic = OffsetDeleteRequest.OffsetDeleteRequestTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """The change of a group's committed offset for one partition."""

    tp: TopicPartition
    before: int | None
    """None when no offset was committed."""
    after: int


def set_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Store where a group without members goes on; it is made where there is none. KafkaError
    NON_EMPTY_GROUP while it has members."""
    try:
        OffsetCommitter(cluster, group).commit(offsets)
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            raise has_members(group) from None
        raise


def reset_offsets(
    cluster: Cluster,
    group: str,
    *,
    topics: Iterable[str] = (),
    at_ms: int | None = None,
    offset: int | None = None,
    shift_by: int | None = None,
    dry_run: bool = False,
) -> list[OffsetReset]:
    """Commit other offsets for a group without members, in all partitions of `topics` (none: in the
    partitions that the group has offsets of). Exactly one argument says which: `at_ms`, the first
    record from that time on, or EARLIEST or LATEST; `offset` itself; or `shift_by`, added to the
    present offset. An offset outside of a log becomes the nearest one within it. Returns the
    changes by partition; `dry_run` changes nothing. Errors as `set_offsets`; ConfigError where
    there is no partition, or no offset to shift."""
    if sum(each is not None for each in (at_ms, offset, shift_by)) != 1:
        raise ConfigError(
            "give exactly one of at_ms, offset and shift_by: it says where the group continues"
        )
    if members := group_members(cluster, group):
        raise has_members(group, len(members))
    stored = committed_offsets(cluster, group)
    wanted = [
        TopicPartition(topic, number)
        for topic in names_in(topics)
        for number in cluster.topic(topic).partitions
    ] or sorted(stored)
    if not wanted:
        raise ConfigError(f"group '{group}' has no committed offsets; give the topics to reset")
    first = offsets_where_there(cluster, wanted, EARLIEST)
    last = offsets_where_there(cluster, wanted, LATEST)
    if gone := sorted(set(wanted) - last.keys()):
        raise ConfigError(
            f"{gone[0]}, which the group has an offset for, does not exist any more; "
            "give the topics to reset"
        )
    if at_ms is not None:
        found = last if at_ms == LATEST else cluster.list_offsets(dict.fromkeys(wanted, at_ms))
        targets = {tp: last[tp] if at < 0 else at for tp, at in found.items()}
    elif offset is not None:
        targets = dict.fromkeys(wanted, offset)
    else:
        if missing := sorted(set(wanted) - stored.keys()):
            raise ConfigError(
                f"group '{group}' has no committed offset for {missing[0]} that could be shifted"
            )
        targets = {tp: stored[tp] + (shift_by or 0) for tp in wanted}
    resets = [
        OffsetReset(tp=tp, before=stored.get(tp), after=min(max(targets[tp], first[tp]), last[tp]))
        for tp in sorted(targets)
    ]
    if not dry_run:
        set_offsets(cluster, group, {reset.tp: reset.after for reset in resets})
    return resets


def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> None:
    """Forget what the group has stored of these. KafkaError GROUP_SUBSCRIBED_TO_TOPIC while members
    read one of the topics (the others are forgotten all the same), GROUP_ID_NOT_FOUND."""
    row = _Topic.OffsetDeleteRequestPartition
    topics = [
        _Topic(name=name, partitions=[row(partition_index=number) for number in numbers])
        for name, numbers in numbers_by_topic(partitions).items()
    ]
    message = OffsetDeleteRequest(group_id=group, topics=topics)
    ask_coordinator(
        cluster,
        GROUP,
        group,
        OFFSET_DELETE,
        message,
        lambda answer: worst_error(group, answer.error_code, answer.topics),
    )
