"""Confluent's Avro serializers on a typed topic, and the registry that they ask, as a process."""

import contextlib
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    SchemaRegistryError,
    record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from integration_tests.registry.registries import RegistryUnderFire
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import CLIENT_TIMEOUT_MS, create_topic, wait_until
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.foreign_format import FORMAT_SETTING
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, TopicSchema, new_schema

SCHEMAS = "_schemas"
RIDES = new_schema(parse_ddl("id BIGINT NOT NULL, fare DOUBLE, tag STRING, at TIMESTAMP"), ["id"])
AT = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)


def row(number: int) -> dict[str, Any]:
    return {"id": number, "fare": number + 0.5, "tag": f"tag {number}", "at": AT}


@contextlib.contextmanager
def registry_process(cluster: Any, folder: Path) -> Iterator[RegistryUnderFire]:
    """The registry whose topic the brokers read."""
    registry = RegistryUnderFire(cluster, folder, SCHEMAS, has_typed_topics=True)
    try:
        registry.start()
        yield registry
    finally:
        registry.kill()


def create_avro(cluster: Any, topic: str, schema: TopicSchema, **config: str) -> None:
    settings = {
        SCHEMA_SETTING: schema.to_json(),
        FORMAT_SETTING: "avro",
        "min.insync.replicas": "2",
        **config,
    }
    create_topic(cluster, topic, config=settings)


def wait_for_subject(registry: RegistryUnderFire, topic: str, version: int = 1) -> int:
    """The id of the version, once the registry has made it by itself."""
    client = SchemaRegistryClient({"url": registry.url})
    found: list[int] = []

    def is_there() -> bool:
        try:
            schema_id = client.get_version(f"{topic}-value", version).schema_id
        except SchemaRegistryError:
            return False
        if schema_id is not None:
            found.append(schema_id)
        return bool(found)

    wait_until(is_there, f"version {version} of {topic}-value")
    return found[0]


class AvroValues:
    """The values of one topic, by Confluent's serializers."""

    def __init__(self, registry: RegistryUnderFire, topic: str, schema: str | None = None) -> None:
        """`schema`: the producer's own, registered under its record's name; None: the latest of the
        topic's subject."""
        client = SchemaRegistryClient({"url": registry.url})
        self._context = SerializationContext(topic, MessageField.VALUE)
        own: Mapping[str, Any] = {"subject.name.strategy": record_subject_name_strategy}
        latest = {"auto.register.schemas": False, "use.latest.version": True}
        self._write = AvroSerializer(client, schema, conf=dict(latest if schema is None else own))
        self._read = AvroDeserializer(client)

    def written(self, value: Any) -> bytes:
        found = self._write(value, self._context)
        assert isinstance(found, bytes)
        return found

    def read(self, data: bytes | None) -> Any:
        return None if data is None else self._read(data, self._context)


def framed(schema_id: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + body


def producer(cluster: Any, **more: Any) -> Producer:
    return Producer(
        {
            **settings_for(cluster.bootstrap_servers),
            "log_level": 0,
            "linger.ms": 5,
            "enable.idempotence": True,
            "message.timeout.ms": 120_000,
            "request.timeout.ms": CLIENT_TIMEOUT_MS,
            "socket.timeout.ms": CLIENT_TIMEOUT_MS,
            **more,
        }
    )


def consumed(cluster: Any, topic: str, count: int) -> list[Any]:
    """The first records, as librdkafka gives them, through all errors that it retries."""
    consumer = Consumer(
        {
            **settings_for(cluster.bootstrap_servers),
            "group.id": "unused",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Any] = []

        def poll() -> bool:
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None, message.error()
                found.append(message)
            return len(found) >= count

        wait_until(poll, f"{count} rows of {topic}")
        return found
    finally:
        consumer.close()


class Outcomes:
    """What became of each record."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.failures: list[Any] = []

    def note(self, error: Any, message: Any) -> None:
        if error is None:
            self.offsets.append(message.offset())
        else:
            self.failures.append(error)
