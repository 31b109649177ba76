"""Deletes the oldest records of partitions.

Rule: each partition's leader is asked, and the next one when it has changed; asking twice does no
harm. Source: KIP-107.
"""

from collections.abc import Mapping
from typing import Any

from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    OffsetOutOfRangeError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.registry import spec_for

ALL = -1
"""As an offset: everything that is committed."""

_DELETE_RECORDS = 21


def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete all records below the offsets; where each partition begins now, on all its live
    replicas. OffsetOutOfRangeError beyond the high watermark."""
    retry = Retry("DeleteRecords", Deadline.after(cluster.deadline_ms))
    done: dict[TopicPartition, int] = {}
    while True:
        left = {tp: offset for tp, offset in before.items() if tp not in done}
        if not left:
            return done
        error: HeadraceError | None = None
        for broker_id, offsets in _by_leader(cluster, left).items():
            try:
                _ask(cluster, broker_id, offsets, done)
            except (DeadlineExceededError, KafkaError) as failure:
                error = failure
        if error is not None:
            retry.pause(error)
            cluster.refresh({tp.topic for tp in left})


def _by_leader(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[int, dict[TopicPartition, int]]:
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp, offset in before.items():
        by_leader.setdefault(cluster.leader(tp).broker_id, {})[tp] = offset
    return by_leader


def _ask(
    cluster: Cluster,
    broker_id: int,
    before: Mapping[TopicPartition, int],
    done: dict[TopicPartition, int],
) -> None:
    """Adds to `done`; raises the first error among the rest."""
    answer = cluster.request(broker_id, spec_for(_DELETE_RECORDS), _request(cluster, before))
    failure: KafkaError | None = None
    for topic in answer.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            code = ErrorCode.of(row.error_code)
            if code is ErrorCode.NONE:
                done[tp] = row.low_watermark
            elif failure is None:
                failure = _error(tp, before.get(tp, ALL), code)
    if failure is not None:
        raise failure


def _request(cluster: Cluster, before: Mapping[TopicPartition, int]) -> Any:
    # Now, since most clients never need it.
    from storage_engine.protocol.apis.delete_records import DeleteRecordsRequest

    topic_row = DeleteRecordsRequest.DeleteRecordsTopic
    topics: dict[str, list[Any]] = {}
    for tp, offset in before.items():
        row = topic_row.DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
        topics.setdefault(tp.topic, []).append(row)
    return DeleteRecordsRequest(
        topics=[topic_row(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=cluster.request_timeout_ms // 2,
    )


def _error(tp: TopicPartition, offset: int, code: ErrorCode) -> KafkaError:
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return OffsetOutOfRangeError(
            f"{tp} has no committed records up to offset {offset}: nothing is deleted"
        )
    if code is ErrorCode.POLICY_VIOLATION:
        return KafkaError(
            f"records of {tp} can't be deleted by offset: its cleanup.policy is without 'delete'",
            code,
        )
    return KafkaError(f"records of {tp}: {code.meaning}", code)
