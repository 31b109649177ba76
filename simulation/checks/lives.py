"""What the checker remembers of one life of a broker's process."""

from pathlib import Path

from simulation.world.broker import SimulatedBroker
from storage_engine.core.ids import TopicPartition
from storage_engine.log.partition_log import PartitionLog


class ReplicaSeen:
    """The state of a replica at its last check."""

    __slots__ = ("end_offset", "high_watermark", "leader_epoch", "leading", "log", "session")

    def __init__(self) -> None:
        self.end_offset = -1
        self.log: PartitionLog | None = None
        self.high_watermark = 0
        self.leader_epoch = -1
        self.leading = False
        self.session = 0
        """The session in which it began its present leader epoch."""


class Life:
    """The checker's view of one life of a broker's process."""

    __slots__ = ("announced_epochs", "broker", "brokers_known", "logs", "replicas", "saved")

    def __init__(self, broker: SimulatedBroker) -> None:
        self.broker = broker
        self.logs: dict[TopicPartition, PartitionLog] = {}
        """The logs at the last check, hosted or not."""
        self.replicas: dict[TopicPartition, ReplicaSeen] = {}
        self.brokers_known: object = None
        """The metadata's brokers, an object that each UpdateMetadata replaces."""
        self.announced_epochs: dict[tuple[str, int], int] = {}
        """The leader epoch in the broker's answers to clients, by partition."""
        self.saved: dict[TopicPartition, dict[Path, int]] = {}
        """The high watermarks at the start, in each log dir that has one of the partition."""
