"""ConsumerGroupDescribe: consumer groups with their members, from the groups' coordinators.

A member's epoch is that of the assignment it has; `target_assignment` is where the group goes.
Version 1 adds the types of members. Source: KIP-848, KIP-1099.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.fields import (
    boolean,
    int8,
    int16,
    int32,
    int32s,
    name,
    names,
    nullable_string,
    string,
    strings,
    struct,
    structs,
    uuid,
)
from storage_engine.protocol.apis.struct_codec import api

NO_OPERATIONS = -(1 << 31)
"""The bits of operations for a client that has not asked for them."""

UNKNOWN_MEMBER = -1
CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1
"""The types of members, by the protocol that they speak."""


@dataclass(slots=True, kw_only=True)
class ConsumerGroupDescribeRequest:
    """Names the groups."""

    group_ids: Sequence[str] = strings()
    include_authorized_operations: bool = boolean()


@dataclass(slots=True, kw_only=True)
class DescribedTopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    topic_name: str = name()
    partitions: Sequence[int] = int32s()


@dataclass(slots=True, kw_only=True)
class DescribedAssignment:
    """The partitions of a member."""

    topic_partitions: Sequence[DescribedTopicPartitions] = structs(DescribedTopicPartitions)


@dataclass(slots=True, kw_only=True)
class DescribedMember:
    """A member with what it has and what it is to have."""

    member_id: str = string()
    instance_id: str | None = nullable_string(default=None)
    rack_id: str | None = nullable_string(default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: Sequence[str] = names()
    subscribed_topic_regex: str | None = nullable_string(default=None)
    assignment: DescribedAssignment = struct(DescribedAssignment)
    target_assignment: DescribedAssignment = struct(DescribedAssignment)
    member_type: int = int8(1, default=UNKNOWN_MEMBER)


@dataclass(slots=True, kw_only=True)
class DescribedConsumerGroup:
    """A group, or the error that prevents describing it."""

    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: Sequence[DescribedMember] = structs(DescribedMember)
    authorized_operations: int = int32(default=NO_OPERATIONS)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupDescribeResponse:
    """A row for each group that was named."""

    throttle_time_ms: int = int32()
    groups: Sequence[DescribedConsumerGroup] = structs(DescribedConsumerGroup)


API = api(69, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
