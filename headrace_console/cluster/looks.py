"""The watcher's requests to brokers, and the reading of the answers. Nothing here waits.

The requests to a broker, by place: metadata without topics (which shows that it is up), high
watermarks, last stable offsets, log start offsets, log dirs; the last two not in each look.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from headrace_console.cluster.broker_lines import Given, Question
from headrace_console.cluster.snapshot import ShownDisk, Snapshot
from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.errors import ErrorCode, HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.describe_schemas import API as DESCRIBE_SCHEMAS
from storage_engine.protocol.apis.describe_schemas import DescribeSchemasRequest
from storage_engine.protocol.apis.list_offsets import API as LIST_OFFSETS
from storage_engine.protocol.apis.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.protocol.messages.describe_log_dirs import API as DESCRIBE_LOG_DIRS
from storage_engine.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

HIGH_AT, STABLE_AT, STARTS_AT = 1, 2, 3

ALL_METADATA: Question = (METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
_NO_TOPICS: Question = (METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False))

OWN_API: Question = (DESCRIBE_SCHEMAS, DescribeSchemasRequest(topics=[]))
"""A request that only brokers of Headrace answer."""

Led = Sequence[tuple[TopicPartition, int]]
"""Partitions with their leader epochs."""


def led_by(metadata: ClusterMetadata) -> dict[int, list[tuple[TopicPartition, int]]]:
    """Return the partitions that each live broker leads."""
    found: dict[int, list[tuple[TopicPartition, int]]] = {}
    for topic in metadata.topics.values():
        for number, partition in topic.partitions.items():
            if partition.leader in metadata.brokers:
                row = (TopicPartition(topic.topic, number), partition.leader_epoch)
                found.setdefault(partition.leader, []).append(row)
    return found


def questions(led: Led, *, starts: bool, dirs: bool) -> list[Question]:
    """Return the requests to a broker that leads these partitions."""
    asked: list[Question] = [
        _NO_TOPICS,
        (LIST_OFFSETS, _offsets_request(led, LATEST_TIMESTAMP, 0)),
        (LIST_OFFSETS, _offsets_request(led, LATEST_TIMESTAMP, 1)),
    ]
    if starts:
        asked.append((LIST_OFFSETS, _offsets_request(led, EARLIEST_TIMESTAMP, 0)))
    if dirs:
        asked.append((DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None)))
    return asked


def _offsets_request(led: Led, timestamp: int, isolation_level: int) -> ListOffsetsRequest:
    rows = [ListOffsetsPartition(tp.topic, tp.partition, timestamp, epoch) for tp, epoch in led]
    return ListOffsetsRequest(rows, isolation_level=isolation_level)


def offsets(given: Mapping[int, Given], place: int) -> dict[TopicPartition, int]:
    """Return the offsets in the answers at that place; errors are left out."""
    return {
        TopicPartition(row.topic, row.partition): row.offset
        for answers in given.values()
        if not isinstance(answers[place], HeadraceError)
        for row in answers[place].partitions
        if not row.error_code and row.offset >= 0
    }


def partition_sizes(
    metadata: ClusterMetadata, replicas: Mapping[int, Mapping[TopicPartition, int]]
) -> dict[TopicPartition, int]:
    """Return the bytes of each partition as its leader has them; where the leader has not answered,
    those of the largest replica. `replicas`: the sizes by broker."""
    found: dict[TopicPartition, int] = {}
    for topic in metadata.topics.values():
        for number, partition in topic.partitions.items():
            tp = TopicPartition(topic.topic, number)
            sizes = {broker: each[tp] for broker, each in replicas.items() if tp in each}
            if sizes:
                found[tp] = sizes.get(partition.leader, max(sizes.values()))
    return found


def log_dirs(
    answer: DescribeLogDirsResponse | HeadraceError,
) -> tuple[tuple[ShownDisk, ...], dict[TopicPartition, int]] | None:
    """Return a broker's log dirs, and the size of each replica; None if the answer is an error."""
    if isinstance(answer, HeadraceError) or answer.error_code:
        return None
    disks = []
    sizes: dict[TopicPartition, int] = {}
    for log_dir in answer.results:
        total = 0
        for topic in log_dir.topics:
            for row in topic.partitions:
                total += row.partition_size
                if not row.is_future_key:
                    sizes[TopicPartition(topic.name, row.partition_index)] = row.partition_size
        code = ErrorCode.of(log_dir.error_code)
        disks.append(
            ShownDisk(
                path=log_dir.log_dir,
                total_bytes=_known(log_dir.total_bytes),
                free_bytes=_known(log_dir.usable_bytes),
                log_bytes=total,
                error=None if code is ErrorCode.NONE else code.meaning,
            )
        )
    return tuple(disks), sizes


def with_reserves(
    disks: Mapping[int, tuple[ShownDisk, ...]],
    reserves: Mapping[int, int],
    metadata: ClusterMetadata,
) -> dict[int, tuple[ShownDisk, ...]]:
    """Return the disks of live brokers, with the free space that each broker reserves."""
    return {
        broker: tuple(
            replace(each, reserve_bytes=reserves.get(broker, 0)) for each in disks[broker]
        )
        for broker in metadata.brokers
        if broker in disks
    }


def _known(number: int) -> int | None:
    return None if number < 0 else number


def gone(metadata: ClusterMetadata, seen_ms: Mapping[int, int]) -> dict[int, int]:
    """Return missing brokers, seen before or with replicas, and when last seen; 0: never."""
    assigned = {
        replica
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
        for replica in partition.replicas
    }
    missing: Iterable[int] = (assigned | seen_ms.keys()) - metadata.brokers.keys()
    return {broker: seen_ms.get(broker, 0) for broker in missing}


def nobody_answers(before: Snapshot, why: str) -> Snapshot:
    """Return the last snapshot with all brokers silent. Its time stays: its data are that old."""
    silent = dict.fromkeys(before.metadata.brokers, why)
    return replace(
        before,
        silent=silent,
        unanswered=((None, "how the cluster is", why),),
    )
