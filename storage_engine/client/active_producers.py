"""The producers that partitions' leaders remember, for those who look for a transaction that hangs.

Rule: each partition's leader is asked, and the next one when it has changed. Source: KIP-664.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from storage_engine.client.admin import api_of
from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline

_DESCRIBE_PRODUCERS = 61


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    producer_id: int
    epoch: int
    last_sequence: int | None
    """None: nothing but ends of transactions is remembered of it under this epoch."""
    last_timestamp_ms: int | None
    """Of its last batch, as the batch has it."""
    coordinator_epoch: int | None
    """Of who wrote its last marker."""
    transaction_start_offset: int | None
    """Of the transaction that is open in this partition."""


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    """By producer id. KafkaError UNKNOWN_TOPIC_OR_PARTITION for one that does not exist."""
    wanted = dict.fromkeys(partitions)
    retry = Retry("DescribeProducers", Deadline.after(cluster.deadline_ms))
    found: dict[TopicPartition, list[ActiveProducer]] = {}
    while left := [tp for tp in wanted if tp not in found]:
        error: HeadraceError | None = None
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in left:
            by_leader.setdefault(cluster.leader(tp).broker_id, []).append(tp)
        for broker_id, asked in by_leader.items():
            try:
                _ask(cluster, broker_id, asked, found)
            except (DeadlineExceededError, KafkaError) as failure:
                error = failure
        if error is not None:
            retry.pause(error)
            cluster.refresh({tp.topic for tp in left})
    return {tp: found[tp] for tp in wanted}


def _ask(
    cluster: Cluster,
    broker_id: int,
    partitions: Iterable[TopicPartition],
    found: dict[TopicPartition, list[ActiveProducer]],
) -> None:
    """Adds to `found`; raises the first error among the rest."""
    spec, request = api_of(_DESCRIBE_PRODUCERS)
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    message = request(
        topics=[
            request.TopicRequest(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ]
    )
    failure: KafkaError | None = None
    for topic in cluster.request(broker_id, spec, message).topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            code = ErrorCode.of(row.error_code)
            if code is ErrorCode.NONE:
                rows = sorted(row.active_producers, key=lambda each: each.producer_id)
                found[tp] = [_producer(each) for each in rows]
            elif failure is None:
                failure = KafkaError(f"producers of {tp}: {row.error_message or code.name}", code)
    if failure is not None:
        raise failure


def _producer(row: Any) -> ActiveProducer:
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
