"""Appends transactional batches to the partitions that this broker leads. A batch is appended only
in its own transaction, while the guard of its partition allows that, and after the batches that
came before it.

Each partition of a request proceeds as soon as it may, so that a later request never overtakes an
earlier one to the same partition. A batch that has to wait is copied, since the memory of its frame
is reused. With Produce 12 the partition is enlisted first, and the coordinator refuses a batch that
comes after the end of its transaction by its epoch. Source: KIP-98, KIP-890.
"""

from collections.abc import Callable
from functools import partial

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.producer_appends import ProducerAppends
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.shared_threads import share_of
from storage_engine.broker.transactions.verifier import Verifier
from storage_engine.core.errors import CorruptRecordError, ErrorCode, InvalidRecordError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import is_member
from storage_engine.core.transactions.verification_guard import TransactionVerification
from storage_engine.log.append_rules import AppendOutcome
from storage_engine.net.connection import Connection
from storage_engine.protocol.apis.produce import (
    FIRST_THAT_ENLISTS,
    FIRST_WITH_ABORTABLE,
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
"""Errors that no client expects in answer to a produce: they are replaced by NOT_ENOUGH_REPLICAS,
which every client retries. A coordinator that does not know a new topic yet refuses the whole
request."""


class TransactionalAppends:
    """Appends the batches of requests with a transactional id to the logs of one broker."""

    def __init__(
        self, replicas: ReplicaManager, appends: ProducerAppends, verifier: Verifier
    ) -> None:
        self._replicas = replicas
        self._appends = appends
        self._verifier = verifier

    def append(
        self,
        partition: HostedPartition,
        records: memoryview,
        connection: Connection,
        *,
        name: str,
        version: int,
        acks: int,
        on_outcome: Callable[[AppendOutcome], None],
        refusal: Callable[[], KafkaError | None] = lambda: None,
    ) -> None:
        """Append what a request (of that version) with a transactional id has for one partition.
        `refusal` returns why the producer may no longer write to the topic; called after a wait."""
        try:
            producer = _producer_of(records)
            if producer is None:
                # Not transactional all the same, or damaged: the log's append reports the error.
                self._appends.append(
                    partition,
                    records,
                    connection,
                    acks=acks,
                    on_outcome=on_outcome,
                    refusal=refusal,
                )
                return
            partition.check_writable_by_producers(acks)
        except KafkaError as failure:
            partition.note_refused(records, failure)
            on_outcome(failure.as_outcome())
            return
        append = _TransactionalAppend(
            self._replicas,
            self._appends,
            partition,
            producer,
            connection,
            version=version,
            acks=acks,
            on_outcome=on_outcome,
            lost=refusal,
        )
        verification = partition.guards.verification(*producer)
        if verification is not None:
            append.write(partition, records, verification)
            return
        # The coordinator says whether the transaction is open.
        kept = memoryview(bytearray(records))
        self._verifier.verify(
            partition,
            name,
            *producer,
            partial(append.on_verified, kept),
            # Members of a sink join and enlist by themselves.
            enlists=version >= FIRST_THAT_ENLISTS and not is_member(name),
            share=share_of(connection),
            size=len(kept),
        )


class _TransactionalAppend:
    """The records of one request for one partition."""

    __slots__ = (
        "_acks",
        "_appends",
        "_connection",
        "_guards",
        "_lost",
        "_on_outcome",
        "_producer",
        "_replicas",
        "_tp",
        "_version",
    )

    def __init__(
        self,
        replicas: ReplicaManager,
        appends: ProducerAppends,
        partition: HostedPartition,
        producer: tuple[int, int],
        connection: Connection,
        *,
        version: int,
        acks: int,
        on_outcome: Callable[[AppendOutcome], None],
        lost: Callable[[], KafkaError | None],
    ) -> None:
        """`lost` returns why the producer may no longer write to the topic."""
        self._replicas = replicas
        self._appends = appends
        self._tp = partition.topic_partition
        self._guards = partition.guards
        self._producer = producer
        self._connection = connection
        self._version = version
        self._acks = acks
        self._on_outcome = on_outcome
        self._lost = lost

    def on_verified(self, records: memoryview, code: ErrorCode) -> None:
        """Append if the transaction is open, with this partition; otherwise answer with the
        code."""
        lost = self._lost()
        if lost is not None:
            self._on_outcome(lost)
            return
        partition = self._replicas.get(self._tp)
        if code is ErrorCode.NONE:
            verification = self._guards.verification(*self._producer)
            if verification is not None and self._is_valid(partition, verification):
                assert partition is not None
                self.write(partition, records, verification)
                return
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        failure = _refusal(self._tp, code, self._version)
        if partition is not None:
            partition.note_refused(records, failure)
        self._on_outcome(failure.as_outcome())

    def write(
        self,
        partition: HostedPartition,
        records: memoryview,
        verification: TransactionVerification,
    ) -> None:
        """Append; the batches may have to be prepared, and a marker may come in the meantime."""

        def refusal() -> KafkaError | None:
            if self._is_valid(self._replicas.get(self._tp), verification):
                return self._lost()
            return _refusal(self._tp, ErrorCode.CONCURRENT_TRANSACTIONS, self._version)

        self._appends.append(
            partition,
            records,
            self._connection,
            acks=self._acks,
            on_outcome=self._on_outcome,
            in_transaction=True,
            refusal=refusal,
        )

    def _is_valid(
        self, partition: HostedPartition | None, verification: TransactionVerification
    ) -> bool:
        """Whether nothing has happened to the transaction since its verification, under the same
        leader epoch."""
        return (
            partition is not None
            and partition.guards is self._guards
            and self._guards.is_valid(verification)
        )


def _producer_of(records: memoryview) -> tuple[int, int] | None:
    """Id and epoch of the producer of the transactional batches; None when none is transactional.
    Raises InvalidRecordError when there are several producers."""
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


def _refusal(tp: TopicPartition, code: ErrorCode, version: int) -> KafkaError:
    answered = code
    if code in ASK_AGAIN:
        answered = ErrorCode.NOT_ENOUGH_REPLICAS
    elif code is ErrorCode.PRODUCER_FENCED:
        answered = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.INVALID_TXN_STATE and version >= FIRST_WITH_ABORTABLE:
        answered = ErrorCode.TRANSACTION_ABORTABLE
    return KafkaError(
        f"{tp} could not be verified as part of the producer's transaction: {code.meaning}",
        answered,
    )
