"""Appends to partitions led here: of producers, of ends of transactions, of a coordinator's state.

Rule: nothing is appended unless this broker leads the partition, surely (R-REP11), and with
acks=all with enough replicas in sync; what a coordinator keeps is written by nobody else. Source:
R-REP3, R-REP6, KIP-98.
"""

from collections.abc import Callable
from typing import Protocol

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import ErrorCode, KafkaError, LogBusyError, LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.internal_topics import GROUP_OFFSETS_TOPIC
from storage_engine.core.ports import Clock
from storage_engine.core.transactions.partition_transactions import TransactionMarker
from storage_engine.log.appending.append_result import AppendResult
from storage_engine.protocol.records.batch_columns import BatchColumns
from storage_engine.protocol.records.record_batch import patch_producer


class Leaders(Protocol):
    """The replica manager, as appends need it."""

    def get(self, tp: TopicPartition) -> HostedPartition | None: ...

    def leader(self, tp: TopicPartition, leader_epoch: int = -1) -> HostedPartition: ...

    def check_lease(self) -> None: ...

    def fail(self, partition: HostedPartition, failure: Exception) -> None: ...


class Appends:
    """The ways into the logs of one broker."""

    def __init__(
        self,
        leaders: Leaders,
        clock: Clock,
        *,
        on_appended: Callable[[HostedPartition, int], None],
    ) -> None:
        """`on_appended` hears of a partition that got so many appends."""
        self._leaders = leaders
        self._clock = clock
        self._on_appended = on_appended

    def append(
        self,
        tp: TopicPartition,
        records: memoryview,
        *,
        acks: int,
        in_transaction: bool = False,
        keys_checked: bool = False,
    ) -> AppendResult | KafkaError:
        """Append a producer's batches to a partition led here, or say why they are not stored.

        `in_transaction`: the coordinator knows that the producer writes to this partition in a
        transaction. `keys_checked`: every record is known to have a key.
        """
        try:
            partition = self.writable_by_producers(tp, acks)
            return self._append(partition, records, in_transaction, keys_checked)
        except KafkaError as failure:
            self.note_refused(tp, records, failure)
            return failure.as_outcome()

    def note_refused(self, tp: TopicPartition, records: memoryview, failure: KafkaError) -> None:
        """A producer sends again what was refused like that: what it has sent behind it waits."""
        partition = self._leaders.get(tp)
        if partition is not None and failure.retriable:
            partition.log.note_refused(records)

    def append_columns(
        self, tp: TopicPartition, columns: BatchColumns, *, acks: int
    ) -> list[int] | KafkaError | None:
        """As `append` of each of these batches: their base offsets and the offset that follows, or
        why they could not be stored. None, and nothing is done, when they must be looked at one by
        one.
        """
        try:
            partition = self.writable_by_producers(tp, acks)
        except KafkaError:
            return None
        try:
            offsets = partition.log.append_columns_as_leader(
                columns, leader_epoch=partition.leader_epoch, now_ms=self._clock.wall_ms()
            )
        except LogStorageError as failure:
            if not isinstance(failure, LogBusyError):
                self._leaders.fail(partition, failure)
            return failure.as_outcome()
        except KafkaError:
            return None
        if offsets is not None:
            self._on_appended(partition, len(columns))
        return offsets

    def append_marker(
        self,
        tp: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        marker: TransactionMarker,
    ) -> AppendResult:
        """End a transaction in a partition led here, as its coordinator says; with acks=all, as
        nothing less can't be lost. Raises KafkaError.
        """
        partition = self.writable(tp, -1)
        if tp.topic != GROUP_OFFSETS_TOPIC:
            _check_producers_may(partition)
        # Also of one that is refused: to ask the coordinator once more does no harm.
        partition.guards.note_marker(producer_id)
        try:
            result = partition.log.append_marker(
                producer_id,
                producer_epoch,
                marker,
                leader_epoch=partition.leader_epoch,
                now_ms=self._clock.wall_ms(),
            )
        except LogBusyError:
            raise
        except LogStorageError as failure:
            self._leaders.fail(partition, failure)
            raise
        self._on_appended(partition, 1)
        return result

    def append_state(
        self,
        tp: TopicPartition,
        leader_epoch: int,
        records: memoryview,
        *,
        producer: tuple[int, int] | None = None,
    ) -> AppendResult:
        """Append what a coordinator keeps to a partition led here under that leader epoch, with
        acks=all. Raises KafkaError.

        `producer`: id and epoch, when it is part of a transaction; its sequence goes on from batch
        to batch, so that the log takes it as it takes a producer's own.
        """
        partition = self.writable(tp, -1, leader_epoch)
        if producer is not None:
            producer_id, epoch = producer
            patch_producer(
                records,
                0,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=partition.log.producer_state.next_sequence(producer_id, epoch),
                transactional=True,
            )
        try:
            return self._append(partition, records, producer is not None)
        except KafkaError as failure:
            self.note_refused(tp, records, failure)
            raise

    def writable(self, tp: TopicPartition, acks: int, leader_epoch: int = -1) -> HostedPartition:
        """The partition, if it can be appended to now. Raises KafkaError."""
        partition = self._leaders.get(tp)
        if partition is None or partition.leader is None or leader_epoch != -1:
            partition = self._leaders.leader(tp, leader_epoch)
        self._leaders.check_lease()
        if acks == -1 and partition.in_sync_count < partition.min_in_sync_count:
            raise KafkaError(
                f"{tp} has {partition.in_sync_count} in-sync replicas, min.insync.replicas is "
                f"{partition.min_in_sync_count}",
                ErrorCode.NOT_ENOUGH_REPLICAS,
            )
        return partition

    def writable_by_producers(self, tp: TopicPartition, acks: int) -> HostedPartition:
        """As `writable`, for what is not written by its coordinator alone. Raises KafkaError."""
        partition = self.writable(tp, acks)
        _check_producers_may(partition)
        return partition

    def _append(
        self,
        partition: HostedPartition,
        records: memoryview,
        in_transaction: bool,
        keys_checked: bool = False,
    ) -> AppendResult:
        """Raises KafkaError."""
        try:
            result = partition.log.append_as_leader(
                records,
                leader_epoch=partition.leader_epoch,
                now_ms=self._clock.wall_ms(),
                allow_transactional=in_transaction,
                keys_checked=keys_checked,
            )
        except LogBusyError:
            raise
        except LogStorageError as failure:
            self._leaders.fail(partition, failure)
            raise
        self._on_appended(partition, 1)
        return result


def _check_producers_may(partition: HostedPartition) -> None:
    if partition.is_internal:
        raise KafkaError(
            f"{partition.topic_partition} is written by its coordinator alone",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
