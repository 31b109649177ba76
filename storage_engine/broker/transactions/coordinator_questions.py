"""Both ends of AddPartitionsToTxn. A leader asks the coordinator whether a partition is part of a
producer's transaction, or enlists the partition for the producer (`CoordinatorQuestions`). The
coordinator's broker answers leaders (`answer_leaders`), and producers and members of a sink that
enlist partitions themselves (`enlist`).

Every named partition gets an answer, and all or none are enlisted. A transactional id shows whether
it is that of a producer, of a member of a sink (`core.transactions.sink_names`), or stands for a
search for a producer whose transactional id is not known. Source: KIP-98, KIP-890, R-SPARK2.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import islice

from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.unexpected import FAILED, guarded
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.coordinator_log import Answer
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock, Endpoint, Scheduler, TransportError
from storage_engine.core.transactions.transaction_events import (
    AddPartitions,
    EnlistPartitions,
    FindTransaction,
    VerifyMember,
    VerifyPartitions,
)
from storage_engine.core.transactions.transaction_state import is_member
from storage_engine.core.transactions.verification_guard import is_search
from storage_engine.protocol.messages.add_partitions_to_txn import (
    API,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from storage_engine.protocol.transport import Transport

Outcomes = dict[TopicPartition, ErrorCode]


def enlist(
    coordinators: TransactionCoordinators,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TopicPartition],
    clock: Clock,
    on_outcomes: Callable[[Outcomes], None],
    *,
    by_leader: bool = False,
    refusal: Callable[[], ErrorCode] = lambda: ErrorCode.NONE,
) -> None:
    """Enlist existing partitions; `by_leader`: for a client that does not enlist them itself.
    `refusal` is checked at the step, which may follow a wait."""

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
    are in their order. `refused` returns the partitions that can't be enlisted; `refusal` as in
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
    """The outcomes of all partitions when some are refused: none is enlisted."""
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


CHANNEL = "verification"
TIMEOUT_MS = 5_000
STEPS_A_TURN = 200
"""Questions to this broker's own coordinator in one turn, some 15 µs each."""
VERSION = 4
"""The first version for requests between brokers."""

Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction

OnOutcomes = Callable[[list[Outcomes] | str], None]
"""Called with the outcomes in the request's order, perhaps fewer, or why there is no answer."""


class CoordinatorQuestions:
    """Sends the questions of one broker. The coordinator on the same broker is asked without a
    connection, and has as much time to answer as any other."""

    def __init__(
        self,
        coordinators: TransactionCoordinators,
        *,
        broker_id: int,
        transport: Transport,
        scheduler: Scheduler,
        clock: Clock,
    ) -> None:
        self._coordinators = coordinators
        self._broker_id = broker_id
        self._transport = transport
        self._scheduler = scheduler
        self._clock = clock

    def ask(
        self,
        coordinator: BrokerInfo,
        request: AddPartitionsToTxnRequest,
        on_outcomes: OnOutcomes,
    ) -> None:
        """Send one request; `on_outcomes` is called once."""

        def on_reply(reply: AddPartitionsToTxnResponse | TransportError) -> None:
            if isinstance(reply, TransportError):
                on_outcomes(reply.reason)
            else:
                read = guarded("an answer about transactions", _outcomes, reply)
                on_outcomes([] if read is FAILED else read)

        if coordinator.broker_id == self._broker_id:
            self._ask_here(request, on_outcomes)
            return
        self._transport.request(
            Endpoint(broker_id=coordinator.broker_id, host=coordinator.host, port=coordinator.port),
            CHANNEL,
            API,
            VERSION,
            request,
            timeout_ms=TIMEOUT_MS,
            on_reply=on_reply,
        )

    def _ask_here(self, request: AddPartitionsToTxnRequest, on_outcomes: OnOutcomes) -> None:
        """Ask the coordinator here with a timeout: it may wait for its replicas for any time."""

        def expire() -> None:
            on_outcomes(f"the coordinator here has not answered in {TIMEOUT_MS} ms")

        deadline = RequestDeadline(self._scheduler, TIMEOUT_MS, expire)

        def on_time(outcomes: list[Outcomes]) -> None:
            if deadline.finish():
                on_outcomes(outcomes)

        self._go_on(answer_leaders(self._coordinators, request.transactions, self._clock, on_time))

    def _go_on(self, steps: Iterator[None]) -> None:
        """Ask some, and the others in later turns: about each hanging transaction there may be as
        many questions as the state log has partitions."""
        if len(list(islice(steps, STEPS_A_TURN))) == STEPS_A_TURN:
            self._scheduler.call_soon(partial(self._go_on, steps))


def _outcomes(reply: AddPartitionsToTxnResponse) -> list[Outcomes]:
    return [_codes(result) for result in reply.results_by_transaction]


def _codes(result: AddPartitionsToTxnResponse.AddPartitionsToTxnResult) -> Outcomes:
    return {
        TopicPartition(topic.name, row.partition_index): ErrorCode.of(row.partition_error_code)
        for topic in result.topic_results
        for row in topic.results_by_partition
    }
