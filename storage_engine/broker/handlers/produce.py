"""Produce: appends to leaders, and waits for followers with acks=all, for the disk with
`flush.before.ack`.

Rule: each partition succeeds or fails by itself; with acks=0 nothing is answered, and an error
closes the connection, which is all that such a client can notice. Source: R-REP3, R-REP6, R-LOG12.
"""

import logging

from storage_engine.broker.delayed_produce import AwaitedAppend, DelayedProduce
from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.core.errors import ErrorCode, InvalidRecordError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
)

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_V2_BATCHES = 3

LONGEST_WAIT_MS = 600_000
"""However long a client is willing to wait for the followers."""


def handle(context: BrokerContext, call: Call, request: ProduceRequest) -> None:
    acks = request.acks
    refusal = _refusal(call, request)
    responses: list[ProducePartitionResponse] = []
    waiting: list[AwaitedAppend] = []
    for item in request.partitions:
        if refusal is None:
            responses.append(_append(context, item, acks, waiting, len(responses)))
        else:
            responses.append(_failed(item, refusal))
    if acks == 0:
        _finish_unacknowledged(call, responses)
    elif not waiting:
        call.respond(ProduceResponse(responses))
    else:
        DelayedProduce(
            waiting,
            responses,
            timeout_ms=max(0, min(request.timeout_ms, LONGEST_WAIT_MS)),
            scheduler=context.scheduler,
            respond=lambda: call.respond(ProduceResponse(responses)),
        )


def _refusal(call: Call, request: ProduceRequest) -> KafkaError | None:
    """Why nothing of the request can be taken."""
    if request.acks not in (-1, 0, 1):
        return KafkaError(
            f"acks={request.acks} is not possible: -1, 0 or 1 are", ErrorCode.INVALID_REQUIRED_ACKS
        )
    if call.version < FIRST_VERSION_WITH_V2_BATCHES:
        return KafkaError(
            "messages of magic 0 or 1 are not stored, only record batches of magic 2 are",
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        )
    if request.transactional_id is not None:
        return KafkaError(
            "transactions are not available in this version", ErrorCode.INVALID_TXN_STATE
        )
    return None


def _append(
    context: BrokerContext,
    item: ProducePartition,
    acks: int,
    waiting: list[AwaitedAppend],
    index: int,
) -> ProducePartitionResponse:
    tp = TopicPartition(item.topic, item.partition)
    records = item.records
    try:
        if not isinstance(records, memoryview):
            raise InvalidRecordError("the request has no records for this partition")
        replicas = context.replicas
        result = replicas.append(tp, records, acks=acks)
        partition = replicas.get(tp)
        assert partition is not None
    except KafkaError as failure:
        return _failed(item, failure)
    required_offset = result.last_offset + 1
    if acks == -1:
        waiting.append(AwaitedAppend(partition, required_offset=required_offset, index=index))
    elif acks == 1 and partition.config.flush_before_ack:
        waiting.append(
            AwaitedAppend(partition, required_offset=required_offset, index=index, by_all=False)
        )
    return ProducePartitionResponse(
        item.topic,
        item.partition,
        0,
        result.base_offset,
        result.log_append_time_ms,
        partition.log.log_start_offset,
    )


def _failed(item: ProducePartition, failure: KafkaError) -> ProducePartitionResponse:
    if not failure.retriable:
        log.info("produce refused partition=%s-%d: %s", item.topic, item.partition, failure)
    return ProducePartitionResponse(
        item.topic, item.partition, int(failure.code), -1, -1, -1, str(failure)
    )


def _finish_unacknowledged(call: Call, responses: list[ProducePartitionResponse]) -> None:
    call.exchange.skip()
    for response in responses:
        if response.error_code:
            call.connection.close(
                f"produce with acks=0 to {response.topic}-{response.partition} failed: "
                f"{response.error_message}"
            )
            return
