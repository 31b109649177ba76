"""A controller whose writes and deliveries are answered when a test says so."""

from dataclasses import replace
from uuid import UUID

from storage_engine.core.control.cluster_state import (
    BrokerInfo,
    PartitionAssignment,
    PartitionState,
    TopicInfo,
)
from storage_engine.core.control.controller import Controller
from storage_engine.core.control.controller_events import (
    ContinueElections,
    Deliver,
    DeliveryMade,
    ElectionsContinued,
    Loaded,
    StatesWritten,
    StateWrite,
    WriteOutcome,
    WriteStates,
)
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)

TP = TopicPartition("t", 0)


def brokers(*ids: int, **epochs: int) -> dict[BrokerId, BrokerInfo]:
    """Registered brokers; `b2=7` gives broker 2 the incarnation 7 (else 1)."""
    return {
        BrokerId(b): BrokerInfo(
            broker_id=BrokerId(b),
            host=f"host{b}",
            port=9092,
            epoch=BrokerEpoch(epochs.get(f"b{b}", 1)),
        )
        for b in ids
    }


def topic(name: str = "t", *replicas: tuple[int, ...], unclean: bool = False) -> TopicInfo:
    return TopicInfo(
        topic=name,
        topic_id=UUID(int=1),
        assignment={
            p: tuple(BrokerId(b) for b in rs) for p, rs in enumerate(replicas or ((1, 2, 3),))
        },
        unclean_election=unclean,
    )


def with_assignment(info: TopicInfo, number: int, assignment: PartitionAssignment) -> TopicInfo:
    """The same topic, with another assignment of one partition."""
    moves = {p: move for p, move in info.reassignments.items() if p != number}
    if assignment.reassignment is not None:
        moves[number] = assignment.reassignment
    return replace(
        info,
        assignment={**info.assignment, number: assignment.replicas},
        reassignments=dict(sorted(moves.items())),
    )


def state(leader: int, *isr: int, epoch: int = 3, version: int = 5, zxid: int = 0):
    return PartitionState(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=tuple(BrokerId(b) for b in isr),
        controller_epoch=ControllerEpoch(1),
        partition_epoch=PartitionEpoch(version),
        written_zxid=zxid,
    )


class Driven:
    """A controller whose writes and deliveries are answered when the test says so."""

    def __init__(self, *, delete_topic_enable: bool = True) -> None:
        self.core = Controller(
            controller_epoch=ControllerEpoch(9), delete_topic_enable=delete_topic_enable
        )
        self.effects: list = []
        self.all_effects: list = []
        self.deliveries: list[Deliver] = []

    def step(self, event) -> list:
        """Apply an event, and hold all elections that follow from it."""
        self.effects = effects = self.core.step(event)
        while any(isinstance(effect, ContinueElections) for effect in effects):
            effects = self.core.step(ElectionsContinued())
            self.effects = [*self.effects, *effects]
        self.all_effects += self.effects
        self.deliveries += self.of(Deliver)
        return self.effects

    def of_all_deliveries(self) -> list[Deliver]:
        return [effect for effect in self.all_effects if isinstance(effect, Deliver)]

    def last_of(self, kind) -> list:
        """The last effect of a kind, in a list; whenever it came."""
        return [effect for effect in self.all_effects if isinstance(effect, kind)][-1:]

    def of(self, kind) -> list:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def writes(self) -> list[StateWrite]:
        return [write for effect in self.of(WriteStates) for write in effect.writes]

    def answer(self, outcome: WriteOutcome = WriteOutcome.ACCEPTED) -> list:
        return self.step(
            StatesWritten(outcomes={w.partition: (outcome, w.state) for w in self.writes()})
        )

    def answer_last(self) -> list:
        """Accept the last writes, whatever has happened since."""
        self.effects = self.last_of(WriteStates)
        return self.answer()

    def deliver_all(self) -> list:
        """Answer deliveries until none is under way; those that were made."""
        made = []
        while self.deliveries:
            effect = self.deliveries.pop(0)
            made.append(effect)
            self.step(DeliveryMade(broker=effect.broker, delivery=effect.delivery))
        return made


def running(
    *,
    live=(1, 2, 3),
    info: TopicInfo | None = None,
    known: PartitionState | None = None,
    **options,
) -> Driven:
    """A controller of topic t that has told everybody everything."""
    driven = Driven(**options)
    info = info or topic()
    driven.step(
        Loaded(
            brokers=brokers(*live),
            topics={"t": info},
            states={TP: known or state(1, 1, 2, 3)},
        )
    )
    driven.deliver_all()
    return driven
