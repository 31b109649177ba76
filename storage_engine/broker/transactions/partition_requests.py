"""AddPartitionsToTxn, as the coordinator's broker answers it: producers and members enlist
partitions, leaders ask whether they are. Its one rule: every partition that is named is answered,
and all or none are enlisted.

The transactional id of a sink's members tells them from producers (`core.sink_names`). Source:
KIP-98, KIP-890, R-SPARK2.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from storage_engine.broker.coordination.coordinators import Coordinators
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.sink_names import is_member
from storage_engine.core.transaction_events import (
    AddPartitions,
    Answer,
    EnlistPartitions,
    VerifyMember,
    VerifyPartitions,
)

Outcomes = dict[TopicPartition, ErrorCode]

OnOutcomes = Callable[[Outcomes], None]


def enlist(
    coordinators: Coordinators,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TopicPartition],
    now_ms: int,
    on_outcomes: OnOutcomes,
) -> None:
    """Enlist partitions, which exist."""

    def event_of(request: int) -> AddPartitions | EnlistPartitions:
        if is_member(transactional_id):
            return EnlistPartitions(
                request=request,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                partitions=frozenset(partitions),
                now_ms=now_ms,
            )
        return AddPartitions(
            request=request,
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=frozenset(partitions),
            now_ms=now_ms,
        )

    def on_answer(answer: Answer) -> None:
        on_outcomes(dict.fromkeys(partitions, answer.error))

    coordinators.request(transactional_id, event_of, on_answer)


def verify_all(
    coordinators: Coordinators,
    transactions: Sequence[Any],
    on_outcomes: Callable[[list[Outcomes]], None],
) -> None:
    """Verify each partition of transactions as in a request of version 4; the outcomes come in
    their order."""
    outcomes: list[Outcomes] = [{} for _ in transactions]
    questions = [
        (index, transaction, TopicPartition(topic.name, number))
        for index, transaction in enumerate(transactions)
        for topic in transaction.topics
        for number in topic.partitions
    ]
    left = len(questions)

    def settle(index: int, tp: TopicPartition, answer: Answer) -> None:
        nonlocal left
        outcomes[index][tp] = answer.error
        left -= 1
        if not left:
            on_outcomes(outcomes)

    if not questions:
        on_outcomes(outcomes)
    for index, transaction, tp in questions:
        _verify(coordinators, transaction, tp, partial(settle, index, tp))


def _verify(
    coordinators: Coordinators,
    transaction: Any,
    tp: TopicPartition,
    on_answer: Callable[[Answer], None],
) -> None:
    def event_of(request: int) -> VerifyPartitions | VerifyMember:
        if is_member(transaction.transactional_id):
            return VerifyMember(
                request=request,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                partitions=frozenset([tp]),
            )
        return VerifyPartitions(
            request=request,
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            partitions=frozenset([tp]),
        )

    coordinators.request(transaction.transactional_id, event_of, on_answer)
