"""Changing and reading settings as Kafka's clients do."""

from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from storage_engine.tools.local.local_cluster import LocalCluster

TIMEOUT_S = 60


def alter(client: AdminClient, kind: str, name: str, **settings: str | None) -> None:
    """Set settings, with underscores for dots; None takes one away. KafkaException when refused."""
    changes = [
        ConfigEntry(
            key.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.SET
            if value is not None
            else AlterConfigOpType.DELETE,
        )
        for key, value in settings.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=changes)
    # Also while the next controller is being elected.
    futures = client.incremental_alter_configs([resource], request_timeout=TIMEOUT_S)
    futures[resource].result(TIMEOUT_S)


def describe(client: AdminClient, kind: str, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    described: dict[str, Any] = client.describe_configs([resource])[resource].result(TIMEOUT_S)
    return described


def produce(servers: str, topic: str, values: list[bytes], partition: int = 0) -> list[str | None]:
    """What became of each: None when acknowledged, else the error's name. A batch per value."""
    outcomes: list[str | None] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "message.timeout.ms": 30_000,
            "log_level": 0,
        }
    )
    for value in values:
        producer.produce(
            topic,
            value,
            partition=partition,
            on_delivery=lambda error, _m: outcomes.append(error.name() if error else None),
        )
    assert producer.flush(60) == 0
    return outcomes


def folder_of(cluster: LocalCluster, broker_id: int, topic: str, partition: int = 0) -> Path:
    entry = next(b for b in cluster.state.brokers if b.id == broker_id)
    return cluster.directory / entry.data_dir / f"{topic}-{partition}"


def segments(folder: Path) -> list[int]:
    """Base offsets."""
    return sorted(int(path.stem) for path in folder.glob("*.log"))
