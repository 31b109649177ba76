"""Lists transactional ids and describes their open transactions.

Every broker reports the ids that it coordinates. Source: KIP-664, KIP-994.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from storage_engine.client.admin.requests import ask_each_broker
from storage_engine.client.admin.topics import names_in
from storage_engine.client.asking import TRANSACTION, ask_coordinator, error_from
from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import TopicPartition
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
    """Since 1970; None while none is open."""
    partitions: tuple[TopicPartition, ...]
    """Partitions that the transaction has written to and that no marker has reached yet."""
    coordinator: int


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
