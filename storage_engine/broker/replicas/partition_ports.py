"""The parts of the broker that all of its partitions use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from storage_engine.broker.replicas.lease import LeaderLease
from storage_engine.broker.replicas.purgatory import EndOfTurn
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.replication.partition import LagLimits, LeaderPartition, ProposeIsr

PartitionT = TypeVar("PartitionT")


@dataclass(slots=True)
class ReplicaChanges:
    """The changes since the last periodic work, which skips idle partitions."""

    logs: dict[TopicPartition, None] = field(default_factory=dict)
    """The partitions whose logs were written to; see `ChangedReplicas`."""
    high_watermarks: bool = True
    """True when some high watermark may have moved, or a replica has come or gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPorts(Generic[PartitionT]):
    """The clock, the lease, and callbacks to the rest of the broker."""

    broker_id: BrokerId
    lag: LagLimits
    clock: Clock
    lease: LeaderLease
    end_of_turn: EndOfTurn
    propose_isr: Callable[[PartitionT, LeaderPartition, ProposeIsr], None]
    """Writes an ISR to ZooKeeper; the partition gets the outcome as a step, as with the next."""
    read_isr: Callable[[PartitionT, LeaderPartition], None]
    flush: Callable[[PartitionT, Callable[[], None] | None, int], None]
    """See `DurableAcks.flush`."""
    changes: ReplicaChanges = field(default_factory=ReplicaChanges)
    on_failure: Callable[[PartitionT, Exception], None]
