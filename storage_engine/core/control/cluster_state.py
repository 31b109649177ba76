"""The cluster as values: brokers, topics, their assignments, the states of partitions. Frozen, and
shared by the controller, the brokers and the messages between them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from storage_engine.core.ids import (
    NO_TAIL_LOST,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A registered broker. `epoch` is its incarnation (R-CTL4)."""

    broker_id: BrokerId
    host: str
    port: int
    epoch: BrokerEpoch
    rack: str | None = None
    tail_lost_epoch: BrokerEpoch = NO_TAIL_LOST
    """Its first incarnation after the last stop that may have cut its logs (`election_rules`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The content of a partition's state node; `partition_epoch` is the version of that node.

    `written_zxid` is the transaction that wrote it, comparable with brokers' epochs; 0: not known.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_epoch: ControllerEpoch
    partition_epoch: PartitionEpoch
    written_zxid: int = 0
    joined_epochs: Mapping[BrokerId, BrokerEpoch] = field(default_factory=dict)
    """With which incarnation a member of the ISR was last known to hold all that is committed; no
    entry where nobody has said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A reassignment under way. Original equal to target: it is being taken back."""

    original: tuple[BrokerId, ...]
    """The replicas before the first step."""
    target: tuple[BrokerId, ...]
    """The replicas after the last one, the preferred one first."""

    @property
    def is_cancellation(self) -> bool:
        return self.original == self.target

    def is_caught_up(self, isr: Collection[BrokerId], live: Collection[BrokerId]) -> bool:
        """Whether every target is in sync, so that the old replicas can go.

        On the way back only the originals that live are waited for, and one is enough: where a dead
        one kept the way forward from ending, it must not keep the way back from it too.
        """
        if self.is_cancellation:
            back = [replica for replica in self.target if replica in live]
            return bool(back) and all(replica in isr for replica in back)
        return all(replica in isr for replica in self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAssignment:
    """The assignment of one partition in the topic's node.

    While the partition is being reassigned its replicas are original + target, and both stand
    beside them, so that any later controller can go on from what it reads.
    """

    replicas: tuple[BrokerId, ...]
    reassignment: Reassignment | None = None

    def towards(self, target: Sequence[BrokerId]) -> "PartitionAssignment":
        """The first step of a move to `target`, which may turn a move under way.

        Replicas of an earlier direction stay until the end: one of them may lead, or be needed to
        have enough in sync.
        """
        under_way = self.reassignment
        original = self.replicas if under_way is None else under_way.original
        return PartitionAssignment(
            replicas=tuple(dict.fromkeys((*original, *target, *self.replicas))),
            reassignment=Reassignment(original=original, target=tuple(target)),
        )

    def finished(self) -> "PartitionAssignment":
        """The last step of the move under way."""
        assert self.reassignment is not None
        return PartitionAssignment(replicas=self.reassignment.target)

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        """Replicas that were not there before, in the order of the target."""
        move = self.reassignment
        return () if move is None else tuple(r for r in move.target if r not in move.original)

    @property
    def removing(self) -> tuple[BrokerId, ...]:
        """Replicas that will not be there afterwards."""
        move = self.reassignment
        return () if move is None else tuple(r for r in self.replicas if r not in move.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic's id, its assignment with the reassignments under way, and the one setting that
    elections need."""

    topic: str
    topic_id: UUID
    assignment: dict[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    unclean_election: bool = False
    reassignments: dict[int, Reassignment] = field(default_factory=dict)
    """Partitions that are being moved; the assignment of these is original + target."""

    def assigned(self, partition: int) -> PartitionAssignment | None:
        """None: the topic has no such partition."""
        replicas = self.assignment.get(partition)
        if replicas is None:
            return None
        return PartitionAssignment(
            replicas=replicas, reassignment=self.reassignments.get(partition)
        )
