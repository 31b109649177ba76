"""The rights to write, read and delete records.

The guard of Fetch checks replicas only. The right of a consumer to each topic is checked when the
fetch is answered (`FetchHandler.unreadable`), since a fetch may wait, and a fetch session lasts
longer than the rights at its start.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from storage_engine.broker.guards.client import REFUSALS, Asked, passed
from storage_engine.broker.guards.shares import (
    Building,
    ByItem,
    each_refused,
    of_partitions,
    rows_of,
)
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import AclOperation, ResourceType
from storage_engine.net.limits import SCRATCH_BYTES
from storage_engine.protocol.apis.fetch import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from storage_engine.protocol.apis.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
)
from storage_engine.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from storage_engine.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

_TOPIC = ResourceType.TOPIC
_DENIED_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED

FEW_TOPICS = 20
"""The most topics of a request that are checked in one step."""


def produce(asked: Asked[ProduceRequest, ProduceResponse]) -> Steps | None:
    client, call, request, handler = asked
    name, partitions = request.transactional_id, request.partitions
    if (
        name is None
        and len(partitions) == 1
        and client.may_unlogged(AclOperation.WRITE, _TOPIC, partitions[0].topic)
    ):
        # As in nearly every request.
        return handler(call, request)
    if name is not None and not client.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        _refuse_produce(call, request.acks, [_unwritten(item, denied) for item in partitions])
        return None
    topics = {item.topic for item in partitions}
    if len(topics) <= FEW_TOPICS and all(
        client.may_unlogged(AclOperation.WRITE, _TOPIC, topic) for topic in topics
    ):
        return handler(call, request)
    return _produce_some(asked._replace(request=_with_kept_records(request)))


def _with_kept_records(request: ProduceRequest) -> ProduceRequest:
    """A request that stays valid in later turns, when the frame's memory is reused."""
    if sum([len(item.records or b"") for item in request.partitions]) >= SCRATCH_BYTES:
        return request
    return request._replace(
        partitions=[
            item._replace(records=memoryview(bytearray(item.records)))
            if isinstance(item.records, memoryview)
            else item
            for item in request.partitions
        ]
    )


def _produce_some(asked: Asked[ProduceRequest, ProduceResponse]) -> Steps:
    client, call, request, handler = asked
    topics = [item.topic for item in request.partitions]
    refused = yield from client.refused(AclOperation.WRITE, _TOPIC, topics)
    kept, rows = [], []
    for item in request.partitions:
        if item.topic in refused:
            rows.append(_unwritten(item, _DENIED_TOPIC))
        else:
            kept.append(item)
        yield None
    if not kept:
        _refuse_produce(call, request.acks, rows)
        return
    if rows and request.acks == 0:
        yield from passed(handler, call, request._replace(partitions=kept))
        call.connection.close(_unanswered(rows))
        return
    if rows:
        call.amend = partial(_with_partitions, rows)
    yield from passed(handler, call, request._replace(partitions=kept))


def _with_partitions(rows: Sequence[Any], answer: Any) -> Building[Any]:
    yield from ()
    return answer._replace(partitions=[*answer.partitions, *rows])


def _refuse_produce(
    call: ApiCall[ProduceResponse], acks: int, rows: Sequence[ProducePartitionResponse]
) -> None:
    if acks == 0:
        # With acks=0 the client only notices a closed connection.
        call.exchange.skip()
        call.connection.close(_unanswered(rows))
    else:
        call.respond(ProduceResponse(rows))


def _unanswered(rows: Sequence[ProducePartitionResponse]) -> str:
    first = rows[0] if rows else None
    what = "" if first is None else f" to {first.topic}-{first.partition}"
    return f"produce with acks=0{what} is not allowed"


def _unwritten(item: ProducePartition, code: ErrorCode) -> ProducePartitionResponse:
    return ProducePartitionResponse(item.topic, item.partition, int(code))


def fetch(asked: Asked[FetchRequest, FetchResponse]) -> Steps | None:
    """A fetch with a replica id requires the right of a broker."""
    client, call, request, handler = asked
    if request.replica_id < 0 or client.may_to_cluster(AclOperation.CLUSTER_ACTION):
        return handler(call, request)
    return _refuse_fetch(call, request)


def _refuse_fetch(call: ApiCall[FetchResponse], request: FetchRequest) -> Steps:
    rows = []
    for each in request.partitions:
        rows.append(unread(each.topic, each.partition))
        yield None
    call.respond(FetchResponse(rows))


def unread(topic: str, partition: int) -> FetchPartitionResponse:
    """The answer for a partition that the consumer may not read."""
    return FetchPartitionResponse(topic, partition, int(_DENIED_TOPIC))


def list_offsets(asked: Asked[ListOffsetsRequest, ListOffsetsResponse]) -> Steps:
    client, call, request, handler = asked
    if request.replica_id >= 0:
        # A replica's answer goes beyond the high watermark.
        if client.may_to_cluster(AclOperation.CLUSTER_ACTION):
            yield from passed(handler, call, request)
            return
        code = int(REFUSALS[ResourceType.CLUSTER])
        refusals = []
        for each in request.partitions:
            refusals.append(ListOffsetsPartitionResponse(each.topic, each.partition, code))
            yield None
        call.respond(ListOffsetsResponse(refusals))
        return
    topics = [item.topic for item in request.partitions]
    refused = yield from client.refused(AclOperation.DESCRIBE, _TOPIC, topics)
    if refused:
        kept, rows = [], []
        for each in request.partitions:
            if each.topic in refused:
                rows.append(
                    ListOffsetsPartitionResponse(each.topic, each.partition, int(_DENIED_TOPIC))
                )
            else:
                kept.append(each)
            yield None
        call.amend = partial(_with_partitions, rows)
        request = request._replace(partitions=kept)
    yield from passed(handler, call, request)


_Deleted = DeleteRecordsResponse.DeleteRecordsTopicResult


_undeleted = of_partitions(_Deleted, _Deleted.DeleteRecordsPartitionResult, low_watermark=-1)


delete_records = ByItem[
    DeleteRecordsRequest.DeleteRecordsTopic, DeleteRecordsRequest, DeleteRecordsResponse
](
    operation=AclOperation.DELETE,
    row=_undeleted,
    answer_class=DeleteRecordsResponse,
)

_AskedEpochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
_EpochTopic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


def _no_epochs(topic: _AskedEpochs, code: int) -> Building[_EpochTopic]:
    row = _EpochTopic.EpochEndOffset
    rows = yield from rows_of(
        topic.partitions, lambda each: row(partition=each.partition, error_code=code)
    )
    return _EpochTopic(topic=topic.topic, partitions=rows)


_EPOCHS_OF_TOPICS = ByItem[_AskedEpochs, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse](
    operation=AclOperation.DESCRIBE,
    name=lambda topic: topic.topic,
    row=_no_epochs,
    answer_class=OffsetForLeaderEpochResponse,
)


def offset_for_leader_epoch(
    asked: Asked[OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse],
) -> Steps:
    client, call, request, handler = asked
    if request.replica_id < 0:
        yield from _EPOCHS_OF_TOPICS(asked)
    elif client.may_to_cluster(AclOperation.CLUSTER_ACTION):
        yield from passed(handler, call, request)
    else:
        code = int(REFUSALS[ResourceType.CLUSTER])
        rows = yield from each_refused(request.topics, _no_epochs, code)
        call.respond(OffsetForLeaderEpochResponse(topics=rows))
