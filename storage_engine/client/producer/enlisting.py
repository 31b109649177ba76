"""Sends AddPartitionsToTxn, which enlists partitions in a producer's transaction.

Source: KIP-98; version 3, the newest for clients.
"""

from collections.abc import Iterable
from typing import Any

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.registry import api_of
from storage_engine.protocol.apis.spec import AnyApi

ENLIST_VERSION = 3

_ADD_PARTITIONS = 24


def enlist_request(
    transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
) -> tuple[AnyApi, Any]:
    """The API and its message."""
    spec, request = api_of(_ADD_PARTITIONS)
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return spec, request(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            request.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ],
    )


def enlisted_codes(answer: Any) -> list[int]:
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
