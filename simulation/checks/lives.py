"""The state of one life of a broker's process at the checker's last look."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simulation.world.broker import SimulatedBroker
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.log.partition_log import PartitionLog


@dataclass(slots=True, eq=False)
class ReplicaSeen:
    """The state of a replica at its last check."""

    end_offset: int = -1
    log: PartitionLog | None = None
    high_watermark: int = 0
    leader_epoch: int = -1
    leading: bool = False
    session: int = 0
    """The session in which it began its present leader epoch."""


@dataclass(slots=True, eq=False)
class Life:
    """A broker's process from its start to its end, and what the checker has seen of it."""

    broker: SimulatedBroker
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    """The logs at the last check, hosted or not."""
    replicas: dict[TopicPartition, ReplicaSeen] = field(default_factory=dict)
    brokers_known: Mapping[BrokerId, BrokerInfo] | None = None
    """The metadata's brokers, an object that each UpdateMetadata replaces."""
    announced_epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    """The leader epoch in the broker's answers to clients, by partition."""
    saved: dict[TopicPartition, dict[Path, int]] = field(default_factory=dict)
    """The high watermarks at the start, in each log dir that has one of the partition."""
