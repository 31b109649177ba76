"""The Python clients: the public `Producer`, `Consumer` and `Admin`, and the parts that the
connector and the tools use to talk to brokers.

Every call ends within a documented deadline, in a result or in one typed error of one line. Only a
`Producer`, a `Consumer` in a group, a `ConsumerConnector` and each client for asyncio have a
thread. The names below are imported on first use, so that no process pays for what it does not use.
"""

# ruff: noqa: I001 - each name once, beside its module

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage_engine.client.admin.transaction_states import ActiveProducer as ActiveProducer
    from storage_engine.client.admin.admin_client import (
        Admin as Admin,
        ClusterDescription as ClusterDescription,
    )
    from storage_engine.client.admin.group_descriptions import GroupMember as GroupMember
    from storage_engine.client.admin.groups import (
        GroupDescription as GroupDescription,
        GroupPartition as GroupPartition,
        ListedGroup as ListedGroup,
    )
    from storage_engine.client.admin.log_dirs import LogDir as LogDir, ReplicaLog as ReplicaLog
    from storage_engine.client.admin.offset_resets import OffsetReset as OffsetReset
    from storage_engine.client.admin.topics import (
        ALL_BROKERS as ALL_BROKERS,
        ConfigEntry as ConfigEntry,
        NewTopic as NewTopic,
    )
    from storage_engine.client.admin.transaction_states import (
        ListedTransaction as ListedTransaction,
        TransactionDescription as TransactionDescription,
    )
    from storage_engine.client.asynchronous import (
        AsyncAdmin as AsyncAdmin,
        AsyncConsumer as AsyncConsumer,
        AsyncProducer as AsyncProducer,
    )
    from storage_engine.client.cluster import EARLIEST as EARLIEST, LATEST as LATEST
    from storage_engine.client.consumer.consumer import Consumer as Consumer
    from storage_engine.client.consumer.consumer_errors import (
        GroupError as GroupError,
        NoOffsetError as NoOffsetError,
    )
    from storage_engine.client.consumer.consumer_record import ConsumerRecord as ConsumerRecord
    from storage_engine.client.consumer.simple_consumer import (
        Fetched as Fetched,
        SimpleConsumer as SimpleConsumer,
    )
    from storage_engine.client.fetching.bulk_reader import (
        BulkReader as BulkReader,
        RecordsGoneError as RecordsGoneError,
        Split as Split,
    )
    from storage_engine.client.groups.group_requests import CommitRefusedError as CommitRefusedError
    from storage_engine.client.groups.group_requests import GroupMetadata as GroupMetadata
    from storage_engine.client.process_metrics import (
        ClientCollector as ClientCollector,
        client_metrics as client_metrics,
        export_to_opentelemetry as export_to_opentelemetry,
    )
    from storage_engine.client.producer.producer import Producer as Producer
    from storage_engine.client.producer.producer_errors import (
        BufferFullError as BufferFullError,
        ProducerClosedError as ProducerClosedError,
        ProducerFencedError as ProducerFencedError,
        RefusedRecordsError as RefusedRecordsError,
        SerializationError as SerializationError,
        TransactionFailedError as TransactionFailedError,
        TriesExhaustedError as TriesExhaustedError,
    )
    from storage_engine.client.producer.record_future import RecordMetadata as RecordMetadata
    from storage_engine.client.topic_schemas import KnownSchema as KnownSchema
    from storage_engine.client.turn import ClientInUseError as ClientInUseError
    from storage_engine.client.zookeeper_consumer.assignment import TopicFilter as TopicFilter
    from storage_engine.client.zookeeper_consumer.connector import (
        ConsumerConnector as ConsumerConnector,
    )
    from storage_engine.client.zookeeper_consumer.message_stream import (
        MessageStream as MessageStream,
    )
    from storage_engine.core.errors import (
        AuthenticationError as AuthenticationError,
        ConfigError as ConfigError,
        DeadlineExceededError as DeadlineExceededError,
        ErrorCode as ErrorCode,
        HeadraceError as HeadraceError,
        KafkaError as KafkaError,
        LogTruncatedError as LogTruncatedError,
        OffsetOutOfRangeError as OffsetOutOfRangeError,
    )
    from storage_engine.core.ids import TopicPartition as TopicPartition
    from storage_engine.core.settings.config_source import ConfigSource as ConfigSource

_NAMES = {
    "client.admin.admin_client": "Admin ClusterDescription",
    "client.admin.group_descriptions": "GroupMember",
    "client.admin.groups": "GroupDescription GroupPartition ListedGroup",
    "client.admin.log_dirs": "LogDir ReplicaLog",
    "client.admin.offset_resets": "OffsetReset",
    "client.admin.topics": "ALL_BROKERS ConfigEntry NewTopic",
    "client.admin.transaction_states": "ActiveProducer ListedTransaction TransactionDescription",
    "client.asynchronous": "AsyncAdmin AsyncConsumer AsyncProducer",
    "client.cluster": "EARLIEST LATEST",
    "client.consumer.consumer": "Consumer",
    "client.consumer.consumer_errors": "GroupError NoOffsetError",
    "client.consumer.consumer_record": "ConsumerRecord",
    "client.consumer.simple_consumer": "Fetched SimpleConsumer",
    "client.fetching.bulk_reader": "BulkReader RecordsGoneError Split",
    "client.groups.group_requests": "CommitRefusedError GroupMetadata",
    "client.process_metrics": "ClientCollector client_metrics export_to_opentelemetry",
    "client.producer.producer": "Producer",
    "client.producer.producer_errors": "BufferFullError ProducerClosedError ProducerFencedError "
    "RefusedRecordsError SerializationError TransactionFailedError TriesExhaustedError",
    "client.producer.record_future": "RecordMetadata",
    "client.topic_schemas": "KnownSchema",
    "client.turn": "ClientInUseError",
    "client.zookeeper_consumer.assignment": "TopicFilter",
    "client.zookeeper_consumer.connector": "ConsumerConnector",
    "client.zookeeper_consumer.message_stream": "MessageStream",
    "core.errors": "AuthenticationError ConfigError DeadlineExceededError ErrorCode HeadraceError "
    "KafkaError LogTruncatedError OffsetOutOfRangeError",
    "core.ids": "TopicPartition",
    "core.settings.config_source": "ConfigSource",
}
"""The public names of each module."""

_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"storage_engine.{module}"), name)
