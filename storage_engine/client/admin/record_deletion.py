"""Deletes the oldest records of partitions.

The request is idempotent. Source: KIP-107.
"""

from collections.abc import Iterator, Mapping

from storage_engine.client.admin.requests import ask_leaders
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition, by_topic
from storage_engine.protocol.messages.delete_records import API as DELETE_RECORDS
from storage_engine.protocol.messages.delete_records import DeleteRecordsRequest

_Topic = DeleteRecordsRequest.DeleteRecordsTopic

ALL = -1
"""Given as an offset, it means the high watermark: all committed records are deleted."""


def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete all records below these offsets (-1: all committed records). Returns the first offset
    that each partition has now, on all its live replicas. OffsetOutOfRangeError for an offset
    beyond the high watermark."""

    def ask(
        broker_id: int, asked: list[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, int | KafkaError]]:
        partition = _Topic.DeleteRecordsPartition
        rows = by_topic({tp: before[tp] for tp in asked})
        topics = [
            _Topic(
                name=name, partitions=[partition(partition_index=n, offset=at) for n, at in each]
            )
            for name, each in rows.items()
        ]
        message = DeleteRecordsRequest(topics=topics, timeout_ms=cluster.request_timeout_ms // 2)
        for topic in cluster.request(broker_id, DELETE_RECORDS, message).topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                code = ErrorCode.of(row.error_code)
                if code is ErrorCode.NONE:
                    yield tp, row.low_watermark
                else:
                    yield tp, _error(tp, before.get(tp, ALL), code)

    return ask_leaders(cluster, "DeleteRecords", before, ask)


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
