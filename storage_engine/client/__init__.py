"""The native client: the public `Producer`, `Consumer` and `Admin`, and what the connector and the
tools use to talk to brokers.

Rule: every call ends within a documented deadline, in a result or in one typed error of one line.
Without threads, but for the one of a `Producer`, of a `Consumer` in a group, of a
`ConsumerConnector`, and in which clients for asyncio are called. The names below are imported on
first use, so that no process pays for what it does not use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage_engine.client.active_producers import ActiveProducer
    from storage_engine.client.admin import ALL_BROKERS, ConfigEntry, NewTopic
    from storage_engine.client.admin_client import Admin, ClusterDescription
    from storage_engine.client.asynchronous import AsyncAdmin, AsyncConsumer, AsyncProducer
    from storage_engine.client.bulk_reader import BulkReader, RecordsGoneError, Split
    from storage_engine.client.cluster import EARLIEST, LATEST
    from storage_engine.client.consumer import Consumer
    from storage_engine.client.consumer_errors import (
        CommitRefusedError,
        GroupError,
        NoOffsetError,
    )
    from storage_engine.client.consumer_record import ConsumerRecord
    from storage_engine.client.group_requests import GroupMetadata
    from storage_engine.client.groups import (
        GroupDescription,
        GroupMember,
        GroupPartition,
        ListedGroup,
    )
    from storage_engine.client.log_dirs import (
        LogDir,
        ReplicaLog,
    )
    from storage_engine.client.offset_resets import OffsetReset
    from storage_engine.client.producer import Producer
    from storage_engine.client.producer_errors import (
        BufferFullError,
        ProducerClosedError,
        ProducerFencedError,
        SerializationError,
        TransactionFailedError,
        TriesExhaustedError,
    )
    from storage_engine.client.record_groups import RecordMetadata
    from storage_engine.client.simple_consumer import Fetched, SimpleConsumer
    from storage_engine.client.transaction_states import (
        ListedTransaction,
        TransactionDescription,
    )
    from storage_engine.client.zookeeper_consumer.assignment import TopicFilter
    from storage_engine.client.zookeeper_consumer.connector import ConsumerConnector
    from storage_engine.client.zookeeper_consumer.message_stream import MessageStream
    from storage_engine.core.config_source import ConfigSource
    from storage_engine.core.errors import (
        ConfigError,
        DeadlineExceededError,
        ErrorCode,
        HeadraceError,
        KafkaError,
        LogTruncatedError,
        OffsetOutOfRangeError,
    )
    from storage_engine.core.ids import TopicPartition

__all__ = [
    "ALL_BROKERS",
    "EARLIEST",
    "LATEST",
    "ActiveProducer",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "BufferFullError",
    "BulkReader",
    "ClusterDescription",
    "CommitRefusedError",
    "ConfigEntry",
    "ConfigError",
    "ConfigSource",
    "Consumer",
    "ConsumerConnector",
    "ConsumerRecord",
    "DeadlineExceededError",
    "ErrorCode",
    "Fetched",
    "GroupDescription",
    "GroupError",
    "GroupMember",
    "GroupMetadata",
    "GroupPartition",
    "HeadraceError",
    "KafkaError",
    "ListedGroup",
    "ListedTransaction",
    "LogDir",
    "LogTruncatedError",
    "MessageStream",
    "NewTopic",
    "NoOffsetError",
    "OffsetOutOfRangeError",
    "OffsetReset",
    "Producer",
    "ProducerClosedError",
    "ProducerFencedError",
    "RecordMetadata",
    "RecordsGoneError",
    "ReplicaLog",
    "SerializationError",
    "SimpleConsumer",
    "Split",
    "TopicFilter",
    "TopicPartition",
    "TransactionDescription",
    "TransactionFailedError",
    "TriesExhaustedError",
]

_MODULES = {
    "ALL_BROKERS": "client.admin",
    "ActiveProducer": "client.active_producers",
    "Admin": "client.admin_client",
    "AsyncAdmin": "client.asynchronous",
    "AsyncConsumer": "client.asynchronous",
    "AsyncProducer": "client.asynchronous",
    "BufferFullError": "client.producer_errors",
    "BulkReader": "client.bulk_reader",
    "ClusterDescription": "client.admin_client",
    "CommitRefusedError": "client.consumer_errors",
    "ConfigEntry": "client.admin",
    "ConfigError": "core.errors",
    "ConfigSource": "core.config_source",
    "Consumer": "client.consumer",
    "ConsumerConnector": "client.zookeeper_consumer.connector",
    "ConsumerRecord": "client.consumer_record",
    "DeadlineExceededError": "core.errors",
    "EARLIEST": "client.cluster",
    "ErrorCode": "core.errors",
    "Fetched": "client.simple_consumer",
    "GroupDescription": "client.groups",
    "GroupError": "client.consumer_errors",
    "GroupMember": "client.groups",
    "GroupMetadata": "client.group_requests",
    "GroupPartition": "client.groups",
    "HeadraceError": "core.errors",
    "KafkaError": "core.errors",
    "LATEST": "client.cluster",
    "ListedGroup": "client.groups",
    "ListedTransaction": "client.transaction_states",
    "LogDir": "client.log_dirs",
    "LogTruncatedError": "core.errors",
    "MessageStream": "client.zookeeper_consumer.message_stream",
    "NewTopic": "client.admin",
    "NoOffsetError": "client.consumer_errors",
    "OffsetOutOfRangeError": "core.errors",
    "OffsetReset": "client.offset_resets",
    "Producer": "client.producer",
    "ProducerClosedError": "client.producer_errors",
    "ProducerFencedError": "client.producer_errors",
    "RecordMetadata": "client.record_groups",
    "RecordsGoneError": "client.bulk_reader",
    "ReplicaLog": "client.log_dirs",
    "SerializationError": "client.producer_errors",
    "SimpleConsumer": "client.simple_consumer",
    "Split": "client.bulk_reader",
    "TopicFilter": "client.zookeeper_consumer.assignment",
    "TopicPartition": "core.ids",
    "TransactionDescription": "client.transaction_states",
    "TransactionFailedError": "client.producer_errors",
    "TriesExhaustedError": "client.producer_errors",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"storage_engine.{module}"), name)
