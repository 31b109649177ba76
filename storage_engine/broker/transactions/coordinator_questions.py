"""Asks the coordinator on any broker about transactions, by an AddPartitionsToTxn between brokers.
The one on this broker is asked without a connection, and has the same time. Source: KIP-890.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.transactions.partition_requests import Outcomes, answer_leaders
from storage_engine.broker.unexpected import FAILED, guarded
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock, Endpoint, Scheduler, TransportError
from storage_engine.protocol.messages.add_partitions_to_txn import (
    API,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from storage_engine.protocol.transport import Transport

CHANNEL = "verification"
TIMEOUT_MS = 5_000
STEPS_A_TURN = 200
"""Questions to the coordinator here, some 15 µs each."""
VERSION = 4
"""The first one between brokers."""

Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction

OnOutcomes = Callable[[list[Outcomes] | str], None]
"""Hears the outcomes by place in the request, perhaps fewer, or why there is no answer."""


class CoordinatorQuestions:
    """Sends the questions of one broker."""

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
        """Ask once; it is answered once."""

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
        """The coordinator may wait for its replicas for as long as these are away."""

        def expire() -> None:
            on_outcomes(f"the coordinator here has not answered in {TIMEOUT_MS} ms")

        deadline = RequestDeadline(self._scheduler, TIMEOUT_MS, expire)

        def on_time(outcomes: list[Outcomes]) -> None:
            if deadline.finish():
                on_outcomes(outcomes)

        self._go_on(answer_leaders(self._coordinators, request.transactions, self._clock, on_time))

    def _go_on(self, steps: Iterator[None]) -> None:
        """Ask some, and the others in later turns: about hanging transactions there may be as many
        as the state log has partitions for each."""
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
