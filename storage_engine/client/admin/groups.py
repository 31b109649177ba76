"""Administration of consumer groups: list, describe with their lag, delete.

Each broker is asked for the groups that it coordinates, of either protocol. Source: KIP-222,
KIP-229, KIP-848. The offsets of a group are changed in `offset_resets`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from storage_engine.client.admin.group_descriptions import (
    CLASSIC_TYPE,
    DEAD,
    DescribedGroup,
    GroupMember,
    describe,
)
from storage_engine.client.admin.requests import ask_each_broker
from storage_engine.client.asking import GROUP, ask_coordinator, error_from
from storage_engine.client.cluster import LATEST, Cluster
from storage_engine.client.groups.committed_offsets import committed_offsets
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.delete_groups import API as DELETE_GROUPS
from storage_engine.protocol.messages.delete_groups import DeleteGroupsRequest
from storage_engine.protocol.messages.list_groups import API as LIST_GROUPS
from storage_engine.protocol.messages.list_groups import ListGroupsRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    group: str
    state: str
    protocol_type: str
    coordinator: int
    group_type: str = CLASSIC_TYPE
    """By the protocol of its members: classic or consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """A partition that a group has committed an offset for, or that a member owns."""

    tp: TopicPartition
    offset: int | None
    """The next to read; None where nothing is stored."""
    end_offset: int | None
    """The end of the log, exclusive; None when the partition does not exist any more."""
    member_id: str | None
    """The owner; None when no member owns the partition."""

    @property
    def lag(self) -> int | None:
        """Offsets not read yet; None where that is not known."""
        if self.offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription(DescribedGroup):
    group: str
    partitions: tuple[GroupPartition, ...]
    """The partitions in order."""

    @property
    def lag(self) -> int:
        """The sum over all partitions whose lag is known."""
        return sum(each.lag or 0 for each in self.partitions)


def list_groups(
    cluster: Cluster, *, states: Iterable[str] = (), types: Iterable[str] = ()
) -> list[ListedGroup]:
    """The groups in one of these states, and of one of these types (none: all), by name. KafkaError
    when a broker does not list its groups in time."""
    wanted, kinds = [*states], [*types]
    answers = ask_each_broker(
        cluster,
        "groups",
        LIST_GROUPS,
        ListGroupsRequest(states_filter=wanted, types_filter=kinds),
    )
    groups = [
        ListedGroup(
            group=each.group_id,
            state=each.group_state,
            protocol_type=each.protocol_type,
            coordinator=broker_id,
            # Brokers that do not tell it have no others.
            group_type=(each.group_type or CLASSIC_TYPE).lower(),
        )
        for broker_id, answer in answers
        for each in answer.groups
    ]
    # Older brokers filter by nothing.
    groups = [
        each
        for each in groups
        if _is_among(each.state, wanted) and _is_among(each.group_type, kinds)
    ]
    return sorted(groups, key=lambda each: each.group)


def _is_among(value: str, wanted: Collection[str]) -> bool:
    return not wanted or value.lower() in {each.lower() for each in wanted}


def describe_group(cluster: Cluster, group: str) -> GroupDescription:
    """The members of a group, and the committed offset and the lag of each partition. KafkaError
    GROUP_ID_NOT_FOUND where there is none."""
    found = describe(cluster, group)
    if found.state == DEAD:
        raise KafkaError(
            f"there is no group '{group}'; 'headrace groups list' shows the groups of the cluster",
            ErrorCode.GROUP_ID_NOT_FOUND,
        )
    return GroupDescription(
        group=group,
        group_type=found.group_type,
        state=found.state,
        protocol_type=found.protocol_type,
        protocol=found.protocol,
        coordinator=found.coordinator,
        members=found.members,
        epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        partitions=_progress(cluster, committed_offsets(cluster, group), found.members),
    )


def group_members(cluster: Cluster, group: str) -> tuple[GroupMember, ...]:
    """Return the members; empty when the group does not exist."""
    return describe(cluster, group).members


def _progress(
    cluster: Cluster, stored: Mapping[TopicPartition, int], members: Iterable[GroupMember]
) -> tuple[GroupPartition, ...]:
    owners = {tp: member.member_id for member in members for tp in member.partitions}
    partitions = sorted({*stored, *owners})
    ends = offsets_where_there(cluster, partitions, LATEST)
    return tuple(
        GroupPartition(
            tp=tp, offset=stored.get(tp), end_offset=ends.get(tp), member_id=owners.get(tp)
        )
        for tp in partitions
    )


def offsets_where_there(
    cluster: Cluster, partitions: Iterable[TopicPartition], at_ms: int
) -> dict[TopicPartition, int]:
    """Like `Cluster.list_offsets`, but leaves out partitions that do not exist."""
    wanted = set(partitions)
    topics = cluster.metadata(sorted({tp.topic for tp in wanted})).topics
    there = (
        tp for tp in wanted if tp.topic in topics and tp.partition in topics[tp.topic].partitions
    )
    return cluster.list_offsets(dict.fromkeys(there, at_ms))


def delete_group(cluster: Cluster, group: str) -> None:
    """Deletes a group and its committed offsets. Raises KafkaError NON_EMPTY_GROUP while it has
    members, GROUP_ID_NOT_FOUND when it does not exist."""
    try:
        ask_coordinator(
            cluster,
            GROUP,
            group,
            DELETE_GROUPS,
            DeleteGroupsRequest(groups_names=[group]),
            lambda answer: error_from(answer.results[0].error_code, what=f"group '{group}'"),
        )
    except KafkaError as error:
        if error.code is ErrorCode.NON_EMPTY_GROUP:
            raise has_members(group) from None
        raise


def has_members(group: str, count: int | None = None) -> KafkaError:
    """Why nobody else may change what a group has stored, or delete it. `count`: where known."""
    number = "" if count is None else f"{count} "
    return KafkaError(
        f"group '{group}' has {number}members: stop them first, since they would go on from where "
        "they are",
        ErrorCode.NON_EMPTY_GROUP,
    )
