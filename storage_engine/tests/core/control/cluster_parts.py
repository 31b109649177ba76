"""The parts of a random cluster: a session, a broker with its logs, a controller at work."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage_engine.core.control.controller import Controller
from storage_engine.core.control.controller_events import (
    AssignmentsWritten,
    BrokersChanged,
    ContinueElections,
    DeleteTopicNodes,
    Deliver,
    DropReassignmentRequests,
    ElectionsContinued,
    ReadStates,
    ReassignmentRequested,
    StatesRead,
    StatesWritten,
    StateWrite,
    TopicDeleted,
    WriteAssignments,
    WriteOutcome,
    WriteStates,
)
from storage_engine.core.ids import NO_TAIL_LOST, ControllerEpoch, TopicPartition
from storage_engine.core.replication.leader_epochs import LeaderEpochCache
from storage_engine.core.replication.partition import LeaderPartition

if TYPE_CHECKING:
    from storage_engine.tests.core.control.cluster_world import World

Work = Callable[[], None]


class Client:
    """A session: its requests happen in order, and so do the answers."""

    def __init__(self) -> None:
        self.requests: deque[Work] = deque()
        self.answers: deque[Work] = deque()


@dataclass
class ReplicaLog:
    """Records as (epoch, number)."""

    records: list[tuple[int, int]] = field(default_factory=list)
    epochs: LeaderEpochCache = field(default_factory=LeaderEpochCache)
    high_watermark: int = 0
    flushed: int = 0
    """The offset up to which records outlive a loss of power, exclusive."""

    @property
    def end(self) -> int:
        return len(self.records)

    def cut_to(self, end: int) -> None:
        del self.records[end:]
        self.epochs.truncate_from_end(end)
        self.high_watermark = min(self.high_watermark, end)
        self.flushed = min(self.flushed, end)


@dataclass
class Replica:
    """A running broker's knowledge of a partition."""

    leader_epoch: int = -1
    leader_id: int = -1
    leading: LeaderPartition | None = None


class Broker:
    """One broker; its logs outlive it."""

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.logs: dict[TopicPartition, ReplicaLog] = {}
        self.up = False
        self.tail_lost_epoch = NO_TAIL_LOST
        self.start()
        self.up = False

    def start(self) -> None:
        self.up = True
        self.client = Client()
        self.epoch = -1
        self.highest_controller_epoch = -1
        self.fenced = True
        self.replicas: dict[TopicPartition, Replica] = {}


class ControllerHost:
    """A controller and what it has under way."""

    def __init__(self, world: "World", epoch: int) -> None:
        self.core = Controller(
            controller_epoch=ControllerEpoch(epoch), elections_per_turn=world.elections_per_turn
        )
        self.client = Client()
        self.deliveries: list[Deliver] = []
        self.world = world
        self.closed = False
        """Replaced, and aware of it: a write was refused because of the controller epoch."""

    def step(self, event) -> None:
        if self.closed:
            return
        for effect in self.core.step(event):
            match effect:
                case WriteStates():
                    self._write(effect.writes)
                case ContinueElections():
                    # Anything may come before that turn.
                    self.world.request(
                        self.client, lambda: True, lambda _: self.step(ElectionsContinued())
                    )
                case ReadStates():
                    self.read(effect.partitions)
                case Deliver():
                    self.deliveries.append(effect)
                case DeleteTopicNodes():
                    self._delete(effect)
                case WriteAssignments():
                    self._assign(effect)
                case DropReassignmentRequests():
                    self._drop(effect)

    def _write(self, writes: tuple[StateWrite, ...]) -> None:
        outcomes: dict = {}

        def answered(write: StateWrite, outcome: WriteOutcome) -> None:
            if outcome is not WriteOutcome.UNKNOWN:
                self.closed |= self.core.controller_epoch != self.world.controller_epoch
            outcomes[write.partition] = (outcome, write.state)
            if len(outcomes) == len(writes):
                self.step(StatesWritten(outcomes=outcomes))

        for write in writes:
            self.world.request(
                self.client,
                lambda write=write: self.world.write_state(write, self.core.controller_epoch),
                lambda done, write=write: answered(
                    write,
                    WriteOutcome.UNKNOWN
                    if done is None
                    else WriteOutcome.ACCEPTED
                    if done
                    else WriteOutcome.CONFLICT,
                ),
            )

    def read(self, partitions) -> None:
        wanted = tuple(partitions)
        self.world.request(
            self.client,
            lambda: {tp: self.world.states.get(tp) for tp in wanted},
            lambda states: (
                self.read(wanted) if states is None else self.step(StatesRead(states=states))
            ),
        )

    def _delete(self, effect: DeleteTopicNodes) -> None:
        self.world.request(
            self.client,
            lambda: self.world.delete_topic(effect.topic, self.core.controller_epoch),
            lambda done: (
                self._delete(effect)
                if done is None and self.core.controller_epoch == self.world.controller_epoch
                else self.step(TopicDeleted(topic=effect.topic))
            ),
        )

    def _assign(self, effect: WriteAssignments) -> None:
        """Done or not, the topic is read and told as it is afterwards."""
        epoch = self.core.controller_epoch
        topic = effect.topic

        def read(done) -> None:
            if done is not None:
                self.closed |= epoch != self.world.controller_epoch
            self.world.request(
                self.client,
                lambda: (self.world.topics.get(topic),),
                lambda found: (
                    read(None)
                    if found is None
                    else self.step(AssignmentsWritten(topic=topic, info=found[0]))
                ),
            )

        self.world.request(self.client, lambda: self.world.write_assignments(effect, epoch), read)

    def _drop(self, effect: DropReassignmentRequests) -> None:
        """The controller then decides anew about requests that it could not carry out."""
        epoch = self.core.controller_epoch

        def read(version: int | None) -> None:
            if version is None:
                self.look_at_requests()
                return
            self.world.request(
                self.client,
                lambda: self.world.drop_requests(effect, version, epoch),
                lambda done: None if done else self.look_at_requests(),
            )

        self.world.request(self.client, lambda: self.world.targets_version, read)

    def look_at_requests(self) -> None:
        self.world.request(
            self.client,
            lambda: dict(self.world.targets),
            lambda targets: (
                self.look_at_requests()
                if targets is None
                else self.step(ReassignmentRequested(targets=targets))
            ),
        )

    def look_at_brokers(self) -> None:
        self.world.request(
            self.client,
            lambda: dict(self.world.registered),
            lambda brokers: (
                self.look_at_brokers()
                if brokers is None
                else self.step(BrokersChanged(brokers=brokers))
            ),
        )
