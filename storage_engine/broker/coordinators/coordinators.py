"""The coordinators of one kind on one broker: one for each partition of their topic that it leads.
A name is coordinated by the leader of its partition, and by nobody else.

Source: KIP-98.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Generic

from storage_engine.broker.coordinators.runner import (
    CoordinatorKind,
    CoordinatorRunner,
    EventOf,
)
from storage_engine.broker.coordinators.state_load import ContentT, LoadTroubles
from storage_engine.broker.coordinators.state_machine import (
    AnswerT,
    Core,
    EffectT,
    EventT,
    OnAnswer,
    RunnerPorts,
)
from storage_engine.broker.coordinators.state_topic import StateTopic
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.unexpected import FAILED, guarded
from storage_engine.core.coordinator_log import Answer, EntryT
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups import events as groups
from storage_engine.core.groups.events import GroupEffect
from storage_engine.core.groups.records import GroupContent, GroupEntry
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions import transaction_events as transactions
from storage_engine.core.transactions.transaction_events import TransactionAnswer, TransactionEffect
from storage_engine.core.transactions.transaction_state import StateContent, StateEntry

log = logging.getLogger(__name__)


RELOAD_PAUSE_MS = 1_000
"""The pause before a partition whose coordinator failed after its load is loaded again: a full disk
refuses every append for a while."""


class Coordinators(Generic[EventT, AnswerT, EffectT, EntryT, ContentT]):
    """The runners of one kind of coordinator, by partition."""

    def __init__(
        self,
        kind: CoordinatorKind[EventT, AnswerT, EffectT, EntryT, ContentT],
        ports: RunnerPorts,
        topic: StateTopic,
        *,
        troubles: LoadTroubles,
        tick_ms: int,
    ) -> None:
        self._kind = kind
        self._ports = ports
        self._topic = topic
        self._troubles = troubles
        self._tick_ms = tick_ms
        self._runners: dict[
            TopicPartition, CoordinatorRunner[EventT, AnswerT, EffectT, EntryT, ContentT]
        ] = {}
        self._closed = False

    def start(self) -> None:
        """Start the periodic work."""
        self._ports.scheduler.call_later(self._tick_ms, self._tick)

    def close(self) -> None:
        """End all coordinators and answer their requests."""
        self._closed = True
        for runner in list(self._runners.values()):
            runner.end()
        self._runners.clear()

    def lead(self, partition: HostedPartition) -> None:
        """Coordinate a partition that this broker leads from now on, or under another epoch."""
        tp = partition.topic_partition
        if tp.topic != self._kind.topic or self._closed or partition.leader is None:
            return
        known = self._runners.get(tp)
        if known is not None and known.partition is partition and not known.try_complete():
            # It still leads, and its state has everything in the log.
            return
        if known is not None:
            self._runners.pop(tp, None)
            known.end()
        self._topic.learn()
        runner = self._runners[tp] = CoordinatorRunner(
            partition, self._kind, self._ports, self._ended, self._troubles.loaded
        )
        runner.start()

    def request(self, name: str, event_of: EventOf[EventT], on_answer: OnAnswer[AnswerT]) -> None:
        """Submit an event to the coordinator of a name; it is answered once, now or later."""
        found = self._runner_of(name)
        if isinstance(found, ErrorCode):
            on_answer(self._kind.refusal(0, found))
        else:
            found.request(event_of, on_answer)

    def coordinator_of(
        self, name: str
    ) -> Core[EventT, AnswerT, EffectT, EntryT, ContentT] | ErrorCode:
        """The state machine of a name's coordinator, to be read only."""
        found = self._runner_of(name)
        if isinstance(found, ErrorCode):
            return found
        return found.coordinator or ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def __iter__(self) -> Iterator[Core[EventT, AnswerT, EffectT, EntryT, ContentT] | None]:
        """All coordinators on this broker; None for one that is loading."""
        return (runner.coordinator for runner in self._runners.values())

    def are_loaded(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether each of these partitions has a loaded coordinator here."""
        found = (self._runners.get(tp) for tp in partitions)
        return all(runner is not None and runner.coordinator is not None for runner in found)

    def submit(self, tp: TopicPartition, event: EventT) -> None:
        """Submit an event to the coordinator of a partition, if there is one here."""
        runner = self._runners.get(tp)
        if runner is not None:
            runner.submit(event)

    def submit_to_all(self, event: EventT) -> None:
        """Submit an event to every coordinator here."""
        for runner in list(self._runners.values()):
            runner.submit(event)

    def _runner_of(
        self, name: str
    ) -> CoordinatorRunner[EventT, AnswerT, EffectT, EntryT, ContentT] | ErrorCode:
        tp = self._topic.partition_of(name)
        if tp is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._runners.get(tp) or ErrorCode.NOT_COORDINATOR

    def _ended(self, runner: CoordinatorRunner[EventT, AnswerT, EffectT, EntryT, ContentT]) -> None:
        tp = runner.topic_partition
        if self._runners.get(tp) is not runner:
            return
        del self._runners[tp]
        log.info("no longer coordinates partition=%s leader_epoch=%d", tp, runner.leader_epoch)
        partition = runner.partition
        pause_ms = RELOAD_PAUSE_MS
        if partition.leader is None:
            self._troubles.forget(tp)
        elif runner.load_failure is not None:
            found = guarded(
                "a state log that could not be read",
                self._troubles.failed,
                partition,
                runner.load_failure,
            )
            pause_ms = pause_ms if found is FAILED else found

        def look() -> None:
            partition = runner.partition
            leads = partition.leader is not None and tp not in self._runners
            if leads and partition.leader_epoch == runner.leader_epoch:
                self.lead(partition)

        self._ports.scheduler.call_later(pause_ms, look)

    def _tick(self) -> None:
        if self._closed:
            return
        self._ports.scheduler.call_later(self._tick_ms, self._tick)
        for runner in list(self._runners.values()):
            runner.tick()


TransactionKind = CoordinatorKind[
    transactions.Event, TransactionAnswer, TransactionEffect, StateEntry, StateContent
]
TransactionRunner = CoordinatorRunner[
    transactions.Event, TransactionAnswer, TransactionEffect, StateEntry, StateContent
]
TransactionCoordinators = Coordinators[
    transactions.Event, TransactionAnswer, TransactionEffect, StateEntry, StateContent
]
GroupKind = CoordinatorKind[groups.Event, Answer, GroupEffect, GroupEntry, GroupContent]
GroupRunner = CoordinatorRunner[groups.Event, Answer, GroupEffect, GroupEntry, GroupContent]
GroupCoordinators = Coordinators[groups.Event, Answer, GroupEffect, GroupEntry, GroupContent]
