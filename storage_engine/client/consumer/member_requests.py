"""The requests that a member of a group sends.

Source: Kafka's classic group protocol.
"""

from collections.abc import Mapping

from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.range_assignment import RANGE
from storage_engine.client.groups.group_requests import GroupRequest, MemberIdentity
from storage_engine.core.groups.subscription import CONSUMER
from storage_engine.protocol.apis.registry import api_of

_JOIN_GROUP, _HEARTBEAT, _LEAVE_GROUP, _SYNC_GROUP = 11, 12, 13, 14


def join(config: ConsumerConfig, member_id: str, subscription: bytes) -> GroupRequest:
    spec, request = api_of(_JOIN_GROUP)
    protocol = request.JoinGroupRequestProtocol
    message = request(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=CONSUMER,
        protocols=[protocol(name=RANGE, metadata=subscription)],
        reason=None,
    )
    return GroupRequest(spec=spec, message=message)


def sync(
    config: ConsumerConfig, caller: MemberIdentity, assignments: Mapping[str, bytes]
) -> GroupRequest:
    """`assignments` of the leader; others give none."""
    spec, request = api_of(_SYNC_GROUP)
    row = request.SyncGroupRequestAssignment
    message = request(
        group_id=config.group_id,
        generation_id=caller.generation,
        member_id=caller.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=CONSUMER,
        protocol_name=RANGE,
        assignments=[row(member_id=id_, assignment=each) for id_, each in assignments.items()],
    )
    return GroupRequest(spec=spec, message=message)


def heartbeat(config: ConsumerConfig, caller: MemberIdentity) -> GroupRequest:
    spec, request = api_of(_HEARTBEAT)
    message = request(
        group_id=config.group_id,
        generation_id=caller.generation,
        member_id=caller.member_id,
        group_instance_id=config.group_instance_id,
    )
    return GroupRequest(spec=spec, message=message)


def leave(config: ConsumerConfig, member_id: str) -> GroupRequest:
    spec, request = api_of(_LEAVE_GROUP)
    identity = request.MemberIdentity(
        member_id=member_id, group_instance_id=config.group_instance_id, reason=None
    )
    message = request(group_id=config.group_id, member_id=member_id, members=[identity])
    return GroupRequest(spec=spec, message=message)
