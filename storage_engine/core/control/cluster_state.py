"""The cluster as values: brokers, topics, their assignments, the states of partitions. They are
frozen, and shared by the controller, the brokers and the messages between them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from storage_engine.core.ids import (
    NO_TAIL_LOST,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
)


class BrokerEndpoint(NamedTuple):
    """The advertised address of one of a broker's listeners."""

    listener: str
    host: str
    port: int


ONLY_LISTENER = "PLAINTEXT"
"""The name of the listener of a broker that registers no endpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A registered broker. `epoch` is its incarnation (R-CTL4)."""

    broker_id: BrokerId
    host: str
    port: int
    """The address for other brokers."""
    epoch: BrokerEpoch
    rack: str | None = None
    endpoints: tuple[BrokerEndpoint, ...] = ()
    """The listeners; empty for a broker with ONLY_LISTENER alone, at `host` and `port`."""
    tail_lost_epoch: BrokerEpoch = NO_TAIL_LOST
    """The broker's first incarnation after the last stop that may have cut its logs
    (`election_rules`)."""

    def at(self, listener: str) -> "BrokerInfo | None":
        """The broker with the address of one of its listeners; None when it has no such one."""
        if not self.endpoints:
            return self if listener == ONLY_LISTENER else None
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return replace(self, host=endpoint.host, port=endpoint.port)
        return None


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
    """By member of the ISR the incarnation of it that was last known to hold all that is committed;
    a member that nobody has vouched for has no entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A reassignment under way. Where original and target are equal, it is being cancelled."""

    original: tuple[BrokerId, ...]
    """The replicas before the first step."""
    target: tuple[BrokerId, ...]
    """The replicas after the last step, the preferred one first."""

    @property
    def is_cancellation(self) -> bool:
        return self.original == self.target

    def is_caught_up(self, isr: Collection[BrokerId], live: Collection[BrokerId]) -> bool:
        """Return True when every target is in sync, so that the old replicas can go.

        A reassignment that is being cancelled waits for the live originals only, and one is enough:
        a dead original that kept the reassignment from ending must not keep its cancellation from
        ending too."""
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
        """Return the first step of a move to `target`, which may change the direction of a move
        under way.

        Replicas of an earlier direction stay until the end: one of them may lead, or be needed for
        min.insync.replicas."""
        under_way = self.reassignment
        original = self.replicas if under_way is None else under_way.original
        return PartitionAssignment(
            replicas=tuple(dict.fromkeys((*original, *target, *self.replicas))),
            reassignment=Reassignment(original=original, target=tuple(target)),
        )

    def finished(self) -> "PartitionAssignment":
        """Return the assignment after the last step of the move under way."""
        assert self.reassignment is not None
        return PartitionAssignment(replicas=self.reassignment.target)

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        """The replicas that were not there before, in the order of the target."""
        move = self.reassignment
        return () if move is None else tuple(r for r in move.target if r not in move.original)

    @property
    def removing(self) -> tuple[BrokerId, ...]:
        """The replicas that will not be there after the move."""
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
    """The partitions that are being moved; their assignment is original + target."""

    def assigned(self, partition: int) -> PartitionAssignment | None:
        """Return the assignment of a partition; None when the topic has no such partition."""
        replicas = self.assignment.get(partition)
        if replicas is None:
            return None
        return PartitionAssignment(
            replicas=replicas, reassignment=self.reassignments.get(partition)
        )
