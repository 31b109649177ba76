"""The requests of a group's member, and what their answers say.

Rule: imported with the first member; clients without a group need none of these messages. Source:
Kafka's classic group protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from storage_engine.client.admin.topics import api_of
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.range_assignment import RANGE
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.subscription import CONSUMER
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.spec import AnyApi

_OFFSET_COMMIT, _JOIN_GROUP, _HEARTBEAT, _LEAVE_GROUP, _SYNC_GROUP = 8, 11, 12, 13, 14

_NO_EPOCH = -1


class GroupMetadata(NamedTuple):
    """As whom a consumer commits: its member is told from one that was replaced."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    spec: AnyApi
    message: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: NO_GENERATION and no name for a consumer that is no member."""

    member_id: str
    generation: int


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


def sync(config: ConsumerConfig, caller: Caller, assignments: Mapping[str, bytes]) -> GroupRequest:
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


def heartbeat(config: ConsumerConfig, caller: Caller) -> GroupRequest:
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


def commit(
    group: str,
    caller: Caller,
    offsets: Mapping[TopicPartition, int],
    *,
    instance_id: str | None = None,
) -> GroupRequest:
    spec, request = api_of(_OFFSET_COMMIT)
    topic_class = request.OffsetCommitRequestTopic
    by_topic: dict[str, list[Any]] = {}
    for tp, offset in offsets.items():
        row = topic_class.OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=offset,
            committed_leader_epoch=_NO_EPOCH,
            committed_metadata="",
        )
        by_topic.setdefault(tp.topic, []).append(row)
    message = request(
        group_id=group,
        generation_id_or_member_epoch=caller.generation,
        member_id=caller.member_id,
        group_instance_id=instance_id if caller.member_id else None,
        topics=[topic_class(name=name, partitions=rows) for name, rows in by_topic.items()],
    )
    return GroupRequest(spec=spec, message=message)


def refused_commit(answer: Any) -> tuple[TopicPartition, ErrorCode] | None:
    """One that no retry helps rather than one that is only to be asked for again; None when all is
    stored."""
    refused = [
        (TopicPartition(topic.name, row.partition_index), ErrorCode.of(row.error_code))
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code
    ]
    refused.sort(key=lambda one: one[1].retriable)
    return refused[0] if refused else None
