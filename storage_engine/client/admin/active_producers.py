"""Describes the producers that partitions' leaders remember, to find a transaction that hangs.

Source: KIP-664.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from storage_engine.client.admin.requests import ask_leaders
from storage_engine.client.asking import error_from
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition, numbers_by_topic
from storage_engine.protocol.messages.describe_producers import API as DESCRIBE_PRODUCERS
from storage_engine.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    producer_id: int
    epoch: int
    last_sequence: int | None
    """None when the leader remembers only ends of transactions of this producer epoch."""
    last_timestamp_ms: int | None
    """The timestamp of the producer's last batch."""
    coordinator_epoch: int | None
    """The epoch of the coordinator that wrote the producer's last marker."""
    transaction_start_offset: int | None
    """The first offset of the transaction that is open in this partition."""


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    """The idempotent producers that the partitions' leaders remember, by producer id: where a
    transaction hangs, its first offset is among them. KafkaError UNKNOWN_TOPIC_OR_PARTITION where
    there is no such partition."""

    def ask(
        broker_id: int, asked: list[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, list[ActiveProducer] | KafkaError]]:
        request = DescribeProducersRequest.TopicRequest
        message = DescribeProducersRequest(
            topics=[
                request(name=name, partition_indexes=numbers)
                for name, numbers in numbers_by_topic(asked).items()
            ]
        )
        for topic in cluster.request(broker_id, DESCRIBE_PRODUCERS, message).topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                text = row.error_message or ErrorCode.of(row.error_code).name
                rows = sorted(row.active_producers, key=lambda each: each.producer_id)
                error = error_from(row.error_code, text, what=f"producers of {tp}")
                yield tp, error or [_producer(each) for each in rows]

    return ask_leaders(cluster, "DescribeProducers", partitions, ask)


def _producer(
    row: DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState,
) -> ActiveProducer:
    return ActiveProducer(
        producer_id=row.producer_id,
        epoch=row.producer_epoch,
        last_sequence=_known(row.last_sequence),
        last_timestamp_ms=_known(row.last_timestamp),
        coordinator_epoch=_known(row.coordinator_epoch),
        transaction_start_offset=_known(row.current_txn_start_offset),
    )


def _known(number: int) -> int | None:
    return number if number >= 0 else None
