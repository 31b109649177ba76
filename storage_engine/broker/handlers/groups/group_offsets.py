"""OffsetCommit, OffsetFetch and OffsetDelete: the offsets that groups have committed.

A partition that does not exist is answered with an error, and the others are stored all the same. A
commit is answered when no failover can lose it, or when its time is over. Source: KIP-211, KIP-447,
KIP-496, KIP-709.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.groups.group_requests import (
    TOO_MANY_TO_ASK,
    GroupRequests,
    are_too_long,
)
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.coordinator_log import Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import (
    CommitOffsets,
    DeleteOffsets,
    OffsetsDeleted,
    OffsetsRead,
    ReadOffsets,
    RequestingMember,
)
from storage_engine.core.groups.records import NO_LEADER_EPOCH
from storage_engine.core.ids import TopicPartition
from storage_engine.core.security.acl_types import ResourceType
from storage_engine.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from storage_engine.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from storage_engine.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

NO_OFFSET = -1
FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_MANY_GROUPS = 8

_CommittedTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_GroupTopic = _Group.OffsetFetchResponseTopics
_DeletedTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsetHandlers:
    """Answers OffsetCommit, OffsetFetch and OffsetDelete."""

    requests: GroupRequests
    metadata: MetadataCache

    def offset_commit(
        self, call: ApiCall[OffsetCommitResponse], request: OffsetCommitRequest
    ) -> Steps:
        given = self.requests.offsets_to_commit(
            self.metadata, retention_ms=request.retention_time_ms
        )
        yield from given.take(request.topics)

        def rows() -> Steps:
            partition_class = _CommittedTopic.OffsetCommitResponsePartition
            topics = yield from given.rows(_CommittedTopic, partition_class)
            call.respond(OffsetCommitResponse(topics=topics))

        def respond() -> None:
            call.run(rows())

        if are_too_long([request.group_id]):
            given.refuse(ErrorCode.INVALID_GROUP_ID)
        if not any(code is ErrorCode.NONE for code in given.codes.values()):
            respond()
            return

        def on_answer(answer: Any) -> None:
            given.settle(answer.error)
            respond()

        caller = RequestingMember(
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            instance_id=request.group_instance_id,
        )

        def event_of(number: int, at: Moment) -> CommitOffsets | ErrorCode:
            offsets = given.still_possible(call)
            if isinstance(offsets, ErrorCode):
                return offsets
            return CommitOffsets(
                request=number, group_id=request.group_id, caller=caller, offsets=offsets, at=at
            )

        self.requests.ask_in_time(request.group_id, call.while_allowed(event_of), on_answer)

    def offset_fetch(
        self, call: ApiCall[OffsetFetchResponse], request: OffsetFetchRequest
    ) -> Steps:
        if call.version < FIRST_VERSION_WITH_MANY_GROUPS:
            self._read(
                call,
                request.group_id,
                request,
                request.topics,
                lambda answer: call.run(_respond_one(call, request, answer)),
            )
            return
        # A group that is named twice is answered once: it may have offsets of many partitions.
        groups = list({group.group_id: group for group in request.groups}.values())
        answers: list[Any] = [None] * len(groups)
        left = len(answers)

        def note(index: int, answer: Any) -> None:
            nonlocal left
            answers[index] = answer
            left -= 1
            if not left:
                call.run(_respond_many(call, groups, answers))

        if not left:
            yield from _respond_many(call, groups, [])
        for index, group in enumerate(groups):
            yield None
            self._read(call, group.group_id, request, group.topics, partial(note, index))

    def _read(
        self,
        call: ApiCall[OffsetFetchResponse],
        group_id: str,
        request: Any,
        topics: Any,
        on_answer: Callable[[Any], None],
    ) -> None:
        partitions = None if topics is None else _partitions(topics)

        def event_of(number: int, _at: Moment) -> ReadOffsets:
            return ReadOffsets(
                request=number,
                group_id=group_id,
                partitions=partitions,
                require_stable=bool(request.require_stable),
            )

        allowed = call.while_allowed(event_of, ResourceType.GROUP, group_id)
        self.requests.ask_in_time(group_id, allowed, on_answer)

    def offset_delete(
        self, call: ApiCall[OffsetDeleteResponse], request: OffsetDeleteRequest
    ) -> None:
        partitions = [
            TopicPartition(topic.name, item.partition_index)
            for topic in request.topics
            for item in topic.partitions
        ]

        def on_answer(answer: Any) -> None:
            refused = answer.refused if isinstance(answer, OffsetsDeleted) else frozenset()
            by_topic: dict[str, list[Any]] = {}
            for tp in partitions if answer.error is ErrorCode.NONE else ():
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if tp in refused else ErrorCode.NONE
                row = _DeletedTopic.OffsetDeleteResponsePartition(
                    partition_index=tp.partition, error_code=int(code)
                )
                by_topic.setdefault(tp.topic, []).append(row)
            topics = [_DeletedTopic(name=name, partitions=rows) for name, rows in by_topic.items()]
            call.respond(OffsetDeleteResponse(error_code=int(answer.error), topics=topics))

        def event_of(number: int, _at: Moment) -> DeleteOffsets | ErrorCode:
            topics = {tp.topic for tp in partitions}
            refused = call.refused(ResourceType.TOPIC, topics)
            if refused is None or refused:
                # All or none: an answer has one code for what the coordinator does.
                return TOO_MANY_TO_ASK if refused is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return DeleteOffsets(request=number, group_id=request.group_id, partitions=partitions)

        self.requests.ask_in_time(request.group_id, call.while_allowed(event_of), on_answer)


def _partitions(topics: Any) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes
    ]


def _respond_one(call: ApiCall[OffsetFetchResponse], request: Any, answer: Any) -> Steps:
    code = answer.error
    rows = yield from _rows(_Topic, _Topic.OffsetFetchResponsePartition, request.topics, answer)
    if code is not ErrorCode.NONE and call.version < FIRST_VERSION_WITH_ERROR:
        for topic in rows:
            for row in topic.partitions:
                row.error_code = int(code)
    elif code is not ErrorCode.NONE:
        rows = []
    call.respond(OffsetFetchResponse(topics=rows, error_code=int(code)))


def _respond_many(
    call: ApiCall[OffsetFetchResponse], asked: list[Any], answers: list[Any]
) -> Steps:
    groups = []
    for group, answer in zip(asked, answers, strict=True):
        yield None
        partition_class = _GroupTopic.OffsetFetchResponsePartitions
        failed = answer.error is not ErrorCode.NONE
        topics = []
        if not failed:
            topics = yield from _rows(_GroupTopic, partition_class, group.topics, answer)
        groups.append(_Group(group_id=group.group_id, topics=topics, error_code=int(answer.error)))
    call.respond(OffsetFetchResponse(groups=groups))


def _rows(
    topic_class: Any, partition_class: Any, topics: Any, answer: Any
) -> Generator[None, Any, list[Any]]:
    """The partitions of `topics` with their offsets; None stands for all that have one."""
    read = answer if isinstance(answer, OffsetsRead) else OffsetsRead(request=0)
    known = {*read.offsets, *read.unstable, *read.unreadable}
    wanted = sorted(known) if topics is None else _partitions(topics)
    by_topic: dict[str, list[Any]] = {}
    for tp in wanted:
        yield None
        found = read.offsets.get(tp)
        code = ErrorCode.NONE
        if tp in read.unstable:
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        elif tp in read.unreadable:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        row = partition_class(
            partition_index=tp.partition,
            committed_offset=NO_OFFSET if found is None else found.offset,
            committed_leader_epoch=NO_LEADER_EPOCH if found is None else found.leader_epoch,
            metadata="" if found is None else found.metadata,
            error_code=int(code),
        )
        by_topic.setdefault(tp.topic, []).append(row)
    return [topic_class(name=topic, partitions=rows) for topic, rows in by_topic.items()]
