"""A group as its coordinator describes it, whichever protocol its members speak.

ConsumerGroupDescribe knows groups of the consumer protocol alone, and DescribeGroups all others:
the former is asked first where brokers serve it. Source: KIP-848, KIP-1043.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from storage_engine.client.asking import GROUP, ask_coordinator, error_from
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.groups.group import CONSUMER
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis import consumer_group_describe
from storage_engine.protocol.apis.consumer_group_describe import (
    CLASSIC_MEMBER,
    ConsumerGroupDescribeRequest,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedMember,
)
from storage_engine.protocol.consumer_protocol import decode_assignment
from storage_engine.protocol.messages.describe_groups import API as DESCRIBE_GROUPS
from storage_engine.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

CLASSIC_TYPE, CONSUMER_TYPE = "classic", "consumer"
"""The types of groups, by the protocol of their members."""

DEAD = "Dead"
"""The state of a group that does not exist."""

_NOT_THAT_TYPE = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    """The partitions assigned to a consumer; in a classic group known while it is stable."""
    protocol: str = CLASSIC_TYPE
    """The protocol that it speaks: a classic member may be in a consumer group."""
    epoch: int | None = None
    """The epoch of its partitions; None in a classic group, which has none of what follows."""
    target: tuple[TopicPartition, ...] | None = None
    """The partitions that it is to have when others have let them go."""
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group without its offsets."""

    group_type: str
    state: str
    protocol_type: str
    protocol: str
    """How partitions are assigned."""
    coordinator: int
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    """It goes up whenever members or topics change; None: a classic group."""
    assignment_epoch: int | None = None
    """The epoch of the targets of members, which follows that of the group."""


def describe(cluster: Cluster, group: str) -> DescribedGroup:
    """Ask the coordinator. The state is DEAD where there is no such group."""
    found = _consumer_group(cluster, group)
    return _classic_group(cluster, group) if found is None else found


def _consumer_group(cluster: Cluster, group: str) -> DescribedGroup | None:
    """None where it is no group of the consumer protocol."""
    message = ConsumerGroupDescribeRequest(group_ids=[group])
    what = f"group '{group}'"
    try:
        coordinator, answer = ask_coordinator(
            cluster,
            GROUP,
            group,
            consumer_group_describe.API,
            message,
            lambda answer: error_from(
                answer.groups[0].error_code, answer.groups[0].error_message, what=what
            ),
        )
    except KafkaError as error:
        if error.code in _NOT_THAT_TYPE:
            return None
        raise
    described: DescribedConsumerGroup = answer.groups[0]
    return DescribedGroup(
        group_type=CONSUMER_TYPE,
        state=described.group_state,
        protocol_type=CONSUMER,
        protocol=described.assignor_name,
        coordinator=coordinator,
        members=tuple(map(_member, described.members)),
        epoch=described.group_epoch,
        assignment_epoch=described.assignment_epoch,
    )


def _member(row: DescribedMember) -> GroupMember:
    return GroupMember(
        member_id=row.member_id,
        instance_id=row.instance_id,
        client_id=row.client_id,
        host=row.client_host,
        partitions=_partitions(row.assignment),
        protocol=CLASSIC_TYPE if row.member_type == CLASSIC_MEMBER else CONSUMER_TYPE,
        epoch=row.member_epoch,
        target=_partitions(row.target_assignment),
        topics=tuple(row.subscribed_topic_names),
        pattern=row.subscribed_topic_regex or None,
        rack=row.rack_id,
    )


def _partitions(assignment: DescribedAssignment) -> tuple[TopicPartition, ...]:
    rows: Iterable[TopicPartition] = (
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )
    return tuple(sorted(rows))


def _classic_group(cluster: Cluster, group: str) -> DescribedGroup:
    coordinator, answer = ask_coordinator(
        cluster,
        GROUP,
        group,
        DESCRIBE_GROUPS,
        DescribeGroupsRequest(groups=[group], include_authorized_operations=False),
        lambda answer: _classic_error(group, answer.groups[0]),
    )
    described: DescribeGroupsResponse.DescribedGroup = answer.groups[0]
    consumers = described.protocol_type == CONSUMER
    return DescribedGroup(
        group_type=CLASSIC_TYPE,
        state=described.group_state or DEAD,
        protocol_type=described.protocol_type,
        protocol=described.protocol_data,
        coordinator=coordinator,
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                host=each.client_host,
                partitions=decode_assignment(each.member_assignment) if consumers else (),
            )
            for each in described.members
        ),
    )


def _classic_error(
    group: str, described: DescribeGroupsResponse.DescribedGroup
) -> KafkaError | None:
    """From version 6 on a group that does not exist is an error beside the state."""
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    return error_from(described.error_code, what=f"group '{group}'")
