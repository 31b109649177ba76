"""Lists transactional ids, describes their open transactions, and the producers that partitions'
leaders remember, to find a transaction that hangs.

Every broker reports the ids that it coordinates. Source: KIP-664, KIP-994.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from storage_engine.client.admin.requests import ask_each_broker, ask_leaders
from storage_engine.client.admin.topics import names_in
from storage_engine.client.asking import TRANSACTION, ask_coordinator, error_from
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition, numbers_by_topic
from storage_engine.protocol.messages.describe_producers import API as DESCRIBE_PRODUCERS
from storage_engine.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from storage_engine.protocol.messages.describe_transactions import API as DESCRIBE_TRANSACTIONS
from storage_engine.protocol.messages.describe_transactions import DescribeTransactionsRequest
from storage_engine.protocol.messages.list_transactions import API as LIST_TRANSACTIONS
from storage_engine.protocol.messages.list_transactions import ListTransactionsRequest

_ANY_DURATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    transactional_id: str
    state: str
    """Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort."""
    producer_id: int
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    """Milliseconds since 1970; None while no transaction is open."""
    partitions: tuple[TopicPartition, ...]
    """Partitions that the transaction has written to and that no marker has reached yet."""
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    producer_id: int
    epoch: int
    last_sequence: int | None
    """None when the leader remembers only ends of transactions of this producer epoch."""
    last_timestamp_ms: int | None
    """The timestamp of the producer's last batch."""
    coordinator_epoch: int | None
    """The epoch of the coordinator that wrote the producer's last marker."""
    transaction_start_offset: int | None
    """The first offset of the transaction that is open in this partition."""


def list_transactions(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    open_for_ms: int | None = None,
) -> list[ListedTransaction]:
    """Transactional ids, by name; only those in one of `states`, of one of `producer_ids`, with a
    transaction that is open for so long, where that is given. KafkaError when a broker does not
    list its own in time."""
    message = ListTransactionsRequest(
        state_filters=names_in(states),
        producer_id_filters=[*producer_ids],
        duration_filter=_ANY_DURATION if open_for_ms is None else open_for_ms,
    )
    listed = [
        ListedTransaction(
            transactional_id=each.transactional_id,
            state=each.transaction_state,
            producer_id=each.producer_id,
            coordinator=broker_id,
        )
        for broker_id, answer in ask_each_broker(
            cluster, "transactions", LIST_TRANSACTIONS, message
        )
        for each in answer.transaction_states
    ]
    return sorted(listed, key=lambda each: each.transactional_id)


def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """The open partitions of a transaction, and when it began. KafkaError
    TRANSACTIONAL_ID_NOT_FOUND where there is none."""
    what = f"transactional id '{transactional_id}'"
    coordinator, answer = ask_coordinator(
        cluster,
        TRANSACTION,
        transactional_id,
        DESCRIBE_TRANSACTIONS,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        lambda answer: error_from(answer.transaction_states[0].error_code, what=what),
    )
    (state,) = answer.transaction_states
    started_ms = state.transaction_start_time_ms
    return TransactionDescription(
        transactional_id=transactional_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        started_ms=started_ms if started_ms >= 0 else None,
        partitions=tuple(
            TopicPartition(topic.topic, number)
            for topic in state.topics
            for number in topic.partitions
        ),
        coordinator=coordinator,
    )


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    """The idempotent producers that the partitions' leaders remember, by producer id: where a
    transaction hangs, its first offset is among them. KafkaError UNKNOWN_TOPIC_OR_PARTITION where
    there is no such partition."""

    def ask(
        broker_id: int, asked: list[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, list[ActiveProducer] | KafkaError]]:
        request = DescribeProducersRequest.TopicRequest
        message = DescribeProducersRequest(
            topics=[
                request(name=name, partition_indexes=numbers)
                for name, numbers in numbers_by_topic(asked).items()
            ]
        )
        for topic in cluster.request(broker_id, DESCRIBE_PRODUCERS, message).topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                text = row.error_message or ErrorCode.of(row.error_code).name
                rows = sorted(row.active_producers, key=lambda each: each.producer_id)
                error = error_from(row.error_code, text, what=f"producers of {tp}")
                yield tp, error or [_producer(each) for each in rows]

    return ask_leaders(cluster, "DescribeProducers", partitions, ask)


def _producer(
    row: DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState,
) -> ActiveProducer:
    return ActiveProducer(
        producer_id=row.producer_id,
        epoch=row.producer_epoch,
        last_sequence=_known(row.last_sequence),
        last_timestamp_ms=_known(row.last_timestamp),
        coordinator_epoch=_known(row.coordinator_epoch),
        transaction_start_offset=_known(row.current_txn_start_offset),
    )


def _known(number: int) -> int | None:
    return number if number >= 0 else None
