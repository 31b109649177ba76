"""The rights of transactional producers and of the exactly-once sink.

A sink is a TransactionalId by its own name: the right to write to it is the right to join, commit
and abort its micro-batches. Topics are checked where partitions are enlisted and written.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from storage_engine.broker.guards.client import REFUSALS, Asked, RequestClient, Right, passed
from storage_engine.broker.guards.groups import itself
from storage_engine.broker.guards.shares import (
    Building,
    ByItem,
    Refusal,
    briefly,
    each_refused,
    first_asks,
    of_cluster,
    of_partitions,
    only,
    row_of,
    rows_of,
    whole,
)
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import CLUSTER_NAME, AclOperation, ResourceType
from storage_engine.protocol.apis.commit_batch import CommitBatchResponse
from storage_engine.protocol.apis.describe_sinks import (
    DescribeSinksRequest,
    DescribeSinksResponse,
    OpenMember,
)
from storage_engine.protocol.apis.join_batch import JoinBatchResponse
from storage_engine.protocol.apis.micro_batch_fields import BatchResponse
from storage_engine.protocol.apis.spec import Resp
from storage_engine.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from storage_engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from storage_engine.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from storage_engine.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from storage_engine.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from storage_engine.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from storage_engine.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from storage_engine.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from storage_engine.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_TRANSACTION, _CLUSTER = ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER


class OfSink(Protocol):
    """A request that names a sink."""

    @property
    def sink(self) -> str: ...


def _writes_as(request: EndTxnRequest) -> Iterable[Right]:
    return (Right(AclOperation.WRITE, _TRANSACTION, request.transactional_id),)


def _with_offsets_of(
    request: AddOffsetsToTxnRequest | TxnOffsetCommitRequest,
) -> Iterable[Right]:
    return (
        Right(AclOperation.WRITE, _TRANSACTION, request.transactional_id),
        Right(AclOperation.READ, _GROUP, request.group_id),
    )


def init_producer_id(asked: Asked[InitProducerIdRequest, InitProducerIdResponse]) -> Steps | None:
    """Without a transactional id the right to write to any topic suffices (KIP-679)."""
    client, call, request, handler = asked
    name = request.transactional_id
    if name is not None:
        kind = _TRANSACTION
        client.grant((Right(AclOperation.WRITE, kind, name),))
        is_allowed = client.may(AclOperation.WRITE, kind, name)
    else:
        kind = _CLUSTER
        is_allowed = client.may_some(AclOperation.WRITE, _TOPIC) or client.may_to_cluster(
            AclOperation.IDEMPOTENT_WRITE
        )
    if is_allowed:
        return handler(call, request)
    call.respond(InitProducerIdResponse(error_code=int(REFUSALS[kind])))
    return None


end_txn = whole(_writes_as, briefly(lambda code: EndTxnResponse(error_code=code)))
add_offsets_to_txn = whole(
    _with_offsets_of, briefly(lambda code: AddOffsetsToTxnResponse(error_code=code))
)

FIRST_BETWEEN_BROKERS = 4


def _unenlisted(
    topic: AddPartitionsToTxnTopic, code: int
) -> Building[AddPartitionsToTxnTopicResult]:
    rows = yield from rows_of(
        topic.partitions,
        lambda number: AddPartitionsToTxnPartitionResult(
            partition_index=number, partition_error_code=code
        ),
    )
    return AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=rows)


def add_partitions_to_txn(
    asked: Asked[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse],
) -> Steps:
    client, call, request, handler = asked
    if call.version >= FIRST_BETWEEN_BROKERS:
        client.grant((Right(AclOperation.CLUSTER_ACTION, _CLUSTER, CLUSTER_NAME),))
        if client.may_to_cluster(AclOperation.CLUSTER_ACTION):
            yield from passed(handler, call, request)
        else:
            code = int(REFUSALS[_CLUSTER])
            call.respond(AddPartitionsToTxnResponse(error_code=code, results_by_transaction=[]))
        return
    topics = request.v3_and_below_topics
    name = request.v3_and_below_transactional_id
    client.grant((Right(AclOperation.WRITE, _TRANSACTION, name),), each=AclOperation.WRITE)
    if not client.may(AclOperation.WRITE, _TRANSACTION, name):
        rows = yield from each_refused(topics, _unenlisted, int(REFUSALS[_TRANSACTION]))
        call.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows))
        return
    names = [topic.name for topic in topics]
    refused = yield from client.refused(AclOperation.WRITE, _TOPIC, names)
    if not refused:
        yield from passed(handler, call, request)
        return
    # All or none: the others are not tried.
    rows = []
    for topic in topics:
        is_refused = topic.name in refused
        code = REFUSALS[_TOPIC] if is_refused else ErrorCode.OPERATION_NOT_ATTEMPTED
        rows.append((yield from _unenlisted(topic, int(code))))
    call.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows))


_Committed = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic


_uncommitted = of_partitions(_Committed, _Committed.TxnOffsetCommitResponsePartition)


def _commit_refused(
    request: TxnOffsetCommitRequest, code: int
) -> Building[TxnOffsetCommitResponse]:
    rows = yield from each_refused(request.topics, _uncommitted, code)
    return TxnOffsetCommitResponse(topics=rows)


txn_offset_commit = first_asks(
    _with_offsets_of,
    _commit_refused,
    ByItem[
        TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic,
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    ](
        operation=AclOperation.READ,
        row=_uncommitted,
        answer_class=TxnOffsetCommitResponse,
    ),
)

_Marked = WriteTxnMarkersResponse.WritableTxnMarkerResult
_MarkedTopic = _Marked.WritableTxnMarkerTopicResult


_unmarked = of_partitions(_MarkedTopic, _MarkedTopic.WritableTxnMarkerPartitionResult)


def _markers_refused(
    request: WriteTxnMarkersRequest, code: int
) -> Building[WriteTxnMarkersResponse]:
    markers = []
    for marker in request.markers:
        rows = yield from each_refused(marker.topics, _unmarked, code)
        markers.append(_Marked(producer_id=marker.producer_id, topics=rows))
        yield None
    return WriteTxnMarkersResponse(markers=markers)


write_txn_markers = of_cluster(AclOperation.CLUSTER_ACTION, _markers_refused)

_Producers = DescribeProducersResponse.TopicResponse


_unshown = of_partitions(_Producers, _Producers.PartitionResponse)


describe_producers: ByItem[
    DescribeProducersRequest.TopicRequest, DescribeProducersRequest, DescribeProducersResponse
] = ByItem(
    operation=AclOperation.READ,
    row=_unshown,
    answer_class=DescribeProducersResponse,
)

_State = DescribeTransactionsResponse.TransactionState
_NO_TIME = -1
_NO_PRODUCER = -1

_DESCRIBED_TRANSACTIONS: ByItem[str, DescribeTransactionsRequest, DescribeTransactionsResponse] = (
    ByItem(
        operation=AclOperation.DESCRIBE,
        kind=_TRANSACTION,
        items="transactional_ids",
        name=itself,
        rows="transaction_states",
        row=row_of(
            lambda name, code: _State(
                error_code=code,
                transactional_id=name,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=_NO_TIME,
                producer_id=_NO_PRODUCER,
                producer_epoch=_NO_PRODUCER,
                topics=[],
            )
        ),
        answer_class=DescribeTransactionsResponse,
    )
)


def describe_transactions(
    asked: Asked[DescribeTransactionsRequest, DescribeTransactionsResponse],
) -> Steps:
    """Show only the topics of a transaction that the client may describe."""
    client, handler = asked.client, asked.handler

    def described(
        of: ApiCall[DescribeTransactionsResponse], asked: DescribeTransactionsRequest
    ) -> Steps:
        refusals = of.amend

        def amend(answer: DescribeTransactionsResponse) -> Building[DescribeTransactionsResponse]:
            for state in answer.transaction_states:
                shown = []
                for topic in state.topics:
                    yield None
                    if client.may_unlogged(AclOperation.DESCRIBE, _TOPIC, topic.topic):
                        shown.append(topic)
                state.topics = shown
            if refusals is not None:
                answer = yield from refusals(answer)
            return answer

        of.amend = amend
        yield from passed(handler, of, asked)

    yield from _DESCRIBED_TRANSACTIONS(asked._replace(handler=described))


def list_transactions(asked: Asked[ListTransactionsRequest, ListTransactionsResponse]) -> Steps:
    client, call, request, handler = asked
    call.amend = only(
        "transaction_states",
        lambda state: client.may_unlogged(
            AclOperation.DESCRIBE, _TRANSACTION, state.transactional_id
        ),
    )
    yield from passed(handler, call, request)


def _of_sink(request: OfSink) -> Iterable[Right]:
    return (Right(AclOperation.WRITE, _TRANSACTION, request.sink),)


def _sink_refused(answer_class: Callable[..., Resp]) -> Refusal[OfSink, Resp]:
    return briefly(
        lambda code: answer_class(error_code=code, error_message=ErrorCode.of(code).meaning)
    )


join_batch = whole(_of_sink, _sink_refused(JoinBatchResponse))
commit_batch = whole(_of_sink, _sink_refused(CommitBatchResponse))
batch_heartbeat = whole(_of_sink, _sink_refused(BatchResponse))
abort_members = whole(_of_sink, _sink_refused(BatchResponse))


def describe_sinks(asked: Asked[DescribeSinksRequest, DescribeSinksResponse]) -> Steps:
    """Show only the topics of an attempt that the client may describe."""
    client, call, request, handler = asked

    def amend(answer: DescribeSinksResponse) -> Building[DescribeSinksResponse]:
        shown = []
        for query in answer.queries:
            yield None
            if client.may_unlogged(AclOperation.DESCRIBE, _TRANSACTION, query.sink):
                members = [_shown_member(client, member) for member in query.members]
                shown.append(replace(query, members=members))
        answer.queries = shown
        return answer

    call.amend = amend
    yield from passed(handler, call, request)


def _shown_member(client: RequestClient, member: OpenMember) -> OpenMember:
    topics = {tp.topic for tp in member.partitions}
    hidden = {
        topic for topic in topics if not client.may_unlogged(AclOperation.DESCRIBE, _TOPIC, topic)
    }
    if not hidden:
        return member
    return replace(member, partitions=[tp for tp in member.partitions if tp.topic not in hidden])
