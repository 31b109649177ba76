"""The open logs of a broker."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_dir import BrokerLogDir
from storage_engine.log.partition_log import PartitionLog


class OpenLogs:
    """Invariant: `logs` and `dir_of` have the same keys, and each log has its folder in its log
    dir."""

    __slots__ = ("counts", "dir_of", "logs")

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.dir_of: dict[TopicPartition, BrokerLogDir] = {}
        self.counts: Counter[Path] = Counter()
        """The number of logs in each log dir; kept, since each new log asks for it."""

    def put(self, log: PartitionLog, log_dir: BrokerLogDir) -> None:
        """Replaces the log of the partition if there is one."""
        before = self.dir_of.get(log.topic_partition)
        if before is not None:
            self.counts[before.path] -= 1
        self.logs[log.topic_partition] = log
        self.dir_of[log.topic_partition] = log_dir
        self.counts[log_dir.path] += 1

    def remove(self, topic_partition: TopicPartition) -> PartitionLog:
        self.counts[self.dir_of.pop(topic_partition).path] -= 1
        return self.logs.pop(topic_partition)

    def of_dir(self, log_dir: BrokerLogDir) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        for topic_partition, log in self.logs.items():
            if self.dir_of[topic_partition] is log_dir:
                yield topic_partition, log
