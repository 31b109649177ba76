"""Describes the log dirs of brokers and the size of partitions on their leaders, and moves
replicas from one log dir to another.

A request is sent once and not retried: the caller wants an estimate, or to see a broker as it is.
Source: KIP-113, DescribeLogDirs, AlterReplicaLogDirs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from storage_engine.client.admin.requests import partitions_by_leader
from storage_engine.client.asking import error_from
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition, numbers_by_topic
from storage_engine.protocol.messages.alter_replica_log_dirs import API as ALTER_REPLICA_LOG_DIRS
from storage_engine.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from storage_engine.protocol.messages.describe_log_dirs import API as DESCRIBE_LOG_DIRS
from storage_engine.protocol.messages.describe_log_dirs import DescribeLogDirsRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLog:
    """A replica in a log dir."""

    tp: TopicPartition
    size_bytes: int
    offset_lag: int
    """Records behind the high watermark."""
    is_future: bool
    """Whether it is a copy that will replace the replica in another log dir."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """A log dir of a broker."""

    path: str
    error: ErrorCode
    """KAFKA_STORAGE_ERROR where the disk has failed."""
    replicas: tuple[ReplicaLog, ...]


def describe_log_dirs(
    cluster: Cluster, broker_id: int, partitions: Iterable[TopicPartition] | None = None
) -> tuple[LogDir, ...]:
    """The log dirs of one broker, with what they hold of these partitions (None: of all).
    KafkaError or DeadlineExceededError where it does not answer."""
    row = DescribeLogDirsRequest.DescribableLogDirTopic
    topics = None
    if partitions is not None:
        wanted = numbers_by_topic(partitions)
        topics = [row(topic=name, partitions=numbers) for name, numbers in wanted.items()]
    message = DescribeLogDirsRequest(topics=topics)
    answer = cluster.request(broker_id, DESCRIBE_LOG_DIRS, message)
    what = f"the log dirs of broker {broker_id} can't be described"
    if (error := error_from(answer.error_code, what=what)) is not None:
        raise error
    return tuple(
        LogDir(
            path=log_dir.log_dir,
            error=ErrorCode.of(log_dir.error_code),
            replicas=tuple(
                ReplicaLog(
                    tp=TopicPartition(topic.name, row.partition_index),
                    size_bytes=row.partition_size,
                    offset_lag=row.offset_lag,
                    is_future=row.is_future_key,
                )
                for topic in log_dir.topics
                for row in topic.partitions
            ),
        )
        for log_dir in answer.results
    )


def alter_replica_log_dirs(
    cluster: Cluster, broker_id: int, targets: Mapping[TopicPartition, str]
) -> dict[TopicPartition, ErrorCode]:
    """Begin to move replicas of one broker to other log dirs, which are named as in its `log.dirs`.
    Returns the error of each move that did not begin. REPLICA_NOT_AVAILABLE: the broker has no such
    replica yet, and will make it in that log dir. `describe_log_dirs` shows how far the other moves
    are. KafkaError or DeadlineExceededError where the broker does not answer."""
    log_dir = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    by_path: dict[str, list[TopicPartition]] = {}
    for tp, path in targets.items():
        by_path.setdefault(path, []).append(tp)
    message = AlterReplicaLogDirsRequest(
        dirs=[
            log_dir(
                path=path,
                topics=[
                    log_dir.AlterReplicaLogDirTopic(name=name, partitions=numbers)
                    for name, numbers in numbers_by_topic(partitions).items()
                ],
            )
            for path, partitions in by_path.items()
        ]
    )
    answer = cluster.request(broker_id, ALTER_REPLICA_LOG_DIRS, message)
    return {
        TopicPartition(topic.topic_name, row.partition_index): ErrorCode.of(row.error_code)
        for topic in answer.results
        for row in topic.partitions
        if row.error_code
    }


def sizes_on_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Bytes of each log as they lie on the disk, compressed where producers compress. Errors as
    `describe_log_dirs`."""
    sizes: dict[TopicPartition, int] = {}
    for broker_id, asked in partitions_by_leader(cluster, partitions).items():
        for log_dir in describe_log_dirs(cluster, broker_id, asked):
            for log in log_dir.replicas:
                if not log.is_future:
                    sizes[log.tp] = sizes.get(log.tp, 0) + log.size_bytes
    return sizes
