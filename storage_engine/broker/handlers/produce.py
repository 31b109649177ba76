"""Produce: appends to leaders, and waits for followers with acks=all, for the disk with
`flush.before.ack`.

Rule: each partition succeeds or fails by itself; with acks=0 nothing is answered, and an error
closes the connection, which is all that such a client can notice. Source: R-REP3, R-REP6, R-LOG12.
"""

import logging
from functools import partial
from itertools import pairwise

from storage_engine.broker.append_outcomes import AppendOutcomes, Outcome
from storage_engine.broker.delayed_answer import DelayedAnswer
from storage_engine.broker.delayed_produce import AwaitedAppend
from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.core.errors import ErrorCode, InvalidRecordError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.append_result import AppendResult
from storage_engine.net.connection import Connection
from storage_engine.protocol.apis.produce import (
    API,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
)
from storage_engine.protocol.batch_columns import BatchColumns
from storage_engine.protocol.produce_run import (
    FIRST_VERSION_WITH_V2_BATCHES,
    ProducePattern,
    ProduceRun,
)
from storage_engine.protocol.record_batch import NO_TIMESTAMP

log = logging.getLogger(__name__)

LONGEST_WAIT_MS = 600_000
"""However long a client is willing to wait for the followers."""


def handle(context: BrokerContext, call: Call, request: ProduceRequest) -> None:
    refusal = _refusal(call, request)
    if refusal is None and request.transactional_id is not None:
        context.transactional_appends.append(
            call.version, request, lambda outcomes: _answer(context, call, request, outcomes)
        )
        return
    partitions = [TopicPartition(item.topic, item.partition) for item in request.partitions]
    if refusal is None:
        at_once = _append_at_once(context, partitions, request)
        if at_once is not None:
            _answer(context, call, request, at_once)
            return
    outcomes = AppendOutcomes(
        partitions, context.replicas, lambda done: _answer(context, call, request, done)
    )
    for index, (tp, item) in enumerate(zip(partitions, request.partitions, strict=True)):
        if refusal is not None:
            outcomes.settle(index, refusal)
        elif not isinstance(item.records, memoryview):
            none = InvalidRecordError("the request has no records for this partition")
            outcomes.settle(index, none)
        else:
            context.prepared_appends.append(
                tp, item.records, acks=request.acks, on_outcome=partial(outcomes.settle, index)
            )


def _append_at_once(
    context: BrokerContext, partitions: list[TopicPartition], request: ProduceRequest
) -> list[Outcome] | None:
    """The outcomes where nothing has to wait, as in nearly every request; None, and nothing is
    done, otherwise."""
    takes_at_once = context.prepared_appends.takes_at_once
    every: list[tuple[TopicPartition, tuple[memoryview]]] = []
    for tp, item in zip(partitions, request.partitions, strict=True):
        if not isinstance(item.records, memoryview):
            return None
        records = (item.records,)
        if not takes_at_once(tp, records):
            return None
        every.append((tp, records))
    append_run = context.replicas.appends.append_run
    return [append_run(tp, records, acks=request.acks)[0] for tp, records in every]


def handle_run(context: BrokerContext, connection: Connection, run: ProduceRun) -> None:
    """As `handle` for each of the requests in turn, with one append for all of them."""
    pattern = run.pattern
    tp = pattern.partition
    if not context.prepared_appends.takes_at_once(tp, run.records):
        for correlation_id, records in zip(run.correlation_ids, run.records, strict=True):
            call = _call(connection, pattern, correlation_id)
            request = _request(pattern, records)
            context.prepared_appends.append(
                tp, records, acks=pattern.acks, on_outcome=partial(_settle, context, call, request)
            )
        return
    outcomes = context.replicas.appends.append_run(tp, run.records, acks=pattern.acks)
    if answers_at_once(context, connection, pattern):
        base_offsets = [
            outcome.base_offset
            for outcome in outcomes
            if isinstance(outcome, AppendResult) and outcome.log_append_time_ms == NO_TIMESTAMP
        ]
        if len(base_offsets) == len(outcomes):
            _answer_together(context, connection, pattern, run.correlation_ids, base_offsets)
            return
    for correlation_id, records, outcome in zip(
        run.correlation_ids, run.records, outcomes, strict=True
    ):
        _answer_one(context, connection, pattern, correlation_id, records, outcome)


def handle_columns(
    context: BrokerContext,
    connection: Connection,
    pattern: ProducePattern,
    correlation_ids: list[int],
    columns: BatchColumns,
) -> bool:
    """As `handle_run`; False, and nothing is done, unless all batches can be appended as they
    are."""
    if context.prepared_appends.has_waiting(pattern.partition):
        return False
    outcome = context.replicas.appends.append_columns(pattern.partition, columns, acks=pattern.acks)
    if outcome is None:
        return False
    if isinstance(outcome, KafkaError):
        for correlation_id in correlation_ids:
            _answer_one(context, connection, pattern, correlation_id, None, outcome)
        return True
    if answers_at_once(context, connection, pattern):
        _answer_together(context, connection, pattern, correlation_ids, outcome[:-1])
        return True
    for correlation_id, size, (base_offset, following) in zip(
        correlation_ids, columns.sizes, pairwise(outcome), strict=True
    ):
        result = AppendResult(base_offset, following - 1, following, NO_TIMESTAMP, False, size)
        _answer_one(context, connection, pattern, correlation_id, None, result)
    return True


def _answer_together(
    context: BrokerContext,
    connection: Connection,
    pattern: ProducePattern,
    correlation_ids: list[int],
    base_offsets: list[int],
) -> None:
    partition = context.replicas.get(pattern.partition)
    assert partition is not None
    log_start_offset = partition.log.log_start_offset
    answers = pattern.answers(correlation_ids, base_offsets, log_start_offset)
    connection.begin().respond([answers])


def _answer_one(
    context: BrokerContext,
    connection: Connection,
    pattern: ProducePattern,
    correlation_id: int,
    records: memoryview | None,
    outcome: Outcome,
) -> None:
    call = _call(connection, pattern, correlation_id)
    _answer(context, call, _request(pattern, records), [outcome])


def _call(connection: Connection, pattern: ProducePattern, correlation_id: int) -> Call:
    """Takes up a request of a run."""
    return Call(API, pattern.version, correlation_id, connection, connection.begin())


def _request(pattern: ProducePattern, records: memoryview | None) -> ProduceRequest:
    tp = pattern.partition
    item = ProducePartition(tp.topic, tp.partition, records)
    return ProduceRequest(None, pattern.acks, pattern.timeout_ms, [item])


def _settle(context: BrokerContext, call: Call, request: ProduceRequest, outcome: Outcome) -> None:
    _answer(context, call, request, [outcome])


def answers_at_once(
    context: BrokerContext, connection: Connection, pattern: ProducePattern
) -> bool:
    """Whether all requests of a run are answered, and their answers released, within the call."""
    if pattern.acks != 1 or connection.unanswered:
        return False
    partition = context.replicas.get(pattern.partition)
    if partition is None:
        return True
    return (
        not partition.config.flush_before_ack
        and partition.log.append_requirement is None
        and not context.prepared_appends.has_waiting(pattern.partition)
    )


def _answer(
    context: BrokerContext, call: Call, request: ProduceRequest, outcomes: list[Outcome]
) -> None:
    """Respond to a request whose appends are done, or see to it that this happens later."""
    acks = request.acks
    responses: list[ProducePartitionResponse] = []
    waiting: list[AwaitedAppend] = []
    for item, outcome in zip(request.partitions, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            responses.append(_failed(item, outcome))
        else:
            responses.append(_appended(context, item, outcome, acks, waiting, responses))
    if acks == 0:
        _finish_unacknowledged(call, responses)
    elif not waiting:
        call.respond(ProduceResponse(responses))
    else:
        DelayedAnswer(
            waiting,
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
    return None


def _appended(
    context: BrokerContext,
    item: ProducePartition,
    result: AppendResult,
    acks: int,
    waiting: list[AwaitedAppend],
    responses: list[ProducePartitionResponse],
) -> ProducePartitionResponse:
    """The response for one partition, and what it waits for."""
    tp = TopicPartition(item.topic, item.partition)
    partition = context.replicas.get(tp)
    if partition is None:
        # Appended to some turns ago, before other partitions of a transaction.
        gone = KafkaError(f"{tp} is here no more", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return _failed(item, gone)
    required_offset = result.last_offset + 1
    if acks == -1 or (acks == 1 and partition.config.flush_before_ack):
        waiting.append(
            AwaitedAppend(
                partition,
                responses,
                required_offset=required_offset,
                index=len(responses),
                by_all=acks == -1,
            )
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
