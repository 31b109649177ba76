"""The requests that a member of a group sends.

Source: Kafka's classic group protocol.
"""

from collections.abc import Mapping
from typing import TypeAlias

from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.range_assignment import RANGE
from storage_engine.client.groups.group_requests import GroupRequest, MemberIdentity
from storage_engine.core.groups.group import CONSUMER
from storage_engine.protocol.messages.heartbeat import API as HEARTBEAT
from storage_engine.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from storage_engine.protocol.messages.join_group import API as JOIN_GROUP
from storage_engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from storage_engine.protocol.messages.leave_group import API as LEAVE_GROUP
from storage_engine.protocol.messages.leave_group import LeaveGroupRequest
from storage_engine.protocol.messages.sync_group import API as SYNC_GROUP
from storage_engine.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

Answer: TypeAlias = HeartbeatResponse | JoinGroupResponse | SyncGroupResponse
"""The answers that the member's state follows."""


def _group_of(config: ConsumerConfig) -> str:
    assert config.group_id is not None, "only members of a group send these"
    return config.group_id


def join(config: ConsumerConfig, member_id: str, subscription: bytes) -> GroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    message = JoinGroupRequest(
        group_id=_group_of(config),
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=CONSUMER,
        protocols=[protocol(name=RANGE, metadata=subscription)],
        reason=None,
    )
    return GroupRequest(spec=JOIN_GROUP, message=message)


def sync(
    config: ConsumerConfig, caller: MemberIdentity, assignments: Mapping[str, bytes]
) -> GroupRequest:
    """`assignments` of the leader; others give none."""
    row = SyncGroupRequest.SyncGroupRequestAssignment
    message = SyncGroupRequest(
        group_id=_group_of(config),
        generation_id=caller.generation,
        member_id=caller.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=CONSUMER,
        protocol_name=RANGE,
        assignments=[row(member_id=id_, assignment=each) for id_, each in assignments.items()],
    )
    return GroupRequest(spec=SYNC_GROUP, message=message)


def heartbeat(config: ConsumerConfig, caller: MemberIdentity) -> GroupRequest:
    message = HeartbeatRequest(
        group_id=_group_of(config),
        generation_id=caller.generation,
        member_id=caller.member_id,
        group_instance_id=config.group_instance_id,
    )
    return GroupRequest(spec=HEARTBEAT, message=message)


def leave(config: ConsumerConfig, member_id: str) -> GroupRequest:
    identity = LeaveGroupRequest.MemberIdentity(
        member_id=member_id, group_instance_id=config.group_instance_id, reason=None
    )
    message = LeaveGroupRequest(group_id=_group_of(config), member_id=member_id, members=[identity])
    return GroupRequest(spec=LEAVE_GROUP, message=message)
