"""Events that happen to a controller, and effects that it wants carried out: the alphabet of
`controller`. Values only."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from storage_engine.core.control.cluster_state import (
    BrokerInfo,
    PartitionAssignment,
    PartitionState,
    TopicInfo,
)
from storage_engine.core.ids import BrokerEpoch, BrokerId, PartitionEpoch, TopicPartition


class WriteOutcome(enum.Enum):
    """How a conditional write of a partition's state ended."""

    ACCEPTED = "accepted"
    CONFLICT = "conflict"
    """Somebody else changed the state: read it and decide again."""
    UNKNOWN = "unknown"
    """The answer never came: read it and decide again."""


# --- events ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything in ZooKeeper, read after the watches were set (R-CTL5)."""

    brokers: Mapping[BrokerId, BrokerInfo]
    topics: Mapping[str, TopicInfo]
    states: Mapping[TopicPartition, PartitionState]
    deleting: tuple[str, ...] = ()
    unreadable: frozenset[str] = frozenset()
    """Topics that are there, though nothing can be made of their nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersChanged:
    """All brokers registered now."""

    brokers: Mapping[BrokerId, BrokerInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsRead:
    """Topics that are new, grew, or have other settings."""

    topics: Mapping[str, TopicInfo]
    unreadable: frozenset[str] = frozenset()
    """Others that are there, though nothing can be made of their nodes now."""
    absent: frozenset[str] = frozenset()
    """Others that are not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesRead:
    """States read back; None where there is no node."""

    states: Mapping[TopicPartition, PartitionState | None]
    no_successor: bool = False
    """There was no later controller when they were read: the controller epoch is still the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesWritten:
    """Outcomes of WriteStates, with the state as it was to be written."""

    outcomes: Mapping[TopicPartition, tuple[WriteOutcome, PartitionState]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequested:
    """A broker wants to stop (R-CTL9)."""

    broker: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceChecked:
    """Time to look whether preferred replicas lead (R-CTL7).

    A broker of which more than `percentage` of the partitions that prefer it are led by others gets
    them back.
    """

    percentage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReportsFailures:
    """Some replicas of a broker failed, it does not say which (KIP-112)."""

    broker: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasFailed:
    """This incarnation of a broker can't serve these partitions: their log directory failed."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeletionRequested:
    """Topics named under /admin/delete_topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """The topic's nodes are gone."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentRequested:
    """All that /admin/reassign_partitions asks for now: partition -> its future replicas."""

    targets: Mapping[TopicPartition, tuple[BrokerId, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsWritten:
    """How WriteAssignments ended: the topic as it is now in ZooKeeper. None: it is not there."""

    topic: str
    info: TopicInfo | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionRequested:
    """The preferred replicas shall lead (R-CTL7); or, with `unclean`, any live replica where no
    in-sync one is left (R-REP9)."""

    partitions: tuple[TopicPartition, ...]
    unclean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLeadership:
    """One partition in a LeaderAndIsr."""

    partition: TopicPartition
    topic_id: UUID
    state: PartitionState
    assigned: tuple[BrokerId, ...]
    failed: tuple[BrokerId, ...] = ()
    """Live replicas whose log directory failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDelivery:
    """Orders to one broker, in this sequence: metadata, leadership, replicas to stop.

    Each delivery to a broker has another `number`.
    """

    number: int
    broker_epoch: BrokerEpoch
    brokers: tuple[BrokerInfo, ...] = ()
    metadata: tuple[PartitionLeadership, ...] = ()
    removed_topics: tuple[str, ...] = ()
    leadership: tuple[PartitionLeadership, ...] = ()
    full: bool = False
    """True when this is everything the broker should know."""
    stop: tuple[TopicPartition, ...] = field(default=())
    """Replicas to stop and delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryMade:
    """The broker took all of a delivery."""

    broker: BrokerId
    delivery: OrderDelivery


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFailed:
    """No answer, or not to all: to be sent again after a pause."""

    broker: BrokerId
    delivery: OrderDelivery


Request = (
    ControlledShutdownRequested
    | BalanceChecked
    | TopicDeletionRequested
    | ReassignmentRequested
    | ElectionRequested
)
"""Events that somebody asks for."""

Event = (
    Loaded
    | BrokersChanged
    | TopicsRead
    | StatesRead
    | StatesWritten
    | AssignmentsWritten
    | BrokerReportsFailures
    | ReplicasFailed
    | TopicDeleted
    | DeliveryMade
    | DeliveryFailed
    | Request
)


# --- effects ---


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWrite:
    """One conditional write; `expected_partition_epoch` None creates the node, and with it that of
    the partition unless `partition_exists`."""

    partition: TopicPartition
    state: PartitionState
    expected_partition_epoch: PartitionEpoch | None
    partition_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStates:
    """Write these, each only if its version and the controller epoch are unchanged (R-CTL2)."""

    writes: tuple[StateWrite, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStates:
    """Read these states and report StatesRead."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Send UpdateMetadata, LeaderAndIsr and StopReplica to one broker, one delivery at a time."""

    broker: BrokerId
    delivery: OrderDelivery


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReplicaOnline:
    """These partitions have no leader now (R-CTL2): log it."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownProgress:
    """The partitions that a broker in controlled shutdown still leads; none: it may stop."""

    broker: BrokerId
    remaining: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsReady:
    """All partitions of these topics have a state: creation can be answered."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicNodes:
    """Every replica is gone: remove the topic's nodes, the request last."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDeletionRequests:
    """Requests to delete topics that do not exist, or that may not be deleted: remove them."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentChange:
    """A partition's entry in the topic's node shall be `wanted`, if it is `expected` now."""

    partition: int
    expected: PartitionAssignment
    wanted: PartitionAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAssignments:
    """Change a topic's node, only if the controller epoch is unchanged; then report
    AssignmentsWritten."""

    topic: str
    changes: tuple[AssignmentChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropReassignmentRequests:
    """Take these out of /admin/reassign_partitions: partition -> the target that was asked for, and
    why it is refused (None: it is done)."""

    requests: Mapping[TopicPartition, tuple[tuple[BrokerId, ...], str | None]]


Effect = (
    WriteStates
    | ReadStates
    | Deliver
    | NoReplicaOnline
    | ShutdownProgress
    | TopicsReady
    | DeleteTopicNodes
    | DropDeletionRequests
    | WriteAssignments
    | DropReassignmentRequests
)
