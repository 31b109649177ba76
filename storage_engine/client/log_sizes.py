"""How many bytes partitions hold on their leaders.

Rule: asked once, not retried: who asks wants an estimate. Source: KIP-113, DescribeLogDirs.
"""

from collections.abc import Iterable
from typing import Any

from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.registry import spec_for

_DESCRIBE_LOG_DIRS = 35


def sizes_on_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Bytes of each log as they lie on the disk, compressed where producers compress. KafkaError or
    DeadlineExceededError where a leader does not tell."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        by_leader.setdefault(cluster.leader(tp).broker_id, []).append(tp)
    sizes: dict[TopicPartition, int] = {}
    for broker_id, asked in by_leader.items():
        answer = cluster.request(broker_id, spec_for(_DESCRIBE_LOG_DIRS), _request(asked))
        code = ErrorCode.of(getattr(answer, "error_code", None) or 0)
        if code is not ErrorCode.NONE:
            raise KafkaError(f"the sizes of logs: {code.meaning}", code)
        for folder in answer.results:
            for topic in folder.topics:
                for row in topic.partitions:
                    if not row.is_future_key:
                        tp = TopicPartition(topic.name, row.partition_index)
                        sizes[tp] = sizes.get(tp, 0) + row.partition_size
    return sizes


def _request(partitions: Iterable[TopicPartition]) -> Any:
    # Now, since most clients never need it.
    from storage_engine.protocol.apis.describe_log_dirs import DescribeLogDirsRequest

    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    row = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(
        topics=[row(topic=name, partitions=numbers) for name, numbers in by_topic.items()]
    )
