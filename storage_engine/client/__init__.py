"""The Python clients: the public `Producer`, `Consumer` and `Admin`, and the parts that the
connector and the tools use to talk to brokers.

Every call ends within a documented deadline, in a result or in one typed error of one line. Only a
`Producer`, a `Consumer` in a group, a `ConsumerConnector` and each client for asyncio have a
thread. The names below are imported on first use, so that no process pays for what it does not use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage_engine.client.admin.active_producers import ActiveProducer
    from storage_engine.client.admin.admin_client import Admin, ClusterDescription
    from storage_engine.client.admin.groups import (
        GroupDescription,
        GroupMember,
        GroupPartition,
        ListedGroup,
    )
    from storage_engine.client.admin.log_dirs import (
        LogDir,
        ReplicaLog,
    )
    from storage_engine.client.admin.offset_resets import OffsetReset
    from storage_engine.client.admin.topics import ALL_BROKERS, ConfigEntry, NewTopic
    from storage_engine.client.admin.transaction_states import (
        ListedTransaction,
        TransactionDescription,
    )
    from storage_engine.client.asynchronous import AsyncAdmin, AsyncConsumer, AsyncProducer
    from storage_engine.client.cluster import EARLIEST, LATEST
    from storage_engine.client.consumer.consumer import Consumer
    from storage_engine.client.consumer.consumer_errors import (
        GroupError,
        NoOffsetError,
    )
    from storage_engine.client.consumer.consumer_record import ConsumerRecord
    from storage_engine.client.consumer.simple_consumer import Fetched, SimpleConsumer
    from storage_engine.client.fetching.bulk_reader import BulkReader, RecordsGoneError, Split
    from storage_engine.client.groups.group_errors import CommitRefusedError
    from storage_engine.client.groups.group_requests import GroupMetadata
    from storage_engine.client.process_metrics import (
        ClientCollector,
        client_metrics,
        export_to_opentelemetry,
    )
    from storage_engine.client.producer.producer import Producer
    from storage_engine.client.producer.producer_errors import (
        BufferFullError,
        ProducerClosedError,
        ProducerFencedError,
        RefusedRecordsError,
        SerializationError,
        TransactionFailedError,
        TriesExhaustedError,
    )
    from storage_engine.client.producer.record_future import RecordMetadata
    from storage_engine.client.topic_schemas import KnownSchema
    from storage_engine.client.turn import ClientInUseError
    from storage_engine.client.zookeeper_consumer.assignment import TopicFilter
    from storage_engine.client.zookeeper_consumer.connector import ConsumerConnector
    from storage_engine.client.zookeeper_consumer.message_stream import MessageStream
    from storage_engine.core.errors import (
        AuthenticationError,
        ConfigError,
        DeadlineExceededError,
        ErrorCode,
        HeadraceError,
        KafkaError,
        LogTruncatedError,
        OffsetOutOfRangeError,
    )
    from storage_engine.core.ids import TopicPartition
    from storage_engine.core.settings.config_source import ConfigSource

__all__ = [
    "ALL_BROKERS",
    "EARLIEST",
    "LATEST",
    "ActiveProducer",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AuthenticationError",
    "BufferFullError",
    "BulkReader",
    "ClientCollector",
    "ClientInUseError",
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
    "KnownSchema",
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
    "RefusedRecordsError",
    "ReplicaLog",
    "SerializationError",
    "SimpleConsumer",
    "Split",
    "TopicFilter",
    "TopicPartition",
    "TransactionDescription",
    "TransactionFailedError",
    "TriesExhaustedError",
    "client_metrics",
    "export_to_opentelemetry",
]

_MODULES = {
    "ALL_BROKERS": "client.admin.topics",
    "ActiveProducer": "client.admin.active_producers",
    "Admin": "client.admin.admin_client",
    "AsyncAdmin": "client.asynchronous",
    "AsyncConsumer": "client.asynchronous",
    "AsyncProducer": "client.asynchronous",
    "AuthenticationError": "core.errors",
    "BufferFullError": "client.producer.producer_errors",
    "BulkReader": "client.fetching.bulk_reader",
    "ClientCollector": "client.process_metrics",
    "ClientInUseError": "client.turn",
    "ClusterDescription": "client.admin.admin_client",
    "CommitRefusedError": "client.groups.group_errors",
    "ConfigEntry": "client.admin.topics",
    "ConfigError": "core.errors",
    "ConfigSource": "core.settings.config_source",
    "Consumer": "client.consumer.consumer",
    "ConsumerConnector": "client.zookeeper_consumer.connector",
    "ConsumerRecord": "client.consumer.consumer_record",
    "DeadlineExceededError": "core.errors",
    "EARLIEST": "client.cluster",
    "ErrorCode": "core.errors",
    "Fetched": "client.consumer.simple_consumer",
    "GroupDescription": "client.admin.groups",
    "GroupError": "client.consumer.consumer_errors",
    "GroupMember": "client.admin.groups",
    "GroupMetadata": "client.groups.group_requests",
    "GroupPartition": "client.admin.groups",
    "HeadraceError": "core.errors",
    "KafkaError": "core.errors",
    "KnownSchema": "client.topic_schemas",
    "LATEST": "client.cluster",
    "ListedGroup": "client.admin.groups",
    "ListedTransaction": "client.admin.transaction_states",
    "LogDir": "client.admin.log_dirs",
    "LogTruncatedError": "core.errors",
    "MessageStream": "client.zookeeper_consumer.message_stream",
    "NewTopic": "client.admin.topics",
    "NoOffsetError": "client.consumer.consumer_errors",
    "OffsetOutOfRangeError": "core.errors",
    "OffsetReset": "client.admin.offset_resets",
    "Producer": "client.producer.producer",
    "ProducerClosedError": "client.producer.producer_errors",
    "ProducerFencedError": "client.producer.producer_errors",
    "RecordMetadata": "client.producer.record_future",
    "RecordsGoneError": "client.fetching.bulk_reader",
    "RefusedRecordsError": "client.producer.producer_errors",
    "ReplicaLog": "client.admin.log_dirs",
    "SerializationError": "client.producer.producer_errors",
    "SimpleConsumer": "client.consumer.simple_consumer",
    "Split": "client.fetching.bulk_reader",
    "TopicFilter": "client.zookeeper_consumer.assignment",
    "TopicPartition": "core.ids",
    "TransactionDescription": "client.admin.transaction_states",
    "TransactionFailedError": "client.producer.producer_errors",
    "TriesExhaustedError": "client.producer.producer_errors",
    "client_metrics": "client.process_metrics",
    "export_to_opentelemetry": "client.process_metrics",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"storage_engine.{module}"), name)
