"""What transactional producers and the exactly-once sink have to ask for.

A sink is a TransactionalId by its own name: whoever may write to it may join, commit and abort its
micro-batches. The topics are asked for where partitions are enlisted and written.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from storage_engine.broker.guards.client import REFUSALS, RequestClient, Right, passed
from storage_engine.broker.guards.shares import (
    Building,
    ByItem,
    Refusal,
    TopicRows,
    briefly,
    first_asks,
    of_cluster,
    only,
    row_of,
    whole,
)
from storage_engine.broker.handlers.api_call import AnyHandler, ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_types import CLUSTER_NAME, AclOperation, ResourceType
from storage_engine.protocol.apis.commit_batch import CommitBatchResponse
from storage_engine.protocol.apis.describe_sinks import OpenMember
from storage_engine.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from storage_engine.protocol.apis.join_batch import JoinBatchResponse
from storage_engine.protocol.apis.micro_batch_fields import BatchResponse
from storage_engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from storage_engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from storage_engine.protocol.messages.describe_producers import DescribeProducersResponse
from storage_engine.protocol.messages.describe_transactions import DescribeTransactionsResponse
from storage_engine.protocol.messages.end_txn import EndTxnResponse
from storage_engine.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from storage_engine.protocol.messages.write_txn_markers import WriteTxnMarkersResponse

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_TRANSACTION, _CLUSTER = ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER


def _writes_as(request: Any) -> Iterable[Right]:
    return (Right(AclOperation.WRITE, _TRANSACTION, request.transactional_id),)


def _with_offsets_of(request: Any) -> Iterable[Right]:
    return (
        Right(AclOperation.WRITE, _TRANSACTION, request.transactional_id),
        Right(AclOperation.READ, _GROUP, request.group_id),
    )


def init_producer_id(
    client: RequestClient,
    call: ApiCall[InitProducerIdResponse],
    request: InitProducerIdRequest,
    handler: AnyHandler,
) -> Steps | None:
    """Without a transaction whoever may write to any topic gets an id (KIP-679)."""
    name = request.transactional_id
    if name is not None:
        kind = _TRANSACTION
        client.grant(tuple(_writes_as(request)))
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
_ENLISTED_ROWS = TopicRows(
    topic_class=AddPartitionsToTxnTopicResult,
    partition_class=AddPartitionsToTxnPartitionResult,
    partitions="results_by_partition",
    code="partition_error_code",
    asked_index=None,
)


def add_partitions_to_txn(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
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
        rows = yield from _ENLISTED_ROWS.all_of(topics, int(REFUSALS[_TRANSACTION]))
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
        rows.append((yield from _ENLISTED_ROWS(topic, int(code))))
    call.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows))


_Committed = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_COMMIT_ROWS = TopicRows(
    topic_class=_Committed, partition_class=_Committed.TxnOffsetCommitResponsePartition
)


def _commit_refused(request: Any, code: int) -> Building:
    rows = yield from _COMMIT_ROWS.all_of(request.topics, code)
    return TxnOffsetCommitResponse(topics=rows)


txn_offset_commit = first_asks(
    _with_offsets_of,
    _commit_refused,
    ByItem(
        operation=AclOperation.READ,
        kind=_TOPIC,
        items="topics",
        name="name",
        rows="topics",
        row=_COMMIT_ROWS,
        answer_class=TxnOffsetCommitResponse,
    ),
)

_Marked = WriteTxnMarkersResponse.WritableTxnMarkerResult
_MARKED_ROWS = TopicRows(
    topic_class=_Marked.WritableTxnMarkerTopicResult,
    partition_class=_Marked.WritableTxnMarkerTopicResult.WritableTxnMarkerPartitionResult,
    asked_partitions="partition_indexes",
    asked_index=None,
)


def _markers_refused(request: Any, code: int) -> Building:
    markers = []
    for marker in request.markers:
        rows = yield from _MARKED_ROWS.all_of(marker.topics, code)
        markers.append(_Marked(producer_id=marker.producer_id, topics=rows))
        yield None
    return WriteTxnMarkersResponse(markers=markers)


write_txn_markers = of_cluster(AclOperation.CLUSTER_ACTION, _markers_refused)

_Producers = DescribeProducersResponse.TopicResponse

describe_producers = ByItem(
    operation=AclOperation.READ,
    kind=_TOPIC,
    items="topics",
    name="name",
    rows="topics",
    row=TopicRows(
        topic_class=_Producers,
        partition_class=_Producers.PartitionResponse,
        extra={"error_message": None, "active_producers": []},
        asked_partitions="partition_indexes",
        asked_index=None,
    ),
    answer_class=DescribeProducersResponse,
)

_State = DescribeTransactionsResponse.TransactionState
_NO_TIME = -1
_NO_PRODUCER = -1

_DESCRIBED_TRANSACTIONS = ByItem(
    operation=AclOperation.DESCRIBE,
    kind=_TRANSACTION,
    items="transactional_ids",
    name=None,
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


def describe_transactions(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
    """Of a transaction's topics those are shown that the client may describe."""

    def described(of: ApiCall[Any], asked: Any) -> Steps:
        refusals = of.amend

        def amend(answer: Any) -> Building:
            for state in answer.transaction_states:
                shown = []
                for topic in state.topics:
                    yield None
                    if client.may_quietly(AclOperation.DESCRIBE, _TOPIC, topic.topic):
                        shown.append(topic)
                state.topics = shown
            if refusals is not None:
                answer = yield from refusals(answer)
            return answer

        of.amend = amend
        yield from passed(handler, of, asked)

    yield from _DESCRIBED_TRANSACTIONS(client, call, request, described)


def list_transactions(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
    call.amend = only(
        "transaction_states",
        lambda state: client.may_quietly(
            AclOperation.DESCRIBE, _TRANSACTION, state.transactional_id
        ),
    )
    yield from passed(handler, call, request)


def _of_sink(request: Any) -> Iterable[Right]:
    return (Right(AclOperation.WRITE, _TRANSACTION, request.sink),)


def _sink_refused(answer_class: Callable[..., Any]) -> Refusal:
    return briefly(
        lambda code: answer_class(error_code=code, error_message=ErrorCode.of(code).meaning)
    )


join_batch = whole(_of_sink, _sink_refused(JoinBatchResponse))
commit_batch = whole(_of_sink, _sink_refused(CommitBatchResponse))
batch_heartbeat = whole(_of_sink, _sink_refused(BatchResponse))
abort_members = whole(_of_sink, _sink_refused(BatchResponse))


def describe_sinks(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
    """Of an attempt's topics those are shown that the client may describe."""

    def amend(answer: Any) -> Building:
        shown = []
        for query in answer.queries:
            yield None
            if client.may_quietly(AclOperation.DESCRIBE, _TRANSACTION, query.sink):
                members = [_shown_member(client, member) for member in query.members]
                shown.append(replace(query, members=members))
        answer.queries = shown
        return answer

    call.amend = amend
    yield from passed(handler, call, request)


def _shown_member(client: RequestClient, member: OpenMember) -> OpenMember:
    topics = {tp.topic for tp in member.partitions}
    hidden = {
        topic for topic in topics if not client.may_quietly(AclOperation.DESCRIBE, _TOPIC, topic)
    }
    if not hidden:
        return member
    return replace(member, partitions=[tp for tp in member.partitions if tp.topic not in hidden])
