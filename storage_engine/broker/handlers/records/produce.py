"""Produce: appends to leaders, and waits for followers with acks=all, for the disk with
`flush.before.ack`.

Rule: each partition succeeds or fails by itself; with acks=0 nothing is answered, and an error
closes the connection, which is all that such a client can notice. Source: R-REP3, R-REP6, R-LOG12.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.broker.replicas.append_outcomes import AppendOutcomes
from storage_engine.broker.requests.delayed_answer import DelayedAnswer
from storage_engine.broker.requests.delayed_produce import AwaitedAppend
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode, InvalidRecordError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.appending.append_result import AppendOutcome, AppendResult
from storage_engine.net.connection import Connection
from storage_engine.net.limits import SCRATCH_BYTES
from storage_engine.protocol.apis.produce import (
    API,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
)
from storage_engine.protocol.produce_run import (
    FIRST_VERSION_WITH_V2_BATCHES,
    ProducePattern,
    ProduceRun,
)
from storage_engine.protocol.records.batch_columns import BatchColumns
from storage_engine.protocol.records.record_batch import NO_TIMESTAMP

log = logging.getLogger(__name__)

STEP_PARTITIONS = 20
STEP_BYTES = 1 << 20
"""Appended in one step of a request of many partitions: a millisecond or two."""

LONGEST_WAIT_MS = 600_000
"""However long a client is willing to wait for the followers."""


def handle(context: BrokerContext, call: Call, request: ProduceRequest) -> Steps | None:
    refusal = _refusal(call, request)
    if len(request.partitions) > STEP_PARTITIONS:
        return _handle_many(context, call, request, refusal)
    if refusal is None and request.transactional_id is None:
        at_once = _append_at_once(context, request)
        if at_once is not None:
            _answer(context, call, request, at_once)
            return None
    outcomes = _outcomes(context, request, partial(_answer, context, call, request))
    _append_all(context, call, request, refusal, outcomes.settle)
    return None


def _handle_many(
    context: BrokerContext, call: Call, request: ProduceRequest, refusal: KafkaError | None
) -> Steps:
    """Append in steps, and answer when all that was appended is known."""
    if sum([len(item.records or b"") for item in request.partitions]) < SCRATCH_BYTES:
        # They may lie in memory that is the next request's when this turn ends.
        request = request._replace(partitions=[_kept(item) for item in request.partitions])
    outcomes = _outcomes(
        context, request, lambda every: call.run(_answering(context, call, request, every))
    )
    first = 0
    for some in _in_steps(request.partitions):
        part = request._replace(partitions=some)
        _append_all(context, call, part, refusal, partial(_settle_from, outcomes, first))
        first += len(some)
        yield None


def _outcomes(
    context: BrokerContext,
    request: ProduceRequest,
    on_all: Callable[[Iterable[AppendOutcome]], None],
) -> AppendOutcomes:
    partitions = [TopicPartition(item.topic, item.partition) for item in request.partitions]
    return AppendOutcomes(partitions, context.replicas, on_all)


def _settle_from(outcomes: AppendOutcomes, first: int, index: int, outcome: AppendOutcome) -> None:
    """The outcome in a part of a request; the part begins with the partition number `first`."""
    outcomes.settle(first + index, outcome)


def _kept(item: ProducePartition) -> ProducePartition:
    records = item.records
    if not isinstance(records, memoryview):
        return item
    return item._replace(records=memoryview(bytearray(records)))


def _in_steps(items: Sequence[ProducePartition]) -> Iterator[list[ProducePartition]]:
    some: list[ProducePartition] = []
    size = 0
    for item in items:
        some.append(item)
        size += len(item.records or b"")
        if len(some) == STEP_PARTITIONS or size >= STEP_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _append_all(
    context: BrokerContext,
    call: Call,
    request: ProduceRequest,
    refusal: KafkaError | None,
    settle: Callable[[int, AppendOutcome], None],
) -> None:
    """Append each partition's batch as soon as it may be; `settle` hears of each what became of
    it."""
    if refusal is None and request.transactional_id is not None:

        def settle_all(every: Iterable[AppendOutcome]) -> None:
            for index, outcome in enumerate(every):
                settle(index, outcome)

        context.transactional_appends.append(call.version, request, settle_all)
        return
    for index, item in enumerate(request.partitions):
        if refusal is not None:
            settle(index, refusal)
        elif not isinstance(item.records, memoryview):
            settle(index, InvalidRecordError("the request has no records for this partition"))
        else:
            context.prepared_appends.append(
                TopicPartition(item.topic, item.partition),
                item.records,
                acks=request.acks,
                on_outcome=partial(settle, index),
            )


def _append_at_once(context: BrokerContext, request: ProduceRequest) -> list[AppendOutcome] | None:
    """The outcomes where nothing has to wait, as in nearly every request; None, and nothing is
    done, otherwise."""
    takes_at_once = context.prepared_appends.takes_at_once
    every: list[tuple[TopicPartition, tuple[memoryview]]] = []
    for item in request.partitions:
        if not isinstance(item.records, memoryview):
            return None
        tp = TopicPartition(item.topic, item.partition)
        records = (item.records,)
        if not takes_at_once(tp, records):
            return None
        every.append((tp, records))
    append_run = context.prepared_appends.append_run
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
    outcomes = context.prepared_appends.append_run(tp, run.records, acks=pattern.acks)
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
    outcome = context.prepared_appends.append_columns(pattern.partition, columns, acks=pattern.acks)
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
    outcome: AppendOutcome,
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


def _settle(
    context: BrokerContext, call: Call, request: ProduceRequest, outcome: AppendOutcome
) -> None:
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
        and partition.log.leader_appends.requirement is None
        and not context.prepared_appends.has_waiting(pattern.partition)
    )


def _answer(
    context: BrokerContext, call: Call, request: ProduceRequest, outcomes: Iterable[AppendOutcome]
) -> None:
    """Respond to a request whose appends are done, or see to it that this happens later."""
    for _ in _answering(context, call, request, outcomes):
        pass


def _answering(
    context: BrokerContext, call: Call, request: ProduceRequest, outcomes: Iterable[AppendOutcome]
) -> Steps:
    """As `_answer`, in steps."""
    acks = request.acks
    responses: list[ProducePartitionResponse] = []
    waiting: list[AwaitedAppend] = []
    for item, outcome in zip(request.partitions, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            responses.append(_failed(item, outcome))
        else:
            responses.append(_appended(context, item, outcome, acks, waiting, responses))
        if len(responses) % STEP_PARTITIONS == 0:
            yield None
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
