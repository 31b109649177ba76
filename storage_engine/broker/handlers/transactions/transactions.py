"""InitProducerId, AddPartitionsToTxn, EndTxn and WriteTxnMarkers: the life of a transaction.

InitProducerId gives a fresh producer id to an idempotent producer. A transactional producer gets
its id and epoch from its coordinator, and the producers before it are fenced. Source: KIP-98,
KIP-360, R-CLI7.

AddPartitionsToTxn is sent by producers (versions 0 to 3), and by leaders that verify or enlist a
partition (4 and 5). Where a partition of a transaction doesn't exist, the others are not attempted.
EndTxn is answered when the decision to commit or abort can't be lost; from version 5 on the
producer continues with another epoch. Source: KIP-98, KIP-890.

WriteTxnMarkers: a coordinator has this broker write the ends of transactions to partitions that it
leads. The epoch of a coordinator is the leader epoch of its partition of the state topic, as the
controller has told it to this broker. A marker of a higher epoch is refused: a log remembers the
highest epoch of a producer's coordinators, and would refuse the true coordinator ever after. A
marker that is named twice is written once. All markers of a partition are written in one step, as
their order matters. Source: KIP-98.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.producer_ids import ProducerIds
from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.transactions.coordinator_questions import (
    Outcomes,
    answer_leaders,
    enlist,
    not_attempted,
)
from storage_engine.broker.transactions.marker_writes import (
    MarkerTarget,
    MarkerWrites,
    response_of_codes,
    targets_of_request,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import (
    GROUP_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from storage_engine.core.ports import Clock
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.core.transactions.transaction_events import (
    EndTransaction,
    InitProducer,
    TransactionAnswer,
)
from storage_engine.core.transactions.transaction_state import (
    NO_PRODUCER_ID,
    is_member,
    is_too_long,
)
from storage_engine.core.transactions.verification_guard import is_search
from storage_engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from storage_engine.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from storage_engine.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from storage_engine.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def code_for(code: ErrorCode, version: int, first_version_with_producer_fenced: int) -> int:
    """The error code in the response, by version."""
    if code is ErrorCode.PRODUCER_FENCED and version < first_version_with_producer_fenced:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(code)


FIRST_VERSION_BETWEEN_BROKERS = 4
FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_ABORTABLE = 5

_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnHandler:
    """Answers AddPartitionsToTxn."""

    coordinators: TransactionCoordinators
    metadata: MetadataCache
    clock: Clock

    def handle(
        self, call: ApiCall[AddPartitionsToTxnResponse], request: AddPartitionsToTxnRequest
    ) -> Steps:
        if call.version >= FIRST_VERSION_BETWEEN_BROKERS:
            yield from self._handle_leaders(call, request)
            return

        def respond(outcomes: Outcomes) -> Steps:
            rows = yield from _rows(outcomes, call.version)
            call.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows))

        def on_outcomes(outcomes: Outcomes) -> None:
            call.run(respond(outcomes))

        partitions = []
        refused: Outcomes = {}
        for topic in request.v3_and_below_topics:
            for number in topic.partitions:
                tp = TopicPartition(topic.name, number)
                partitions.append(tp)
                refused.update(self._refused([tp]))
                yield None
        if refused:
            yield from respond(not_attempted(partitions, refused))
            return
        enlist(
            self.coordinators,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions,
            self.clock,
            on_outcomes,
            refusal=lambda: _lost(call, {tp.topic for tp in partitions}),
        )

    def _handle_leaders(
        self, call: ApiCall[AddPartitionsToTxnResponse], request: AddPartitionsToTxnRequest
    ) -> Steps:
        def respond(outcomes: list[Outcomes]) -> Steps:
            results = []
            for transaction, each in zip(request.transactions, outcomes, strict=True):
                rows = yield from _rows(each, call.version)
                results.append(
                    _Result(transactional_id=transaction.transactional_id, topic_results=rows)
                )
                yield None
            call.respond(AddPartitionsToTxnResponse(results_by_transaction=results))

        def on_outcomes(outcomes: list[Outcomes]) -> None:
            call.run(respond(outcomes))

        return answer_leaders(
            self.coordinators,
            request.transactions,
            self.clock,
            on_outcomes,
            refused=lambda partitions: self._refused(partitions, offsets=True),
            refusal=call.refusal,
        )

    def _refused(self, partitions: list[TopicPartition], *, offsets: bool = False) -> Outcomes:
        """The partitions that no transaction can write to, with their error codes. `offsets`
        permits partitions of the offsets topic, because group coordinators enlist them."""
        refused = {}
        for tp in partitions:
            if tp.topic in INTERNAL_TOPICS and not (offsets and tp.topic == GROUP_OFFSETS_TOPIC):
                refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif tp.partition not in (self.metadata.partitions(tp.topic) or {}):
                refused[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused


def _lost(call: ApiCall[AddPartitionsToTxnResponse], topics: set[str]) -> ErrorCode:
    """The error if the producer may no longer write to all of these topics; NONE while it may."""
    refusal = call.refusal()
    if refusal is not ErrorCode.NONE:
        return refusal
    refused = call.refused(ResourceType.TOPIC, topics)
    if refused is None:
        # Too many topics to check at once: the client sends the request again.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if refused else ErrorCode.NONE


def _rows(
    outcomes: Outcomes, version: int
) -> Generator[None, None, list[AddPartitionsToTxnTopicResult]]:
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for tp, code in outcomes.items():
        yield None
        if version >= FIRST_VERSION_WITH_ABORTABLE and code is ErrorCode.INVALID_TXN_STATE:
            code = ErrorCode.TRANSACTION_ABORTABLE
        number = code_for(code, version, FIRST_VERSION_WITH_PRODUCER_FENCED)
        row = AddPartitionsToTxnPartitionResult(
            partition_index=tp.partition, partition_error_code=number
        )
        by_topic.setdefault(tp.topic, []).append(row)
    return [
        AddPartitionsToTxnTopicResult(name=topic, results_by_partition=rows)
        for topic, rows in by_topic.items()
    ]


FIRST_VERSION_WITH_EPOCH_BUMP = 5


def end_txn(
    coordinators: TransactionCoordinators,
    producer_ids: ProducerIds,
    clock: Clock,
    call: ApiCall[EndTxnResponse],
    request: EndTxnRequest,
) -> None:
    def respond(answer: TransactionAnswer) -> None:
        code = code_for(answer.error, call.version, FIRST_VERSION_WITH_PRODUCER_FENCED)
        call.respond(
            EndTxnResponse(
                error_code=code,
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
            )
        )

    def end(fresh_producer_id: int) -> None:
        coordinators.request(
            request.transactional_id,
            call.while_allowed(
                lambda number: EndTransaction(
                    request=number,
                    transactional_id=request.transactional_id,
                    producer_id=request.producer_id,
                    producer_epoch=request.producer_epoch,
                    commits=request.committed,
                    now_ms=clock.wall_ms(),
                    fresh_producer_id=fresh_producer_id,
                    bumps_epoch=call.version >= FIRST_VERSION_WITH_EPOCH_BUMP,
                )
            ),
            respond,
        )

    def on_id(producer_id: int, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            end(producer_id)
        else:
            respond(TransactionAnswer(request=0, error=code))

    if call.version >= FIRST_VERSION_WITH_EPOCH_BUMP:
        # A new id is needed if the epochs of the present one are used up.
        producer_ids.allocate(on_id)
    else:
        end(NO_PRODUCER_ID)


FIRST_INIT_WITH_PRODUCER_FENCED = 4


def init_producer_id(
    coordinators: TransactionCoordinators,
    producer_ids: ProducerIds,
    clock: Clock,
    call: ApiCall[InitProducerIdResponse],
    request: InitProducerIdRequest,
) -> None:
    name = request.transactional_id

    def refuse(code: ErrorCode) -> None:
        call.respond(InitProducerIdResponse(error_code=int(code)))

    def respond(answer: TransactionAnswer) -> None:
        call.respond(
            InitProducerIdResponse(
                error_code=code_for(answer.error, call.version, FIRST_INIT_WITH_PRODUCER_FENCED),
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
            )
        )

    def on_id(producer_id: int, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            refuse(code)
        elif name is None:
            call.respond(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
        else:
            coordinators.request(
                name,
                call.while_allowed(
                    lambda number: InitProducer(
                        request=number,
                        transactional_id=name,
                        timeout_ms=request.transaction_timeout_ms,
                        now_ms=clock.wall_ms(),
                        fresh_producer_id=producer_id,
                        producer_id=request.producer_id,
                        producer_epoch=request.producer_epoch,
                    )
                ),
                respond,
            )

    if name is not None and (not name or is_member(name) or is_search(name) or is_too_long(name)):
        refuse(ErrorCode.INVALID_REQUEST)
    else:
        producer_ids.allocate(on_id)


MARKERS_PER_STEP = 50
"""Markers per step: each is an append, which takes some 20 microseconds."""


def write_txn_markers(
    marker_writes: MarkerWrites,
    metadata: MetadataCache,
    call: ApiCall[WriteTxnMarkersResponse],
    request: WriteTxnMarkersRequest,
) -> Steps:
    newest = _newest_epoch(metadata)
    by_partition: dict[TopicPartition, dict[MarkerTarget, None]] = {}
    unknown: dict[MarkerTarget, None] = {}
    for target in targets_of_request(request):
        if target.marker.coordinator_epoch <= newest:
            by_partition.setdefault(target.partition, {})[target] = None
        else:
            unknown[target] = None
        yield None
    written: list[MarkerTarget] = []
    codes: list[ErrorCode] = []
    left = 1

    def note(targets: Sequence[MarkerTarget], some: Sequence[ErrorCode]) -> None:
        nonlocal left
        written.extend(targets)
        codes.extend(some)
        left -= 1
        if not left:
            call.run(respond())

    def respond() -> Steps:
        response = yield from response_of_codes(written, codes)
        call.respond(response)

    for targets in _groups(by_partition):
        left += 1
        marker_writes.write(targets, partial(note, targets))
        yield None
    # A true coordinator, whose election this broker does not know yet, sends them again.
    note(list(unknown), [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(unknown))


def _newest_epoch(metadata: MetadataCache) -> int:
    partitions = metadata.partitions(TRANSACTION_STATE_TOPIC) or {}
    return max((each.leader_epoch for each in partitions.values()), default=-1)


def _groups(
    by_partition: dict[TopicPartition, dict[MarkerTarget, None]],
) -> Iterator[list[MarkerTarget]]:
    group: list[MarkerTarget] = []
    for targets in by_partition.values():
        group.extend(targets)
        if len(group) >= MARKERS_PER_STEP:
            yield group
            group = []
    if group:
        yield group
