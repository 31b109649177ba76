"""Questions of a broker to the coordinators that it has itself."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from storage_engine.broker.transactions.coordinator_questions import (
    STEPS_A_TURN,
    CoordinatorQuestions,
    Transaction,
)
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.coordinator_log import Answer
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerEpoch, BrokerId, TopicPartition
from storage_engine.core.transactions.verification_guard import search_name
from storage_engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)

A = TopicPartition("a", 0)
MANY = 5 * STEPS_A_TURN + 1


class Coordinators:
    def __init__(self) -> None:
        self.asked = 0

    def request(self, name: str, event_of: Callable[[int], Any], on_answer: Any) -> None:
        self.asked += 1
        on_answer(Answer(request=1, error=ErrorCode.INVALID_TXN_STATE))


def about(number: int) -> Any:
    topic = AddPartitionsToTxnTopic(name=A.topic, partitions=[A.partition])
    return Transaction(
        transactional_id=search_name(number),
        producer_id=number,
        producer_epoch=0,
        verify_only=True,
        topics=[topic],
    )


def test_many_questions_to_the_coordinator_here_are_asked_in_several_turns():
    coordinators, turns = Coordinators(), deque[Callable[[], None]]()
    timer = SimpleNamespace(cancel=lambda: None)
    scheduler: Any = SimpleNamespace(call_soon=turns.append, call_later=lambda *_: timer)
    nothing: Any = None
    asked_here: Any = coordinators
    questions = CoordinatorQuestions(
        asked_here, broker_id=1, transport=nothing, scheduler=scheduler, clock=nothing
    )
    request = AddPartitionsToTxnRequest(transactions=[about(n) for n in range(MANY)])
    heard: list[Any] = []
    here = BrokerInfo(broker_id=BrokerId(1), host="h", port=1, epoch=BrokerEpoch(1))
    questions.ask(here, request, heard.append)
    most = before = coordinators.asked
    while turns:
        assert not heard
        turns.popleft()()
        most, before = max(most, coordinators.asked - before), coordinators.asked
    assert most <= STEPS_A_TURN
    assert heard == [[{A: ErrorCode.INVALID_TXN_STATE}] * MANY]
