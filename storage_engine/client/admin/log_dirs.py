"""Describes the log dirs of brokers and the size of partitions on their leaders, and moves
replicas from one log dir to another.

A request is sent once and not retried: the caller wants an estimate, or to see a broker as it is.
Source: KIP-113, DescribeLogDirs, AlterReplicaLogDirs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.registry import spec_for
from storage_engine.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

_ALTER_REPLICA_LOG_DIRS = 34
_DESCRIBE_LOG_DIRS = 35


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
    answer = cluster.request(broker_id, spec_for(_DESCRIBE_LOG_DIRS), _request(partitions))
    code = ErrorCode.of(getattr(answer, "error_code", None) or 0)
    if code is not ErrorCode.NONE:
        raise KafkaError(
            f"the log dirs of broker {broker_id} can't be described: {code.meaning}", code
        )
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
    """Moves replicas of one broker to these of its log dirs. Returns the replicas whose move
    did not begin, with the reason: REPLICA_NOT_AVAILABLE for a replica that the broker does not
    have yet, which will be created in that directory. Raises KafkaError or DeadlineExceededError
    when the broker does not answer."""
    # Now, since most clients never need it.
    from storage_engine.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest

    log_dir = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    by_path: dict[str, dict[str, list[int]]] = {}
    for tp, path in targets.items():
        by_path.setdefault(path, {}).setdefault(tp.topic, []).append(tp.partition)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            log_dir(
                path=path,
                topics=[
                    log_dir.AlterReplicaLogDirTopic(name=name, partitions=numbers)
                    for name, numbers in topics.items()
                ],
            )
            for path, topics in by_path.items()
        ]
    )
    answer = cluster.request(broker_id, spec_for(_ALTER_REPLICA_LOG_DIRS), request)
    codes = {
        TopicPartition(topic.topic_name, row.partition_index): ErrorCode.of(row.error_code)
        for topic in answer.results
        for row in topic.partitions
    }
    return {tp: code for tp, code in codes.items() if code is not ErrorCode.NONE}


def sizes_on_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Bytes of each log as they lie on the disk, compressed where producers compress. Errors as
    `describe_log_dirs`."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        by_leader.setdefault(cluster.leader(tp).broker_id, []).append(tp)
    sizes: dict[TopicPartition, int] = {}
    for broker_id, asked in by_leader.items():
        for log_dir in describe_log_dirs(cluster, broker_id, asked):
            for log in log_dir.replicas:
                if not log.is_future:
                    sizes[log.tp] = sizes.get(log.tp, 0) + log.size_bytes
    return sizes


def _request(partitions: Iterable[TopicPartition] | None) -> DescribeLogDirsRequest:
    if partitions is None:
        return DescribeLogDirsRequest(topics=None)
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    row = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(
        topics=[row(topic=name, partitions=numbers) for name, numbers in by_topic.items()]
    )
