"""OffsetCommit, OffsetFetch and OffsetDelete: the offsets that groups have committed.

A partition that does not exist is answered with an error, and the others are stored all the same. A
commit is answered when no failover can lose it, or when its time is over. Source: KIP-211, KIP-447,
KIP-496, KIP-709, KIP-848.

AddOffsetsToTxn and TxnOffsetCommit: the offsets of a group as part of a producer's transaction.

Offsets are appended only while the group's partition of the offsets topic is known to be part of
the transaction, as batches of records are; with TxnOffsetCommit 5 it is enlisted here. That is
checked when the coordinator steps the commit, whatever the commit has waited for: behind the
transaction's marker it would open another one that never ends. Source: KIP-98, KIP-447, KIP-890.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.broker.coordinators.state_topic import StateTopic
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.groups.group_requests import (
    TOO_MANY_TO_ASK,
    EventOf,
    GroupRequests,
    OffsetsToCommit,
    are_too_long,
)
from storage_engine.broker.handlers.transactions.transactions import code_for
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.transactions.coordinator_questions import Outcomes, enlist
from storage_engine.broker.transactions.transactional_appends import ASK_AGAIN
from storage_engine.broker.transactions.verifier import Verifier
from storage_engine.core.coordinator_log import Answer, Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import (
    NO_MEMBER,
    CommitOffsets,
    DeleteOffsets,
    OffsetsDeleted,
    OffsetsRead,
    ReadOffsets,
    RequestingMember,
)
from storage_engine.core.groups.records import NO_LEADER_EPOCH
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.core.transactions.transaction_state import is_member
from storage_engine.core.transactions.verification_guard import TransactionVerification
from storage_engine.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from storage_engine.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from storage_engine.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from storage_engine.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from storage_engine.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

NO_OFFSET = -1
NOBODY = RequestingMember()
"""The caller of a request that names no member."""
FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_MANY_GROUPS = 8
FIRST_VERSION_WITH_MEMBER_EPOCHS = 9
"""The first versions of OffsetCommit and OffsetFetch with epochs (KIP-848)."""

_CommittedTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_GroupTopic = _Group.OffsetFetchResponseTopics
_DeletedTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic
_Deletion = _DeletedTopic.OffsetDeleteResponsePartition
_AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_AskedTopics = (
    Sequence[OffsetFetchRequest.OffsetFetchRequestTopic]
    | Sequence[_AskedGroup.OffsetFetchRequestTopics]
)
Row = TypeVar("Row")


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
            by_topic = yield from given.rows(_CommittedTopic.OffsetCommitResponsePartition)
            topics = [
                _CommittedTopic(name=name, partitions=each) for name, each in by_topic.items()
            ]
            call.respond(OffsetCommitResponse(topics=topics))

        def respond() -> None:
            call.run(rows())

        if are_too_long([request.group_id]):
            given.refuse(ErrorCode.INVALID_GROUP_ID)
        if not any(code is ErrorCode.NONE for code in given.codes.values()):
            respond()
            return

        def on_answer(answer: Answer) -> None:
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
                request=number,
                group_id=request.group_id,
                caller=caller,
                offsets=offsets,
                knows_epochs=call.version >= FIRST_VERSION_WITH_MEMBER_EPOCHS,
                at=at,
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
        answers: dict[int, Answer] = {}

        def note(index: int, answer: Answer) -> None:
            answers[index] = answer
            if len(answers) == len(groups):
                call.run(_respond_many(call, groups, answers))

        if not groups:
            yield from _respond_many(call, groups, answers)
        for index, group in enumerate(groups):
            yield None
            caller = RequestingMember(
                member_id=group.member_id or NO_MEMBER, generation=group.member_epoch
            )
            self._read(
                call, group.group_id, request, group.topics, partial(note, index), caller=caller
            )

    def _read(
        self,
        call: ApiCall[OffsetFetchResponse],
        group_id: str,
        request: OffsetFetchRequest,
        topics: _AskedTopics | None,
        on_answer: Callable[[Answer], None],
        *,
        caller: RequestingMember = NOBODY,
    ) -> None:
        partitions = None if topics is None else _partitions(topics)

        def event_of(number: int, _at: Moment) -> ReadOffsets:
            return ReadOffsets(
                request=number,
                group_id=group_id,
                partitions=partitions,
                require_stable=bool(request.require_stable),
                caller=caller,
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

        def on_answer(answer: Answer) -> None:
            refused = answer.refused if isinstance(answer, OffsetsDeleted) else frozenset()
            by_topic: dict[str, list[_Deletion]] = {}
            for tp in partitions if answer.error is ErrorCode.NONE else ():
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if tp in refused else ErrorCode.NONE
                row = _Deletion(partition_index=tp.partition, error_code=int(code))
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


def _partitions(topics: _AskedTopics) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes
    ]


def _respond_one(
    call: ApiCall[OffsetFetchResponse], request: OffsetFetchRequest, answer: Answer
) -> Steps:
    code = answer.error
    row_class = _Topic.OffsetFetchResponsePartition
    by_topic = yield from _rows(row_class, request.topics, answer)
    rows = [_Topic(name=name, partitions=each) for name, each in by_topic.items()]
    if code is not ErrorCode.NONE and call.version < FIRST_VERSION_WITH_ERROR:
        for topic in rows:
            for row in topic.partitions:
                row.error_code = int(code)
    elif code is not ErrorCode.NONE:
        rows = []
    call.respond(OffsetFetchResponse(topics=rows, error_code=int(code)))


def _respond_many(
    call: ApiCall[OffsetFetchResponse], asked: list[_AskedGroup], answers: dict[int, Answer]
) -> Steps:
    groups = []
    for index, group in enumerate(asked):
        yield None
        answer = answers[index]
        topics = []
        if answer.error is ErrorCode.NONE:
            row_class = _GroupTopic.OffsetFetchResponsePartitions
            by_topic = yield from _rows(row_class, group.topics, answer)
            topics = [_GroupTopic(name=name, partitions=each) for name, each in by_topic.items()]
        groups.append(_Group(group_id=group.group_id, topics=topics, error_code=int(answer.error)))
    call.respond(OffsetFetchResponse(groups=groups))


def _rows(
    row_class: Callable[..., Row], topics: _AskedTopics | None, answer: Answer
) -> Generator[None, None, dict[str, list[Row]]]:
    """The rows of `topics` with their offsets; None: of all partitions that have one."""
    read = answer if isinstance(answer, OffsetsRead) else OffsetsRead(request=0)
    known = {*read.offsets, *read.unstable, *read.unreadable}
    wanted = sorted(known) if topics is None else _partitions(topics)
    by_topic: dict[str, list[Row]] = {}
    for tp in wanted:
        yield None
        found = read.offsets.get(tp)
        code = ErrorCode.NONE
        if tp in read.unstable:
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        elif tp in read.unreadable:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        row = row_class(
            partition_index=tp.partition,
            committed_offset=NO_OFFSET if found is None else found.offset,
            committed_leader_epoch=NO_LEADER_EPOCH if found is None else found.leader_epoch,
            metadata="" if found is None else found.metadata,
            error_code=int(code),
        )
        by_topic.setdefault(tp.topic, []).append(row)
    return by_topic


FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_ABORTABLE = 4
FIRST_VERSION_THAT_ENLISTS = 5

_TransactionTopic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxnHandler:
    """Answers AddOffsetsToTxn, at the coordinator of the transaction."""

    group_topic: StateTopic
    coordinators: TransactionCoordinators
    clock: Clock

    def handle(
        self, call: ApiCall[AddOffsetsToTxnResponse], request: AddOffsetsToTxnRequest
    ) -> None:
        def respond(code: ErrorCode) -> None:
            if call.version >= FIRST_VERSION_WITH_ABORTABLE and code is ErrorCode.INVALID_TXN_STATE:
                code = ErrorCode.TRANSACTION_ABORTABLE
            number = code_for(code, call.version, FIRST_VERSION_WITH_PRODUCER_FENCED)
            call.respond(AddOffsetsToTxnResponse(error_code=number))

        if not request.group_id or are_too_long([request.group_id]):
            respond(ErrorCode.INVALID_GROUP_ID)
            return
        if is_member(request.transactional_id):
            respond(ErrorCode.INVALID_REQUEST)
            return
        self.group_topic.learn(create=True)
        tp = self.group_topic.partition_of(request.group_id)
        if tp is None:
            # Every client asks the same coordinator again after this one.
            respond(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return

        def on_outcomes(outcomes: Outcomes) -> None:
            (code,) = outcomes.values()
            respond(code)

        enlist(
            self.coordinators,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [tp],
            self.clock,
            on_outcomes,
            refusal=call.refusal,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitHandler:
    """Answers TxnOffsetCommit, at the coordinator of the group."""

    requests: GroupRequests
    metadata: MetadataCache
    group_topic: StateTopic
    replicas: ReplicaManager
    verifier: Verifier

    def handle(
        self, call: ApiCall[TxnOffsetCommitResponse], request: TxnOffsetCommitRequest
    ) -> Steps:
        given = self.requests.offsets_to_commit(self.metadata)
        yield from given.take(request.topics)
        producer = request.producer_id, request.producer_epoch

        def rows() -> Steps:
            by_topic = yield from given.rows(_TransactionTopic.TxnOffsetCommitResponsePartition)
            topics = [
                _TransactionTopic(name=name, partitions=each) for name, each in by_topic.items()
            ]
            call.respond(TxnOffsetCommitResponse(topics=topics))

        def respond() -> None:
            call.run(rows())

        def settle(code: ErrorCode) -> None:
            given.settle(_known_to_clients(code, call.version))
            respond()

        if not request.group_id or are_too_long([request.group_id]):
            given.refuse(ErrorCode.INVALID_GROUP_ID)
        if not any(code is ErrorCode.NONE for code in given.codes.values()):
            respond()
            return

        tp = self.group_topic.partition_of(request.group_id)
        partition = None if tp is None else self.replicas.get(tp)
        if partition is None or partition.leader is None:
            settle(ErrorCode.NOT_COORDINATOR)
            return

        def on_verified(code: ErrorCode) -> None:
            verification = partition.guards.verification(*producer)
            if code is not ErrorCode.NONE:
                settle(code)
            elif verification is None:
                settle(ErrorCode.CONCURRENT_TRANSACTIONS)
            else:
                event_of = self._commit_of(call, request, given, partition, verification)
                self.requests.ask_in_time(
                    request.group_id,
                    call.while_allowed(event_of),
                    lambda answer: settle(answer.error),
                )

        if partition.guards.is_open(*producer):
            on_verified(ErrorCode.NONE)
        else:
            name = request.transactional_id
            enlists = call.version >= FIRST_VERSION_THAT_ENLISTS and not is_member(name)
            self.verifier.verify(
                partition, name, *producer, on_verified, share=call.share, enlists=enlists
            )

    def _commit_of(
        self,
        call: ApiCall[TxnOffsetCommitResponse],
        request: TxnOffsetCommitRequest,
        given: OffsetsToCommit,
        partition: HostedPartition,
        verification: TransactionVerification,
    ) -> EventOf:
        """Make the commit's event, unless something has happened to the transaction since."""
        guards = partition.guards

        def event_of(number: int, at: Moment) -> CommitOffsets | ErrorCode:
            is_here = self.replicas.get(partition.topic_partition) is partition
            if not is_here or partition.guards is not guards or not guards.is_valid(verification):
                return ErrorCode.CONCURRENT_TRANSACTIONS
            offsets = given.still_possible(call)
            if isinstance(offsets, ErrorCode):
                return offsets
            return CommitOffsets(
                request=number,
                group_id=request.group_id,
                caller=RequestingMember(
                    member_id=request.member_id,
                    generation=request.generation_id,
                    instance_id=request.group_instance_id,
                ),
                offsets=offsets,
                producer=(request.producer_id, request.producer_epoch),
                at=at,
            )

        return event_of


def _known_to_clients(code: ErrorCode, version: int) -> ErrorCode:
    """The error that clients of this version expect."""
    if code in ASK_AGAIN and code is not ErrorCode.NOT_COORDINATOR:
        return (
            code
            if code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.INVALID_TXN_STATE and version >= FIRST_VERSION_WITH_ABORTABLE:
        return ErrorCode.TRANSACTION_ABORTABLE
    return code
