"""The largest requests of KIP-848, for which kafka-python has no schemas."""

from collections.abc import Callable, Sequence
from uuid import UUID

from storage_engine.protocol.apis.consumer_group_describe import (
    API as DESCRIBE,
)
from storage_engine.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
)
from storage_engine.protocol.apis.consumer_group_heartbeat import (
    API as HEARTBEAT,
)
from storage_engine.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    OwnedPartitions,
)
from storage_engine.protocol.apis.spec import AnyApi
from storage_engine.protocol.apis.struct_codec import Record, write_struct
from storage_engine.protocol.apis.wire import Writer

Body = Callable[[Sequence[int]], bytes]
"""Encodes the body of a request whose long list has an item for each of these numbers."""


def _heartbeat(
    *, topics: Sequence[str] | None = None, owned: Sequence[OwnedPartitions] | None = None
) -> bytes:
    request = ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id="member",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=topics,
        topic_partitions=owned,
    )
    return _encoded(HEARTBEAT, request)


def _describe(group_ids: Sequence[str]) -> bytes:
    request = ConsumerGroupDescribeRequest(group_ids=group_ids)
    return _encoded(DESCRIBE, request)


def _encoded(spec: AnyApi, request: Record) -> bytes:
    writer = Writer(flexible=spec.is_flexible(spec.max_version))
    write_struct(writer, spec.max_version, request)
    return bytes(writer.data)


def _names(prefix: str, numbers: Sequence[int]) -> list[str]:
    return [f"{prefix}{number}" for number in numbers]


CONSUMER_GROUP_REQUESTS: dict[int, dict[str, Body]] = {
    HEARTBEAT.key: {
        "subscribed_topic_names": lambda numbers: _heartbeat(topics=_names("many", numbers)),
        "topic_partitions": lambda numbers: _heartbeat(
            topics=["many"],
            owned=[OwnedPartitions(topic_id=UUID(int=each), partitions=[0]) for each in numbers],
        ),
        "topic_partitions.partitions": lambda numbers: _heartbeat(
            topics=["many"], owned=[OwnedPartitions(topic_id=UUID(int=0), partitions=numbers)]
        ),
    },
    DESCRIBE.key: {"group_ids": lambda numbers: _describe(_names("group", numbers))},
}
"""By API key and by the path of the long list; all in the newest version."""
