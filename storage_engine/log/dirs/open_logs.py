"""The open logs of a broker."""

from collections.abc import Iterator

from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_dir import BrokerLogDir
from storage_engine.log.partition_log import PartitionLog


class OpenLogs:
    """Invariant: both dicts have the same keys, and each log has its folder in its log dir."""

    __slots__ = ("dir_of", "logs")

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.dir_of: dict[TopicPartition, BrokerLogDir] = {}

    def put(self, log: PartitionLog, log_dir: BrokerLogDir) -> None:
        """Replaces the log of the partition if there is one."""
        self.logs[log.topic_partition] = log
        self.dir_of[log.topic_partition] = log_dir

    def remove(self, topic_partition: TopicPartition) -> PartitionLog:
        del self.dir_of[topic_partition]
        return self.logs.pop(topic_partition)

    def of_dir(self, log_dir: BrokerLogDir) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        for topic_partition, log in self.logs.items():
            if self.dir_of[topic_partition] is log_dir:
                yield topic_partition, log
