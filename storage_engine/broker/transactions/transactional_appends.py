"""Batches of transactions, on their way into the logs of partitions led here. Its one rule: a batch
is appended only in the transaction that it came in, while the guard of its partition is open for
that, and behind those that came before it.

Each partition of a request goes on as soon as it may, so that a later request never passes an
earlier one on the way to the same partition. What has to wait is copied, since the frame that it
came in does not last. With Produce 12 the partition is enlisted first: what comes late, after the
end of its transaction, is refused there by its epoch. Source: KIP-98, KIP-890.
"""

from collections.abc import Callable, Iterable
from functools import partial

from storage_engine.broker.replicas.append_outcomes import AppendOutcomes
from storage_engine.broker.replicas.prepared_appends import PreparedAppends
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.transactions.verifier import Verifier
from storage_engine.core.errors import CorruptRecordError, ErrorCode, InvalidRecordError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.sink_names import is_member
from storage_engine.core.transactions.verification_guard import Question, VerificationGuards
from storage_engine.log.appending.append_result import AppendOutcome
from storage_engine.protocol.apis.produce import (
    FIRST_THAT_ENLISTS,
    FIRST_WITH_ABORTABLE,
    ProduceRequest,
)
from storage_engine.protocol.records.record_batch import iter_headers

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

    def __init__(
        self, replicas: ReplicaManager, prepared: PreparedAppends, verifier: Verifier
    ) -> None:
        self._replicas = replicas
        self._prepared = prepared
        self._verifier = verifier

    def append(
        self,
        version: int,
        request: ProduceRequest,
        on_outcomes: Callable[[Iterable[AppendOutcome]], None],
    ) -> None:
        """Append what a request (of that version) with a transactional id has; the outcomes come in
        the order of its partitions."""
        assert request.transactional_id is not None
        partitions = [TopicPartition(item.topic, item.partition) for item in request.partitions]
        outcomes = AppendOutcomes(partitions, self._replicas, on_outcomes)
        for index, (tp, item) in enumerate(zip(partitions, request.partitions, strict=True)):
            on_outcome = partial(outcomes.settle, index)
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
        on_outcome: Callable[[AppendOutcome], None],
    ) -> None:
        def refuse(data: memoryview, failure: KafkaError) -> None:
            hosted = self._replicas.get(tp)
            if hosted is not None:
                hosted.note_refused(data, failure)
            on_outcome(failure.as_outcome())

        try:
            producer = _producer_of(records)
            if producer is None:
                # Outside a transaction all the same, or damaged: the log says what is wrong.
                self._prepared.append(tp, records, acks=request.acks, on_outcome=on_outcome)
                return
            partition = self._replicas.leader(tp)
            partition.check_writable_by_producers(request.acks)
        except KafkaError as failure:
            refuse(records, failure)
            return

        guards = partition.guards

        def write(data: memoryview, word: Question) -> None:
            def refusal() -> KafkaError | None:
                if self._counts(tp, guards, word):
                    return None
                return _refused(tp, ErrorCode.CONCURRENT_TRANSACTIONS, version)

            # It may have to be prepared, and a marker may come in the meantime.
            self._prepared.append(
                tp,
                data,
                acks=request.acks,
                on_outcome=on_outcome,
                in_transaction=True,
                refusal=refusal,
            )

        word = guards.word(*producer)
        if word is not None:
            write(records, word)
            return
        kept = memoryview(bytearray(records))

        def on_verified(code: ErrorCode) -> None:
            word = guards.word(*producer)
            if code is not ErrorCode.NONE:
                refuse(kept, _refused(tp, code, version))
            elif word is not None and self._counts(tp, guards, word):
                write(kept, word)
            else:
                refuse(kept, _refused(tp, ErrorCode.CONCURRENT_TRANSACTIONS, version))

        name = request.transactional_id
        assert name is not None
        # Members of a sink join and enlist by themselves.
        enlists = version >= FIRST_THAT_ENLISTS and not is_member(name)
        self._verifier.verify(
            partition, name, *producer, on_verified, enlists=enlists, size=len(kept)
        )

    def _counts(self, tp: TopicPartition, guards: VerificationGuards, word: Question) -> bool:
        """Whether nothing has happened to the transaction since that word of its coordinator, under
        the same leader epoch."""
        partition = self._replicas.get(tp)
        return partition is not None and partition.guards is guards and guards.holds(word)


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
