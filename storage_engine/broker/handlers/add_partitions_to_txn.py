"""AddPartitionsToTxn: producers (versions 0-3) and leaders that verify (4 and 5).

Rule: partitions that don't exist are told so, and the others of the transaction are not attempted
then. Source: KIP-98, KIP-890.
"""

from collections.abc import Callable, Iterable
from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.broker.handlers.fenced_producers import code_for
from storage_engine.broker.transactions.partition_requests import Outcomes, enlist, verify_all
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.internal_topics import INTERNAL_TOPICS
from storage_engine.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnResponse

FIRST_VERSION_BETWEEN_BROKERS = 4
FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_ABORTABLE = 5

_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


def handle(context: BrokerContext, call: Call, request: Any) -> None:
    if call.version >= FIRST_VERSION_BETWEEN_BROKERS:
        _handle_many(context, call, request)
        return

    def on_outcomes(outcomes: Outcomes) -> None:
        call.respond(
            AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=_rows(
                    AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult, outcomes, call.version
                )
            )
        )

    _enlist(
        context,
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        request.v3_and_below_topics,
        on_outcomes,
    )


def _handle_many(context: BrokerContext, call: Call, request: Any) -> None:
    transactions = request.transactions
    outcomes: list[Outcomes] = [{} for _ in transactions]
    verified = [i for i, each in enumerate(transactions) if each.verify_only]
    enlisted = [i for i, each in enumerate(transactions) if not each.verify_only]
    left = len(enlisted) + 1

    def note(indexes: Iterable[int], some: Iterable[Outcomes]) -> None:
        nonlocal left
        for index, outcome in zip(indexes, some, strict=True):
            outcomes[index] = outcome
        left -= 1
        if not left:
            call.respond(
                AddPartitionsToTxnResponse(
                    results_by_transaction=[
                        _Result(
                            transactional_id=transaction.transactional_id,
                            topic_results=_rows(
                                _Result.AddPartitionsToTxnTopicResult, each, call.version
                            ),
                        )
                        for transaction, each in zip(transactions, outcomes, strict=True)
                    ]
                )
            )

    for index in enlisted:
        transaction = transactions[index]
        _enlist(
            context,
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.topics,
            lambda outcome, index=index: note([index], [outcome]),  # type: ignore[misc]
        )
    verify_all(
        context.coordinators,
        [transactions[i] for i in verified],
        lambda some: note(verified, some),
    )


def _enlist(
    context: BrokerContext,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    topics: Any,
    on_outcomes: Callable[[Outcomes], None],
) -> None:
    partitions = [
        TopicPartition(topic.name, number) for topic in topics for number in topic.partitions
    ]
    refused = _refused(context, partitions)
    if refused:
        on_outcomes({tp: refused.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in partitions})
        return
    enlist(
        context.coordinators,
        transactional_id,
        producer_id,
        producer_epoch,
        partitions,
        context.clock.wall_ms(),
        on_outcomes,
    )


def _refused(context: BrokerContext, partitions: list[TopicPartition]) -> Outcomes:
    """Those that no transaction can write to."""
    refused = {}
    for tp in partitions:
        if tp.topic in INTERNAL_TOPICS:
            refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif tp.partition not in (context.metadata.partitions(tp.topic) or {}):
            refused[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _rows(topic_class: Any, outcomes: Outcomes, version: int) -> list[Any]:
    by_topic: dict[str, list[Any]] = {}
    for tp, code in outcomes.items():
        if version >= FIRST_VERSION_WITH_ABORTABLE and code is ErrorCode.INVALID_TXN_STATE:
            code = ErrorCode.TRANSACTION_ABORTABLE
        told = code_for(code, version, FIRST_VERSION_WITH_PRODUCER_FENCED)
        row = topic_class.AddPartitionsToTxnPartitionResult(
            partition_index=tp.partition, partition_error_code=told
        )
        by_topic.setdefault(tp.topic, []).append(row)
    return [topic_class(name=topic, results_by_partition=rows) for topic, rows in by_topic.items()]
