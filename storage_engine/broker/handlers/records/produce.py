"""Produce: appends to leaders, and waits for followers with acks=all, for the disk with
`flush.before.ack`.

Each partition succeeds or fails by itself; with acks=0 nothing is answered, and an error closes the
connection, which is all that such a client can notice. Source: R-REP3, R-REP6, R-LOG12.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.append_outcomes import AppendOutcomes
from storage_engine.broker.replicas.producer_appends import ProducerAppends
from storage_engine.broker.replicas.purgatory import DelayedAnswer
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.current_leaders import CurrentLeaders
from storage_engine.broker.requests.delayed_produce import AwaitedAppend
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.transactions.transactional_appends import TransactionalAppends
from storage_engine.core.errors import ErrorCode, InvalidRecordError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.log.appending.append_result import AppendOutcome, AppendResult
from storage_engine.net.client_log import ClientLog
from storage_engine.net.connection import Connection
from storage_engine.net.limits import SCRATCH_BYTES
from storage_engine.protocol.apis.produce import (
    FIRST_WITH_LEADERS,
    FIRST_WITH_V2_BATCHES,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
)
from storage_engine.protocol.records.record_keys import NAMED_MAX

TOLD_MAX = 2_000
"""The most characters of an error that a producer is told."""

log = ClientLog(__name__)

STEP_PARTITIONS = 20
STEP_BYTES = 1 << 20
"""Appended in one step of a request of many partitions: a millisecond or two."""

LONGEST_WAIT_MS = 600_000
"""The followers are waited for no longer, whatever the client asks for."""


MayStillWrite = Callable[[ApiCall[ProduceResponse], str | None, str], ErrorCode]
"""(call, transactional id, topic) -> why the producer may not write to it any more, or NONE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceHandler:
    """Answers Produce."""

    replicas: ReplicaManager
    producer_appends: ProducerAppends
    transactional_appends: TransactionalAppends
    scheduler: Scheduler
    leaders: CurrentLeaders
    may_still_write: MayStillWrite | None = None
    """For batches that are appended after a wait; None where everybody may write."""

    def handle(self, call: ApiCall[ProduceResponse], request: ProduceRequest) -> Steps | None:
        refusal = _refusal(call.version, request)
        if len(request.partitions) > STEP_PARTITIONS:
            return self._handle_many(call, request, refusal)
        if refusal is None and request.transactional_id is None:
            at_once = self._append_at_once(call.connection, request)
            if at_once is not None:
                self.answer(call, request, at_once)
                return None
        outcomes = self._outcomes(request, partial(self.answer, call, request))
        self._append_all(call, request, refusal, outcomes.settle)
        return None

    def _handle_many(
        self,
        call: ApiCall[ProduceResponse],
        request: ProduceRequest,
        refusal: KafkaError | None,
    ) -> Steps:
        """Append in steps, and answer when the outcome of every append is known."""
        if sum([len(item.records or b"") for item in request.partitions]) < SCRATCH_BYTES:
            # They may lie in memory that is the next request's when this turn ends.
            request = request._replace(partitions=[_kept(item) for item in request.partitions])
        outcomes = self._outcomes(
            request, lambda every: call.run(self._answering(call, request, every))
        )
        first = 0
        for some in _in_steps(request.partitions):
            part = request._replace(partitions=some)
            self._append_all(call, part, refusal, partial(_settle_from, outcomes, first))
            first += len(some)
            yield None

    def _outcomes(
        self, request: ProduceRequest, on_all: Callable[[Iterable[AppendOutcome]], None]
    ) -> AppendOutcomes:
        partitions = [TopicPartition(item.topic, item.partition) for item in request.partitions]
        return AppendOutcomes(partitions, self.replicas, on_all)

    def _append_all(
        self,
        call: ApiCall[ProduceResponse],
        request: ProduceRequest,
        refusal: KafkaError | None,
        settle: Callable[[int, AppendOutcome], None],
    ) -> None:
        """Append each partition's batch as soon as it may be; `settle` gets the outcome of each,
        by its place in the request."""
        if refusal is None and request.transactional_id is not None:

            def settle_all(every: Iterable[AppendOutcome]) -> None:
                for index, outcome in enumerate(every):
                    settle(index, outcome)

            self.transactional_appends.append(
                call.version,
                request,
                call.connection,
                settle_all,
                refusal_of=partial(self._lost, call, request.transactional_id),
            )
            return
        for index, item in enumerate(request.partitions):
            if refusal is not None:
                settle(index, refusal)
            elif not isinstance(item.records, memoryview):
                settle(index, InvalidRecordError("the request has no records for this partition"))
            elif (lost := self._lost(call, None, item.topic)) is not None:
                # Of many partitions the later ones come some turns after they were asked for.
                settle(index, lost)
            else:
                self.producer_appends.append(
                    TopicPartition(item.topic, item.partition),
                    item.records,
                    call.connection,
                    acks=request.acks,
                    on_outcome=partial(settle, index),
                    refusal=partial(self._lost, call, None, item.topic),
                )

    def _lost(
        self, call: ApiCall[ProduceResponse], transactional_id: str | None, topic: str
    ) -> KafkaError | None:
        """Why the producer may not write to the topic any more."""
        if self.may_still_write is None:
            return None
        code = self.may_still_write(call, transactional_id, topic)
        return None if code is ErrorCode.NONE else KafkaError(code.meaning, code).as_outcome()

    def _append_at_once(
        self, connection: Connection, request: ProduceRequest
    ) -> list[AppendOutcome] | None:
        """The outcomes where nothing has to wait, as in nearly every request; None, and nothing is
        done, otherwise."""
        takes_at_once = self.producer_appends.takes_at_once
        every: list[tuple[TopicPartition, memoryview]] = []
        for item in request.partitions:
            if not isinstance(item.records, memoryview):
                return None
            tp = TopicPartition(item.topic, item.partition)
            if not takes_at_once(tp, item.records, connection):
                return None
            every.append((tp, item.records))
        append = self.producer_appends.append_at_once
        return [append(tp, records, connection, acks=request.acks) for tp, records in every]

    def answer(
        self,
        call: ApiCall[ProduceResponse],
        request: ProduceRequest,
        outcomes: Iterable[AppendOutcome],
    ) -> None:
        """Respond to a request whose appends are done, now or when they are acknowledged."""
        for _ in self._answering(call, request, outcomes):
            pass

    def _answering(
        self,
        call: ApiCall[ProduceResponse],
        request: ProduceRequest,
        outcomes: Iterable[AppendOutcome],
    ) -> Steps:
        """Like `answer`, in steps."""
        acks = request.acks
        responses: list[ProducePartitionResponse] = []
        waiting: list[AwaitedAppend] = []
        # Of all partitions, since the answer is encoded in one step.
        named_max = NAMED_MAX
        for item, outcome in zip(request.partitions, outcomes, strict=True):
            if isinstance(outcome, KafkaError):
                responses.append(_failed(item, outcome, named_max))
                named_max -= len(responses[-1].record_errors)
            else:
                responses.append(self._appended(item, outcome, acks, waiting, responses))
            if len(responses) % STEP_PARTITIONS == 0:
                yield None
        if acks == 0:
            _finish_unacknowledged(call, responses)
        elif not waiting:
            self._respond(call, responses)
        else:
            DelayedAnswer(
                waiting,
                timeout_ms=max(0, min(request.timeout_ms, LONGEST_WAIT_MS)),
                scheduler=self.scheduler,
                respond=lambda: self._respond(call, responses),
            )

    def _respond(
        self, call: ApiCall[ProduceResponse], responses: list[ProducePartitionResponse]
    ) -> None:
        response = ProduceResponse(responses)
        if call.version >= FIRST_WITH_LEADERS and any(row.error_code for row in responses):
            response = self.leaders.in_produce(responses, call.connection.listener_name)
        call.respond(response)

    def _appended(
        self,
        item: ProducePartition,
        result: AppendResult,
        acks: int,
        waiting: list[AwaitedAppend],
        responses: list[ProducePartitionResponse],
    ) -> ProducePartitionResponse:
        """The response for one partition, which may wait for its replicas or its disk."""
        tp = TopicPartition(item.topic, item.partition)
        partition = self.replicas.get(tp)
        if partition is None:
            # Appended to some turns ago, before other partitions of a transaction.
            gone = KafkaError(f"this broker no longer has {tp}", ErrorCode.NOT_LEADER_OR_FOLLOWER)
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


def _refusal(version: int, request: ProduceRequest) -> KafkaError | None:
    """Why nothing of the request can be taken."""
    if request.acks not in (-1, 0, 1):
        return KafkaError(
            f"acks={request.acks}: must be -1, 0 or 1", ErrorCode.INVALID_REQUIRED_ACKS
        )
    if version < FIRST_WITH_V2_BATCHES:
        return KafkaError(
            "messages of magic 0 or 1 are not stored, only record batches of magic 2 are",
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        )
    return None


def _failed(
    item: ProducePartition, failure: KafkaError, named_max: int = NAMED_MAX
) -> ProducePartitionResponse:
    """`named_max`: the most records of its batch that it may name."""
    if not failure.retriable:
        log.info(
            item.topic, "produce refused partition=%s-%d: %s", item.topic, item.partition, failure
        )
    return ProducePartitionResponse(
        item.topic,
        item.partition,
        int(failure.code),
        -1,
        -1,
        -1,
        _told(failure),
        _bad_records(failure, named_max),
    )


def _told(failure: KafkaError) -> str:
    """The message of a refusal: an answer that is too long for the protocol would reach nobody."""
    return str(failure)[:TOLD_MAX]


def _bad_records(failure: KafkaError, most: int) -> list[tuple[int, str | None]]:
    """The place in its batch of each record that was refused, where it is known, and why."""
    if isinstance(failure, InvalidRecordError):
        return [(place, reason[:TOLD_MAX]) for place, reason in failure.records[:most]]
    return []


def _finish_unacknowledged(
    call: ApiCall[ProduceResponse], responses: list[ProducePartitionResponse]
) -> None:
    call.exchange.skip()
    for response in responses:
        if response.error_code:
            call.connection.close(
                f"produce with acks=0 to {response.topic}-{response.partition} failed: "
                f"{response.error_message}"
            )
            return
