"""The cluster as values: brokers, topics, partition states. Frozen, shared by controller, brokers
and messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from storage_engine.core.control.reassignment import Assigned, Reassignment
from storage_engine.core.ids import (
    NO_LEADER,
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
    """Its first incarnation after the last stop that may have cut its logs (`core.lost_tails`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """What ZooKeeper keeps of a partition; `partition_epoch` is the version of that node.

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

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic's id, its assignment, what of that is on the move, and the one setting that elections
    need."""

    topic: str
    topic_id: UUID
    assignment: dict[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    unclean_election: bool = False
    reassignments: dict[int, Reassignment] = field(default_factory=dict)
    """Partitions that are being moved; the assignment of these is original + target."""

    def assigned(self, partition: int) -> Assigned | None:
        """None: the topic has no such partition."""
        replicas = self.assignment.get(partition)
        if replicas is None:
            return None
        return Assigned(replicas=replicas, reassignment=self.reassignments.get(partition))

    def with_assigned(self, partition: int, assigned: Assigned) -> "TopicInfo":
        """The same topic, with another assignment of one partition."""
        moves = {p: move for p, move in self.reassignments.items() if p != partition}
        if assigned.reassignment is not None:
            moves[partition] = assigned.reassignment
        return replace(
            self,
            assignment={**self.assignment, partition: assigned.replicas},
            reassignments=dict(sorted(moves.items())),
        )
