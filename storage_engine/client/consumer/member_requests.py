"""The requests that a member of a group sends.

Source: Kafka's classic group protocol; KIP-848.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_membership import JOINING_EPOCH
from storage_engine.client.consumer.range_assignment import RANGE
from storage_engine.client.groups.group_requests import GroupRequest, MemberIdentity
from storage_engine.core.errors import ConfigError
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.group import CONSUMER
from storage_engine.protocol.apis.consumer_group_heartbeat import API as CONSUMER_GROUP_HEARTBEAT
from storage_engine.protocol.apis.consumer_group_heartbeat import (
    FIRST_VERSION_WITH_PATTERN,
    UNCHANGED_MS,
    ConsumerGroupHeartbeatRequest,
    OwnedPartitions,
)
from storage_engine.protocol.messages.heartbeat import API as HEARTBEAT
from storage_engine.protocol.messages.heartbeat import HeartbeatRequest
from storage_engine.protocol.messages.join_group import API as JOIN_GROUP
from storage_engine.protocol.messages.join_group import JoinGroupRequest
from storage_engine.protocol.messages.leave_group import API as LEAVE_GROUP
from storage_engine.protocol.messages.leave_group import LeaveGroupRequest
from storage_engine.protocol.messages.sync_group import API as SYNC_GROUP
from storage_engine.protocol.messages.sync_group import SyncGroupRequest

RE2_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}
"""The flags of a pattern that brokers understand, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldSubscription:
    """A subscription as heartbeats say it."""

    topics: Sequence[str]
    pattern: str | None
    """None: as before; an empty one takes back an earlier one."""


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


def beat(
    config: ConsumerConfig,
    member_id: str,
    epoch: int,
    *,
    subscription: ToldSubscription | None = None,
    owned: Assignment | None = None,
    is_full: bool = False,
) -> GroupRequest:
    """A heartbeat of the consumer protocol. None stands for what has not changed."""
    rows = None
    if epoch == JOINING_EPOCH:
        rows = []
    elif owned is not None:
        rows = [
            OwnedPartitions(topic_id=topic, partitions=sorted(numbers))
            for topic, numbers in owned.items()
        ]
    message = ConsumerGroupHeartbeatRequest(
        group_id=_group_of(config),
        member_id=member_id,
        member_epoch=epoch,
        instance_id=config.group_instance_id,
        rack_id=None,
        rebalance_timeout_ms=config.max_poll_interval_ms if is_full else UNCHANGED_MS,
        subscribed_topic_names=None if subscription is None else subscription.topics,
        subscribed_topic_regex=None if subscription is None else subscription.pattern,
        server_assignor=config.group_remote_assignor if is_full else None,
        topic_partitions=rows,
    )
    has_pattern = message.subscribed_topic_regex is not None
    return GroupRequest(
        spec=CONSUMER_GROUP_HEARTBEAT,
        message=message,
        least_version=FIRST_VERSION_WITH_PATTERN if has_pattern else 0,
    )


def re2_text(pattern: re.Pattern[str]) -> str:
    """Return a pattern as brokers read it. ConfigError for a flag that they do not know."""
    flags = re.RegexFlag(pattern.flags) & ~re.UNICODE
    known = "".join(letter for flag, letter in RE2_FLAGS.items() if flags & flag)
    for flag in RE2_FLAGS:
        flags &= ~flag
    if flags:
        raise ConfigError(
            f"the pattern '{pattern.pattern}' has the flag {flags!r}, which brokers, who find its "
            "topics with group.protocol=consumer, do not know: leave it out"
        )
    return f"(?{known}){pattern.pattern}" if known else pattern.pattern
