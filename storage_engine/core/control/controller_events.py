"""Events and effects of the controller's state machine (`controller`): only values."""

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
    """Another write changed the state: it has to be read before the next decision."""
    UNKNOWN = "unknown"
    """No answer came: the state has to be read before the next decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything in ZooKeeper was read, after the watches were set (R-CTL5)."""

    brokers: Mapping[BrokerId, BrokerInfo]
    topics: Mapping[str, TopicInfo]
    states: Mapping[TopicPartition, PartitionState]
    deleting: tuple[str, ...] = ()
    unreadable: frozenset[str] = frozenset()
    """Topics that exist but whose nodes can't be decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersChanged:
    """The set of registered brokers has changed; these are all of them."""

    brokers: Mapping[BrokerId, BrokerInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsRead:
    """Topics that are new, grew, or have other settings were read."""

    topics: Mapping[str, TopicInfo]
    unreadable: frozenset[str] = frozenset()
    """Topics that exist but whose nodes can't be decoded now."""
    absent: frozenset[str] = frozenset()
    """Topics that do not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesRead:
    """States were read back; None where there is no node."""

    states: Mapping[TopicPartition, PartitionState | None]
    no_successor: bool = False
    """True when the controller epoch was unchanged when they were read: no later controller was
    elected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesWritten:
    """The outcomes of a WriteStates, each with the state that was to be written."""

    outcomes: Mapping[TopicPartition, tuple[WriteOutcome, PartitionState]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequested:
    """A broker wants to stop (R-CTL9)."""

    broker: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceChecked:
    """It is time to check whether preferred replicas lead (R-CTL7).

    A broker gets its partitions back when other brokers lead more than `percentage` of those that
    prefer it."""

    percentage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReportsFailures:
    """A broker reports failed replicas without naming them (KIP-112)."""

    broker: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasFailed:
    """This incarnation of a broker can't serve these partitions, because their log dir
    failed."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeletionRequested:
    """Topics were named under /admin/delete_topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """The topic's nodes are gone."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentRequested:
    """The whole content of /admin/reassign_partitions: partition -> its future replicas."""

    targets: Mapping[TopicPartition, tuple[BrokerId, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsWritten:
    """A WriteAssignments has ended; the event carries the topic as it is now in ZooKeeper, None
    when it is not there."""

    topic: str
    info: TopicInfo | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionRequested:
    """Preferred replicas shall lead (R-CTL7); or, with `unclean`, any live replica where no in-sync
    one is left (R-REP9)."""

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
    """Live replicas whose log dir has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDelivery:
    """Orders to one broker, in this sequence: metadata, leadership, replicas to stop.

    Each delivery to a broker has another `number`."""

    number: int
    broker_epoch: BrokerEpoch
    brokers: tuple[BrokerInfo, ...] = ()
    metadata: tuple[PartitionLeadership, ...] = ()
    removed_topics: tuple[str, ...] = ()
    leadership: tuple[PartitionLeadership, ...] = ()
    full: bool = False
    """True when this is everything the broker has to know."""
    stop: tuple[TopicPartition, ...] = field(default=())
    """Replicas to stop and delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryMade:
    """The broker has accepted all of a delivery."""

    broker: BrokerId
    delivery: OrderDelivery


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFailed:
    """The broker did not answer, or not to all: the delivery is repeated after a pause."""

    broker: BrokerId
    delivery: OrderDelivery


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionsContinued:
    """Another turn of the driver has come after ContinueElections."""


Request = (
    ControlledShutdownRequested
    | BalanceChecked
    | TopicDeletionRequested
    | ReassignmentRequested
    | ElectionRequested
)
"""Events that a user or another program asks for."""

News = (
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
"""Events that change what is known."""

Event = News | ElectionsContinued


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
class ContinueElections:
    """More partitions may be due for an election than were looked at: report ElectionsContinued in
    another turn. No election is held before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStates:
    """Read these states, then report StatesRead."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Send UpdateMetadata, LeaderAndIsr and StopReplica to one broker, one delivery at a time."""

    broker: BrokerId
    delivery: OrderDelivery


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReplicaOnline:
    """These partitions have no leader now (R-CTL2); the driver logs it."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownProgress:
    """The partitions that a broker in controlled shutdown still leads; it may stop when there are
    none."""

    broker: BrokerId
    remaining: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsReady:
    """All partitions of these topics have a state: their creation can be answered."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicNodes:
    """Every replica is gone: remove the topic's nodes, the request last."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDeletionRequests:
    """Remove requests to delete topics that do not exist, or that may not be deleted."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentChange:
    """Change a partition's entry in the topic's node to `wanted`, if it is `expected` now."""

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
    """Remove these from /admin/reassign_partitions: partition -> the target that was requested, and
    the reason why it is refused (None when it is done)."""

    requests: Mapping[TopicPartition, tuple[tuple[BrokerId, ...], str | None]]


Effect = (
    WriteStates
    | ContinueElections
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
