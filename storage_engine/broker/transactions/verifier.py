"""Asks coordinators to verify that a producer may write to a partition led here, or to enlist the
partition for it. A question is asked once, however many batches wait for its answer, and all of
them proceed in their order.

All questions of one turn of the event loop go to a coordinator in one request. A request to enlist
mostly comes while the markers of the producer's last transaction are being written: it is repeated
here for a while, because a client would pause for longer. Source: KIP-890.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from storage_engine.broker.coordinators.state_topic import StateTopic
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.transactions.coordinator_questions import (
    CoordinatorQuestions,
    Outcomes,
    Transaction,
)
from storage_engine.broker.unexpected import FAILED, guarded
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.errors import ErrorCode
from storage_engine.core.fair_queue import Share, SharedRoom
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.core.transactions.verification_guard import (
    TransactionVerification,
    VerificationGuards,
)
from storage_engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)

log = logging.getLogger(__name__)

AGAIN_MS = 10
TIMES_AGAIN = 40
"""The most repetitions: longer than markers take; then clients ask again, about every 100 ms."""
WAITING_MAX_BYTES = 64 << 20
"""The most bytes of all batches that wait for an answer, which producers share: a client that sends
again after its own timeout waits with another copy. One batch is always admitted, whatever its
size."""
WAITER_BYTES = 1 << 10
"""Roughly what a waiting batch takes besides its own bytes."""

OnVerified = Callable[[ErrorCode], None]


class _Waiter(NamedTuple):
    on_verified: OnVerified
    share: Share
    size: int


@dataclass(slots=True)
class _Asked:
    """A question, and the batches that wait for its answer."""

    partition: TopicPartition
    transactional_id: str
    guards: VerificationGuards
    question: TransactionVerification
    enlists: bool
    times_again: int = TIMES_AGAIN
    """The number of attempts that are left."""
    waiting: list[_Waiter] = field(default_factory=list)

    @property
    def key(self) -> tuple[int, TransactionVerification]:
        return id(self.guards), self.question

    @property
    def transaction(self) -> tuple[str, int, int, bool]:
        producer_id, epoch, _ = self.question
        return self.transactional_id, producer_id, epoch, self.enlists


class Verifier:
    """Asks coordinators on behalf of all partitions that this broker leads."""

    def __init__(
        self,
        topic: StateTopic,
        questions: CoordinatorQuestions,
        *,
        scheduler: Scheduler,
    ) -> None:
        self._topic = topic
        self._questions = questions
        self._scheduler = scheduler
        self._asked: dict[tuple[int, TransactionVerification], _Asked] = {}
        """Verifications in progress, by the identity of the guards and the request."""
        self._new: list[_Asked] = []
        self._room = SharedRoom(WAITING_MAX_BYTES)

    def verify(
        self,
        partition: HostedPartition,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        on_verified: OnVerified,
        *,
        share: Share,
        enlists: bool = False,
        size: int = 0,
    ) -> None:
        """Report NONE when the coordinator confirms that the transaction is open, with this
        partition; otherwise its code, or why it can't be asked. `enlists`: enlist the partition.
        `share`, `size`: the waiting batch's share, and its bytes."""
        size += WAITER_BYTES
        if not self._room.take(share, size):
            on_verified(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        guards = partition.guards
        question = guards.ask(producer_id, epoch)
        asked = self._asked.get((id(guards), question))
        if asked is None:
            asked = _Asked(partition.topic_partition, transactional_id, guards, question, enlists)
            self._asked[asked.key] = asked
            self._send_soon(asked)
        asked.waiting.append(_Waiter(on_verified, share, size))

    def _send_soon(self, asked: _Asked) -> None:
        if not self._new:
            self._scheduler.call_soon(self._send_new)
        self._new.append(asked)

    def _send_new(self) -> None:
        new, self._new = self._new, []
        by_coordinator: dict[BrokerInfo, list[_Asked]] = {}
        for asked in new:
            coordinator = self._topic.coordinator_of(asked.transactional_id)
            if coordinator is None:
                self._settle(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                by_coordinator.setdefault(coordinator, []).append(asked)
        for coordinator, questions in by_coordinator.items():
            if (
                guarded("the verification of transactions", self._ask, coordinator, questions)
                is FAILED
            ):
                for asked in questions:
                    self._settle(asked, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _ask(self, coordinator: BrokerInfo, questions: list[_Asked]) -> None:
        groups: dict[tuple[str, int, int, bool], list[_Asked]] = {}
        for asked in questions:
            groups.setdefault(asked.transaction, []).append(asked)
        request = AddPartitionsToTxnRequest(
            transactions=[_transaction(group) for group in groups.values()]
        )

        def on_outcomes(outcomes: list[Outcomes] | str) -> None:
            if isinstance(outcomes, str):
                log.info(
                    "transactions not verified coordinator=%d: %s", coordinator.broker_id, outcomes
                )
                for asked in questions:
                    self._settle(asked, ErrorCode.NETWORK_EXCEPTION)
                return
            # By position: the members of a sink have one transactional id.
            for place, group in enumerate(groups.values()):
                codes = outcomes[place] if place < len(outcomes) else {}
                for asked in group:
                    code = codes.get(asked.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
                    self._settle(asked, code)

        self._questions.ask(coordinator, request, on_outcomes)

    def _settle(self, asked: _Asked, code: ErrorCode) -> None:
        if self._asked.get(asked.key) is not asked:
            # It was answered before the rest of its request failed.
            return
        del self._asked[asked.key]
        counts = asked.guards.note_answer(asked.question, enlisted=code is ErrorCode.NONE)
        if code is ErrorCode.NONE and not counts:
            # A marker has come meanwhile: the coordinator's answer may be another by now.
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        if code is ErrorCode.CONCURRENT_TRANSACTIONS and asked.enlists and asked.times_again:
            self._ask_again(asked)
            return
        for waiter in asked.waiting:
            self._room.give_back(waiter.share, waiter.size)
            guarded("a batch that was verified", waiter.on_verified, code)

    def _ask_again(self, asked: _Asked) -> None:
        """Verify once more: queued at once, so that later batches wait behind these, and sent after
        AGAIN_MS."""
        asked.times_again -= 1
        asked.question = asked.guards.ask(asked.question.producer_id, asked.question.epoch)
        newer = self._asked.get(asked.key)
        if newer is None:
            self._asked[asked.key] = asked
            self._scheduler.call_later(AGAIN_MS, lambda: self._send_soon(asked))
        else:
            newer.waiting[:0] = asked.waiting


def _transaction(group: Sequence[_Asked]) -> Transaction:
    """The entry of one producer in a request, with all of its partitions."""
    topics: dict[str, list[int]] = {}
    for asked in group:
        topics.setdefault(asked.partition.topic, []).append(asked.partition.partition)
    transactional_id, producer_id, epoch, enlists = group[0].transaction
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        verify_only=not enlists,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ],
    )
