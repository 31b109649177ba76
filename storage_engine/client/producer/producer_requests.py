"""Requests of producers: for a producer id, from any broker, and to enlist partitions in a
transaction. Source: KIP-98.
"""

from collections.abc import Iterable

from storage_engine.client.asking import error_from
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.produce_queue import ProducerIdentity
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition, numbers_by_topic
from storage_engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from storage_engine.protocol.messages.init_producer_id import API as INIT_PRODUCER_ID
from storage_engine.protocol.messages.init_producer_id import InitProducerIdRequest

ENLIST_VERSION = 3
"""The newest of AddPartitionsToTxn for clients."""


def new_producer(cluster: Cluster) -> ProducerIdentity:
    """Requests a producer id that nobody has had; retries until the cluster's deadline."""
    answer = cluster.ask_any(
        INIT_PRODUCER_ID,
        InitProducerIdRequest(),
        error_of=lambda answer: error_from(answer.error_code, what="no producer id"),
    )
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


def enlist_request(
    transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in numbers_by_topic(partitions).items()
        ],
    )


def enlisted_codes(answer: AddPartitionsToTxnResponse) -> list[int]:
    """The error code of each partition that has one of its own. When one partition fails, the
    others are not attempted."""
    codes = [
        row.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    ]
    return [code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED]


def worst(codes: Iterable[int]) -> ErrorCode:
    """A final error rather than a retriable one, which others only wait for."""
    failed = [ErrorCode.of(code) for code in codes if code]
    failed.sort(key=lambda code: code.retriable)
    return failed[0] if failed else ErrorCode.NONE
