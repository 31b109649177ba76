"""Batches of transactions, on their way into the logs of partitions led here. Its one rule: a batch
is appended only while the guard of its partition is open for its producer, and behind those that
came before it.

Each partition of a request goes on as soon as it may, so that a later request never passes an
earlier one on the way to the same partition. What has to wait is copied, since the frame that it
came in does not last. With Produce 12 the partition is enlisted first: what comes late, after the
end of its transaction, is refused there by its epoch. Source: KIP-98, KIP-890.
"""

from collections.abc import Callable

from storage_engine.broker.replica_manager import ReplicaManager
from storage_engine.broker.transactions.verifier import Verifier
from storage_engine.core.errors import CorruptRecordError, ErrorCode, InvalidRecordError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.partition import LeaderPartition
from storage_engine.core.sink_names import is_member
from storage_engine.log.append_result import AppendResult
from storage_engine.protocol.apis.produce import (
    FIRST_THAT_ENLISTS,
    FIRST_WITH_ABORTABLE,
    ProduceRequest,
)
from storage_engine.protocol.record_batch import iter_headers

Outcome = AppendResult | KafkaError

ASK_AGAIN = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
"""No client takes these for an answer to a produce: they become NOT_ENOUGH_REPLICAS, after which
every client sends again. A coordinator that has not heard of a new topic refuses all that it is
asked together with it."""


class TransactionalAppends:
    """Of one broker."""

    def __init__(self, replicas: ReplicaManager, verifier: Verifier) -> None:
        self._replicas = replicas
        self._verifier = verifier

    def append(
        self, version: int, request: ProduceRequest, on_outcomes: Callable[[list[Outcome]], None]
    ) -> None:
        """Append what a request (of that version) with a transactional id has; the outcomes come in
        the order of its partitions."""
        outcomes: list[Outcome | None] = [None] * len(request.partitions)
        leaders: list[LeaderPartition | None] = [None] * len(request.partitions)
        left = len(outcomes)

        def settle(index: int, outcome: Outcome) -> None:
            nonlocal left
            outcomes[index] = outcome
            leaders[index] = self._leader_of(request, index)
            left -= 1
            if not left:
                on_outcomes(
                    [
                        self._still(request, index, outcomes[index], leaders[index])
                        for index in range(len(outcomes))
                    ]
                )

        if not left:
            on_outcomes([])
        assert request.transactional_id is not None
        for index, item in enumerate(request.partitions):
            tp = TopicPartition(item.topic, item.partition)

            def on_outcome(outcome: Outcome, index: int = index) -> None:
                settle(index, outcome)

            if isinstance(item.records, memoryview):
                self._append(version, tp, item.records, request, on_outcome)
            else:
                on_outcome(InvalidRecordError("the request has no records for this partition"))

    def _append(
        self,
        version: int,
        tp: TopicPartition,
        records: memoryview,
        request: ProduceRequest,
        on_outcome: Callable[[Outcome], None],
    ) -> None:
        appends = self._replicas.appends

        def refuse(data: memoryview, failure: KafkaError) -> None:
            appends.note_refused(tp, data, failure)
            on_outcome(failure)

        try:
            producer = _producer_of(records)
            if producer is None:
                # Outside a transaction all the same, or damaged: the log says what is wrong.
                on_outcome(appends.append_run(tp, [records], acks=request.acks)[0])
                return
            partition = appends.writable_by_producers(tp, request.acks)
        except KafkaError as failure:
            refuse(records, failure)
            return

        def write(data: memoryview) -> None:
            (outcome,) = appends.append_run(tp, [data], acks=request.acks, in_transaction=True)
            on_outcome(outcome)

        if partition.guards.is_open(*producer):
            write(records)
            return
        kept = memoryview(bytearray(records))

        def on_verified(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                refuse(kept, _refused(tp, code, version))
            elif self._may_write(tp, producer):
                write(kept)
            else:
                refuse(kept, _refused(tp, ErrorCode.CONCURRENT_TRANSACTIONS, version))

        name = request.transactional_id
        assert name is not None
        # Members of a sink join and enlist by themselves.
        enlists = version >= FIRST_THAT_ENLISTS and not is_member(name)
        self._verifier.verify(partition, name, *producer, on_verified, enlists=enlists)

    def _leader_of(self, request: ProduceRequest, index: int) -> LeaderPartition | None:
        item = request.partitions[index]
        partition = self._replicas.get(TopicPartition(item.topic, item.partition))
        return None if partition is None else partition.leader

    def _still(
        self,
        request: ProduceRequest,
        index: int,
        outcome: Outcome | None,
        leader: LeaderPartition | None,
    ) -> Outcome:
        """The outcome, unless another broker has led since the append, while other partitions of
        the request waited: what was appended may be gone, and something else be at its offsets."""
        assert outcome is not None, "all are settled"
        if isinstance(outcome, KafkaError) or self._leader_of(request, index) is leader:
            return outcome
        item = request.partitions[index]
        return KafkaError(
            f"{item.topic}-{item.partition} was led elsewhere before all of the request was stored",
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )

    def _may_write(self, tp: TopicPartition, producer: tuple[int, int]) -> bool:
        """Whether its guard is open, now, under the present leader epoch."""
        partition = self._replicas.get(tp)
        return partition is not None and partition.guards.is_open(*producer)


def _producer_of(records: memoryview) -> tuple[int, int] | None:
    """Id and epoch of the producer whose transactional batches these are; None when none is
    transactional. Raises InvalidRecordError when there are several."""
    try:
        producers = {
            (header.producer_id, header.producer_epoch)
            for _, header in iter_headers(records)
            if header.is_transactional
        }
    except CorruptRecordError:
        return None
    if len(producers) > 1:
        raise InvalidRecordError("a request has batches of several producers for one partition")
    return next(iter(producers), None)


def _refused(tp: TopicPartition, code: ErrorCode, version: int) -> KafkaError:
    told = code
    if code in ASK_AGAIN:
        told = ErrorCode.NOT_ENOUGH_REPLICAS
    elif code is ErrorCode.PRODUCER_FENCED:
        told = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.INVALID_TXN_STATE and version >= FIRST_WITH_ABORTABLE:
        told = ErrorCode.TRANSACTION_ABORTABLE
    return KafkaError(
        f"{tp} could not be verified as part of the producer's transaction: {code.meaning}", told
    )
