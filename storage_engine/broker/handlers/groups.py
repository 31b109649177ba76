"""What clients ask of a group's coordinator, in a version without group coordination.

Rule: nothing is pretended. A group has stored no offsets, which is true; storing some and joining
are refused with the final GROUP_AUTHORIZATION_FAILED, so that a client says so at once.
"""

import logging
from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.heartbeat import HeartbeatResponse
from storage_engine.protocol.apis.join_group import JoinGroupResponse
from storage_engine.protocol.apis.leave_group import LeaveGroupResponse
from storage_engine.protocol.apis.offset_commit import OffsetCommitResponse
from storage_engine.protocol.apis.offset_fetch import OffsetFetchResponse
from storage_engine.protocol.apis.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_MANY_GROUPS = 8
NO_OFFSET = -1

_REFUSED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
_UNKNOWN_MEMBER = int(ErrorCode.UNKNOWN_MEMBER_ID)


def offset_commit(_context: BrokerContext, call: Call, request: Any) -> None:
    log.info("group=%s: offsets not stored, this version has no groups", request.group_id)
    topic_class = OffsetCommitResponse.OffsetCommitResponseTopic
    topics = [
        topic_class(
            name=topic.name,
            partitions=[
                topic_class.OffsetCommitResponsePartition(
                    partition_index=item.partition_index, error_code=_REFUSED
                )
                for item in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    call.respond(OffsetCommitResponse(topics=topics))


def offset_fetch(_context: BrokerContext, call: Call, request: Any) -> None:
    if call.version >= FIRST_VERSION_WITH_MANY_GROUPS:
        group_class = OffsetFetchResponse.OffsetFetchResponseGroup
        groups = [
            group_class(
                group_id=group.group_id,
                topics=_no_offsets(group.topics, group_class.OffsetFetchResponseTopics),
                error_code=0,
            )
            for group in request.groups
        ]
        call.respond(OffsetFetchResponse(groups=groups))
    else:
        topics = _no_offsets(request.topics, OffsetFetchResponse.OffsetFetchResponseTopic)
        call.respond(OffsetFetchResponse(topics=topics, error_code=0))


def _no_offsets(topics: Any, topic_class: Any) -> list[Any]:
    partition_class = (
        getattr(topic_class, "OffsetFetchResponsePartitions", None)
        or topic_class.OffsetFetchResponsePartition
    )
    return [
        topic_class(
            name=topic.name,
            partitions=[
                partition_class(
                    partition_index=index,
                    committed_offset=NO_OFFSET,
                    committed_leader_epoch=-1,
                    metadata="",
                    error_code=0,
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in topics or ()
    ]


def join_group(_context: BrokerContext, call: Call, request: Any) -> None:
    log.info("group=%s: not joined, this version has no groups", request.group_id)
    call.respond(
        JoinGroupResponse(
            error_code=_REFUSED,
            generation_id=-1,
            protocol_type=None,
            protocol_name="",
            leader="",
            member_id=request.member_id,
            members=[],
        )
    )


def sync_group(_context: BrokerContext, call: Call, _request: Any) -> None:
    call.respond(SyncGroupResponse(error_code=_UNKNOWN_MEMBER, assignment=b""))


def heartbeat(_context: BrokerContext, call: Call, _request: Any) -> None:
    call.respond(HeartbeatResponse(error_code=_UNKNOWN_MEMBER))


def leave_group(_context: BrokerContext, call: Call, request: Any) -> None:
    members = [
        LeaveGroupResponse.MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=_UNKNOWN_MEMBER,
        )
        for member in request.members or ()
    ]
    call.respond(LeaveGroupResponse(error_code=0 if members else _UNKNOWN_MEMBER, members=members))
