"""Answers AddPartitionsToTxn on the coordinator's broker: producers and members enlist partitions;
leaders ask whether a partition is enlisted, or enlist it for a producer. Every named partition gets
an answer, and all or none are enlisted.

Members of a sink are recognised by their transactional id (`core.transactions.sink_names`), and so
are questions about a producer whose transactional id is not known. Source: KIP-98, KIP-890,
R-SPARK2.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial

from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.core.coordinator_log import Answer
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.transactions.transaction_events import (
    AddPartitions,
    EnlistPartitions,
    FindTransaction,
    VerifyMember,
    VerifyPartitions,
)
from storage_engine.core.transactions.transaction_state import is_member
from storage_engine.core.transactions.verification_guard import is_search
from storage_engine.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest

Outcomes = dict[TopicPartition, ErrorCode]

OnOutcomes = Callable[[Outcomes], None]


def enlist(
    coordinators: TransactionCoordinators,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TopicPartition],
    clock: Clock,
    on_outcomes: OnOutcomes,
    *,
    by_leader: bool = False,
    refusal: Callable[[], ErrorCode] = lambda: ErrorCode.NONE,
) -> None:
    """Enlist partitions, which exist; `by_leader`: for a client that does not do it itself.
    `refusal` is asked when it is done, which may be after a wait."""

    def event_of(request: int) -> AddPartitions | EnlistPartitions | ErrorCode:
        refused = refusal()
        if refused is not ErrorCode.NONE:
            return refused
        if is_member(transactional_id):
            return EnlistPartitions(
                request=request,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                partitions=frozenset(partitions),
                now_ms=clock.monotonic_ms(),
            )
        return AddPartitions(
            request=request,
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=frozenset(partitions),
            now_ms=clock.wall_ms(),
            by_leader=by_leader,
        )

    def on_answer(answer: Answer) -> None:
        on_outcomes(dict.fromkeys(partitions, answer.error))

    coordinators.request(transactional_id, event_of, on_answer)


def answer_leaders(
    coordinators: TransactionCoordinators,
    transactions: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction],
    clock: Clock,
    on_outcomes: Callable[[list[Outcomes]], None],
    *,
    refused: Callable[[list[TopicPartition]], Outcomes] = lambda _: {},
    refusal: Callable[[], ErrorCode] = lambda: ErrorCode.NONE,
) -> Generator[None, None, None]:
    """Enlist or verify the partitions of transactions as in a request of version 4; the outcomes
    come in their order. `refused`: those among partitions that can't be enlisted; `refusal`: as in
    `enlist`."""
    outcomes: list[Outcomes] = [{} for _ in transactions]
    verified = [i for i, each in enumerate(transactions) if each.verify_only]
    enlisted = [i for i, each in enumerate(transactions) if not each.verify_only]
    left = len(enlisted) + 1

    def note(indexes: Sequence[int], some: Sequence[Outcomes]) -> None:
        nonlocal left
        for index, outcome in zip(indexes, some, strict=True):
            outcomes[index] = outcome
        left -= 1
        if not left:
            on_outcomes(outcomes)

    for index in enlisted:
        yield None
        transaction = transactions[index]
        partitions = [
            TopicPartition(topic.name, number)
            for topic in transaction.topics
            for number in topic.partitions
        ]
        codes = refused(partitions)
        if codes:
            note([index], [not_attempted(partitions, codes)])
            continue
        enlist(
            coordinators,
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions,
            clock,
            lambda outcome, index=index: note([index], [outcome]),  # type: ignore[misc]
            by_leader=True,
            refusal=refusal,
        )
    yield from _verify_all(
        coordinators, [transactions[i] for i in verified], lambda some: note(verified, some)
    )


def not_attempted(partitions: Sequence[TopicPartition], refused: Outcomes) -> Outcomes:
    """The outcomes of all partitions when some are refused: no partition is enlisted."""
    return {tp: refused.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in partitions}


def _verify_all(
    coordinators: TransactionCoordinators,
    transactions: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction],
    on_outcomes: Callable[[list[Outcomes]], None],
) -> Generator[None, None, None]:
    """Verify each partition by itself; the outcomes come in the order of the transactions."""
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
        yield None
        _verify(coordinators, transaction, tp, partial(settle, index, tp))


def _verify(
    coordinators: TransactionCoordinators,
    transaction: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction,
    tp: TopicPartition,
    on_answer: Callable[[Answer], None],
) -> None:
    def event_of(request: int) -> VerifyPartitions | VerifyMember | FindTransaction:
        if is_search(transaction.transactional_id):
            return FindTransaction(
                request=request,
                producer_id=transaction.producer_id,
                partitions=frozenset([tp]),
            )
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
