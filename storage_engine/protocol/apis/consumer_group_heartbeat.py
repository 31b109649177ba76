"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays, acknowledges and leaves.

A field that has not changed since the member's last heartbeat is null, or -1. Version 1 adds
patterns, and has the member choose its own id. Source: KIP-848, KIP-1082.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.fields import (
    int16,
    int32,
    int32s,
    nullable_names,
    nullable_string,
    nullable_struct,
    nullable_structs,
    string,
    structs,
    uuid,
)
from storage_engine.protocol.apis.struct_codec import api

UNCHANGED_MS = -1

FIRST_VERSION_WITH_PATTERN = 1
FIRST_VERSION_WITH_OWN_ID = 1
"""From there on the member chooses its id before it joins."""


@dataclass(slots=True, kw_only=True)
class OwnedPartitions:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: Sequence[int] = int32s()


@dataclass(slots=True, kw_only=True)
class ConsumerGroupHeartbeatRequest:
    """`topic_partitions` are the partitions that the member owns."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = nullable_string(default=None)
    rack_id: str | None = nullable_string(default=None)
    rebalance_timeout_ms: int = int32(default=UNCHANGED_MS)
    subscribed_topic_names: Sequence[str] | None = nullable_names()
    subscribed_topic_regex: str | None = nullable_string(FIRST_VERSION_WITH_PATTERN, default=None)
    server_assignor: str | None = nullable_string(default=None)
    topic_partitions: Sequence[OwnedPartitions] | None = nullable_structs(
        OwnedPartitions, is_null=True
    )


@dataclass(slots=True, kw_only=True)
class Assignment:
    """The partitions that a member may read from now on."""

    topic_partitions: Sequence[OwnedPartitions] = structs(OwnedPartitions)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupHeartbeatResponse:
    """The assignment is null where the member knows it already."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    member_id: str | None = nullable_string(default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nullable_struct(Assignment)


API = api(68, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
