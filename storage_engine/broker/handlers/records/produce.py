"""Produce: appends batches to the partitions that this broker leads.

The answer waits for the followers with acks=all, and for this broker's disk where a topic has
`flush.before.ack`. Each partition succeeds or fails by itself. With acks=0 there is no answer: an
error closes the connection, because such a client notices nothing else.
Source: R-REP3, R-REP6, R-LOG12.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.hosted_partition import HostedPartition
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
from storage_engine.core.replication.partition import LeaderPartition
from storage_engine.log.append_rules import AppendOutcome
from storage_engine.net.client_log import ClientLog
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
"""The most characters of an error message to a producer."""

log = ClientLog(__name__)

STEP_PARTITIONS = 20
STEP_BYTES = SCRATCH_BYTES
"""The bytes appended in one step: a millisecond or two. Not less: the records of a request of few
partitions may lie in memory that is reused when the turn ends."""

LONGEST_WAIT_MS = 600_000
"""The longest wait for followers, whatever the client's timeout."""


MayStillWrite = Callable[[ApiCall[ProduceResponse], str | None, str], ErrorCode]
"""(call, transactional id, topic) -> the reason why the producer may no longer write, or NONE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceHandler:
    """Answers Produce."""

    replicas: ReplicaManager
    producer_appends: ProducerAppends
    transactional_appends: TransactionalAppends
    scheduler: Scheduler
    leaders: CurrentLeaders
    may_still_write: MayStillWrite | None = None
    """Checks batches that are appended after a wait; None where all clients may write."""

    def handle(self, call: ApiCall[ProduceResponse], request: ProduceRequest) -> Steps:
        """Append each partition's batches as soon as they may be, and answer when the outcome of
        every append is known."""
        request = _with_lasting_records(request)
        refusal = _refusal(call.version, request)
        outcomes = _Outcomes(len(request.partitions))
        size = 0
        has_waited = False
        for index, item in enumerate(request.partitions):
            if size >= STEP_BYTES or (index and index % STEP_PARTITIONS == 0):
                size, has_waited = 0, True
                yield None
            size += len(item.records or b"")
            # The guard has checked the rights some turns before the later partitions are appended.
            own_refusal = refusal
            if has_waited and own_refusal is None:
                own_refusal = self._lost_right(call, request.transactional_id, item.topic)
            self._append(call, request, item, own_refusal, outcomes, index)
        if outcomes.are_known:
            yield from self._answer(call, request, outcomes)
        else:
            outcomes.when_known = lambda: call.run(self._answer(call, request, outcomes))

    def _append(
        self,
        call: ApiCall[ProduceResponse],
        request: ProduceRequest,
        item: ProducePartition,
        refusal: KafkaError | None,
        outcomes: "_Outcomes",
        index: int,
    ) -> None:
        """Append what the request has for one partition, unless there is a refusal."""
        records, name = item.records, request.transactional_id
        tp = TopicPartition(item.topic, item.partition)
        partition = self.replicas.get(tp)
        if refusal is None and not isinstance(records, memoryview):
            refusal = InvalidRecordError("the request has no records for this partition")
        if refusal is None and partition is None:
            refusal = KafkaError(
                f"this broker has no replica of {tp}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        if refusal is not None:
            outcomes.settle(index, None, refusal)
            return
        assert partition is not None and isinstance(records, memoryview)
        lost_right = partial(self._lost_right, call, name, item.topic)
        on_outcome = partial(outcomes.settle, index, partition)
        if name is None:
            self.producer_appends.append(
                partition, records, call.connection,
                acks=request.acks, on_outcome=on_outcome, refusal=lost_right,
            )  # fmt: skip
        else:
            self.transactional_appends.append(
                partition, records, call.connection,
                name=name, version=call.version,
                acks=request.acks, on_outcome=on_outcome, refusal=lost_right,
            )  # fmt: skip

    def _lost_right(
        self, call: ApiCall[ProduceResponse], transactional_id: str | None, topic: str
    ) -> KafkaError | None:
        """The error if the producer may no longer write to the topic."""
        if self.may_still_write is None:
            return None
        code = self.may_still_write(call, transactional_id, topic)
        return None if code is ErrorCode.NONE else KafkaError(code.meaning, code).as_outcome()

    def _answer(
        self, call: ApiCall[ProduceResponse], request: ProduceRequest, outcomes: "_Outcomes"
    ) -> Steps:
        """Respond to a request whose appends are done, now or when they are acknowledged."""
        acks = request.acks
        responses: list[ProducePartitionResponse] = []
        waiting: list[AwaitedAppend] = []
        # For all partitions together, since the answer is encoded in one step.
        named_max = NAMED_MAX
        for index, item in enumerate(request.partitions):
            if index and index % STEP_PARTITIONS == 0:
                yield None
            partition, outcome = outcomes.at(index, item)
            if partition is None or isinstance(outcome, KafkaError):
                assert isinstance(outcome, KafkaError)
                responses.append(_failed(item, outcome, named_max))
                named_max -= len(responses[-1].record_errors)
                continue
            responses.append(
                ProducePartitionResponse(
                    item.topic,
                    item.partition,
                    0,
                    outcome.base_offset,
                    outcome.log_append_time_ms,
                    partition.log.log_start_offset,
                )
            )
            if acks == -1 or (acks == 1 and partition.config.flush_before_ack):
                waiting.append(
                    AwaitedAppend(
                        partition,
                        responses,
                        required_offset=outcome.last_offset + 1,
                        index=index,
                        by_all=acks == -1,
                    )
                )
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


class _Outcomes:
    """The outcomes of the appends of one request, which may come one by one.

    An append counts only while the leadership lasts under which it was made. Between it and the
    last append of its request there may be a wait; if another broker has led in the meantime, the
    records may be gone, and others may be at their offsets. Source: R-REP3.
    """

    __slots__ = ("_each", "_left", "when_known")

    def __init__(self, count: int) -> None:
        self._each: list[_Settled | None] = [None] * count
        self._left = count
        self.when_known: Callable[[], None] | None = None
        """Called with the last outcome, once it is set."""

    @property
    def are_known(self) -> bool:
        return not self._left

    def settle(self, index: int, partition: HostedPartition | None, outcome: AppendOutcome) -> None:
        """Set the outcome of one partition, in the turn of its append; None: it is not here."""
        assert self._each[index] is None, "an append has one outcome"
        leader = None if partition is None else partition.leader
        self._each[index] = partition, leader, outcome
        self._left -= 1
        if not self._left and self.when_known is not None:
            self.when_known()

    def at(
        self, index: int, item: ProducePartition
    ) -> tuple[HostedPartition | None, AppendOutcome]:
        """The partition and its outcome, if its leadership has not changed since the append."""
        settled = self._each[index]
        assert settled is not None
        partition, leader, outcome = settled
        if partition is None or isinstance(outcome, KafkaError):
            return None, outcome
        if partition.leader is leader:
            return partition, outcome
        return None, KafkaError(
            f"{item.topic}-{item.partition} was led elsewhere before all of the request was stored",
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )


_Settled = tuple[HostedPartition | None, LeaderPartition | None, AppendOutcome]
"""A partition, its leader at the time of the append, and the outcome."""


def _with_lasting_records(request: ProduceRequest) -> ProduceRequest:
    """The request, with copies of records in memory that is reused when this turn ends, if it takes
    more than one turn."""
    items = request.partitions
    if len(items) <= STEP_PARTITIONS or (
        sum([len(item.records or b"") for item in items]) >= SCRATCH_BYTES
    ):
        return request
    return request._replace(
        partitions=[
            item._replace(records=memoryview(bytearray(item.records)))
            if isinstance(item.records, memoryview)
            else item
            for item in items
        ]
    )


def _refusal(version: int, request: ProduceRequest) -> KafkaError | None:
    """The error that refuses the whole request; None if there is none."""
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
    """`named_max`: the most records of its batch that the response may name."""
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
    """The message of a refusal, cut to a length that the protocol can carry."""
    return str(failure)[:TOLD_MAX]


def _bad_records(failure: KafkaError, most: int) -> list[tuple[int, str | None]]:
    """(position in the batch, reason) of each refused record, as far as they are known."""
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
