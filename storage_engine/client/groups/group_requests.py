"""Requests to a group's coordinator, among them the one that commits offsets.

Source: Kafka's classic group protocol; the OffsetCommit API.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition, by_topic
from storage_engine.protocol.apis.spec import AnyApi
from storage_engine.protocol.messages.offset_commit import API as OFFSET_COMMIT
from storage_engine.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

_Topic = OffsetCommitRequest.OffsetCommitRequestTopic

_NO_EPOCH = -1


class CommitRefusedError(KafkaError):
    """The member is not in the group's present generation."""

    code = ErrorCode.ILLEGAL_GENERATION


class GroupMetadata(NamedTuple):
    """The identity that a consumer commits with, so that a member that was replaced is refused."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """A request to a group's coordinator."""

    spec: AnyApi
    message: Any
    least_version: int = 0
    """The first version that can say what the message says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """The member that asks; without a name and with generation -1 for a consumer that is no
    member."""

    member_id: str
    generation: int
    """The generation of the classic protocol, the member epoch of the consumer protocol."""
    joins: int = 0
    """Equal in two identities of one member between which it has not lost its partitions."""

    def now(self, known: "MemberIdentity") -> "MemberIdentity":
        """Return the identity to commit with what this one has got, where `known` is the member's
        present one: member epochs go on without new partitions."""
        return known if self.joins and self.joins == known.joins else self


NOBODY = MemberIdentity(member_id="", generation=-1)


def commit_request(
    group: str,
    caller: MemberIdentity,
    offsets: Mapping[TopicPartition, int],
    *,
    instance_id: str | None = None,
) -> GroupRequest:
    row = _Topic.OffsetCommitRequestPartition
    topics = [
        _Topic(
            name=name,
            partitions=[
                row(
                    partition_index=number,
                    committed_offset=offset,
                    committed_leader_epoch=_NO_EPOCH,
                    committed_metadata="",
                )
                for number, offset in rows
            ],
        )
        for name, rows in by_topic(offsets).items()
    ]
    message = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=caller.generation,
        member_id=caller.member_id,
        group_instance_id=instance_id if caller.member_id else None,
        topics=topics,
    )
    return GroupRequest(spec=OFFSET_COMMIT, message=message)


def refused_commit(answer: OffsetCommitResponse) -> tuple[TopicPartition, ErrorCode] | None:
    """A partition whose offset was refused, with the error: one that no retry helps, if there is
    one. None when all offsets are stored."""
    refused = [
        (TopicPartition(topic.name, row.partition_index), ErrorCode.of(row.error_code))
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code
    ]
    refused.sort(key=lambda one: one[1].retriable)
    return refused[0] if refused else None
