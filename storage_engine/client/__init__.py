"""The native client: the public `Producer` and `Consumer`, and what the connector and the tools use
to talk to brokers.

Rule: every call ends within a documented deadline, in a result or in one typed error of one line.
Without threads, but for the one of a `Producer`, of a `Consumer` in a group, and of a
`ConsumerConnector`. The names below
are imported on first use, so that no process pays for what it does not use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage_engine.client.consumer import Consumer
    from storage_engine.client.consumer_errors import (
        CommitRefusedError,
        GroupError,
        NoOffsetError,
    )
    from storage_engine.client.consumer_record import ConsumerRecord
    from storage_engine.client.group_requests import GroupMetadata
    from storage_engine.client.producer import Producer
    from storage_engine.client.producer_errors import (
        BufferFullError,
        ProducerClosedError,
        ProducerFencedError,
        SerializationError,
    )
    from storage_engine.client.record_groups import RecordMetadata
    from storage_engine.client.zookeeper_consumer.assignment import TopicFilter
    from storage_engine.client.zookeeper_consumer.connector import ConsumerConnector
    from storage_engine.client.zookeeper_consumer.message_stream import MessageStream
    from storage_engine.core.ids import TopicPartition

__all__ = [
    "BufferFullError",
    "CommitRefusedError",
    "Consumer",
    "ConsumerConnector",
    "ConsumerRecord",
    "GroupError",
    "GroupMetadata",
    "MessageStream",
    "NoOffsetError",
    "Producer",
    "ProducerClosedError",
    "ProducerFencedError",
    "RecordMetadata",
    "SerializationError",
    "TopicFilter",
    "TopicPartition",
]

_MODULES = {
    "BufferFullError": "client.producer_errors",
    "CommitRefusedError": "client.consumer_errors",
    "Consumer": "client.consumer",
    "ConsumerConnector": "client.zookeeper_consumer.connector",
    "ConsumerRecord": "client.consumer_record",
    "GroupError": "client.consumer_errors",
    "GroupMetadata": "client.group_requests",
    "MessageStream": "client.zookeeper_consumer.message_stream",
    "NoOffsetError": "client.consumer_errors",
    "Producer": "client.producer",
    "ProducerClosedError": "client.producer_errors",
    "ProducerFencedError": "client.producer_errors",
    "RecordMetadata": "client.record_groups",
    "SerializationError": "client.producer_errors",
    "TopicFilter": "client.zookeeper_consumer.assignment",
    "TopicPartition": "core.ids",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"storage_engine.{module}"), name)
