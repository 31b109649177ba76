"""AddOffsetsToTxn and TxnOffsetCommit: the offsets of a group as part of a producer's transaction.

Offsets are appended only while the group's partition of the offsets topic is known to be part of
the transaction, as batches of records are; with TxnOffsetCommit 5 it is enlisted here. That is
checked when the coordinator steps the commit, whatever the commit has waited for: behind the
transaction's marker it would open another one that nobody ends. Source: KIP-98, KIP-447, KIP-890.
"""

from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.coordinators.coordinators import StateTopic, TransactionCoordinators
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.groups.group_requests import (
    EventOf,
    GroupRequests,
    OffsetsToCommit,
    are_too_long,
)
from storage_engine.broker.handlers.transactions.fenced_producers import code_for
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.transactions.partition_requests import Outcomes, enlist
from storage_engine.broker.transactions.transactional_appends import ASK_AGAIN
from storage_engine.broker.transactions.verifier import Verifier
from storage_engine.core.coordinator_log import Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import CommitOffsets, RequestingMember
from storage_engine.core.ports import Clock
from storage_engine.core.transactions.transaction_state import is_member
from storage_engine.core.transactions.verification_guard import TransactionVerification
from storage_engine.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from storage_engine.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_ABORTABLE = 4
FIRST_VERSION_THAT_ENLISTS = 5

_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic


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
            by_topic = yield from given.rows(_Topic.TxnOffsetCommitResponsePartition)
            topics = [_Topic(name=name, partitions=each) for name, each in by_topic.items()]
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
        """The commit, as long as nothing has happened to the transaction since `verification`."""
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
    """The error that a client of this version knows in this place."""
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
