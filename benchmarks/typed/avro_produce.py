"""The cost of records of Avro that become columns, beside the same records in an opaque topic.

librdkafka sends rides of 20 mixed columns (483 bytes as JSON) behind the five bytes of Confluent's
framing, into an opaque topic and into a typed one with headrace.foreign.format=avro, by turns; both
have four partitions and three replicas. The figure is the processor time of all three brokers.
"""

import json
import statistics
import time
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.arguments import scratch
from benchmarks.beside_kafka.clusters import our_brokers
from benchmarks.beside_kafka.processor_time import check_proc, seconds_of
from benchmarks.beside_kafka.topics import REPLICAS
from benchmarks.clients.librdkafka import check_installed
from benchmarks.support.brokers import Brokers
from benchmarks.support.rounds import rounded
from benchmarks.typed.columns import ddl, make_rows
from benchmarks.typed.topics import PARTITIONS
from storage_engine.client import Admin, NewTopic, Producer
from storage_engine.core.schemas.registry.records import KeyType, RecordKey, StoredSchema
from storage_engine.core.schemas.texts import Schema, SchemaType
from storage_engine.core.typed.avro_text import avro_text
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.foreign_format import FORMAT_SETTING
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

MOST_RATIO = 3.0
RECORDS = 200_000
LINGER_MS = 50
_ID = 1
_SCHEMAS = "_schemas"
_DISTINCT = 10_000

COLUMNS = ("topic", "brokers, us/record", "records/s", "of opaque", "goal")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceCost:
    """The cost of one topic; medians over the rounds."""

    topic: str
    brokers_us: float
    rate: float
    ratio: float | None
    """To the opaque topic's; None for itself."""
    goal: float | None


def produce_ratio(
    directory: Path | None, records: int, rounds: int, *, linger_ms: int = LINGER_MS
) -> list[ProduceCost]:
    """Return the cost of the opaque topic, and of the typed one."""
    check_proc()
    check_installed()
    with scratch(directory) as folder, our_brokers(folder) as brokers:
        values = _prepared(brokers.bootstrap_servers)
        names = ("opaque", "typed, from Avro")
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for turn in range(rounds + 1):
            for name in names:
                measured = _round(brokers, name.partition(",")[0], values, records, linger_ms)
                if turn:
                    found[name].append(measured)
                    report_line(f"{name}: {measured[0]:.2f} us of brokers a record")
    costs = {name: statistics.median(each[0] for each in found[name]) for name in names}
    rates = {name: statistics.median(each[1] for each in found[name]) for name in names}
    opaque = costs[names[0]]
    return [
        ProduceCost(
            topic=name,
            brokers_us=rounded(costs[name]),
            rate=rounded(rates[name]),
            ratio=None if name == names[0] else round(costs[name] / opaque, 2),
            goal=None if name == names[0] else MOST_RATIO,
        )
        for name in names
    ]


def _prepared(servers: str) -> list[bytes]:
    """Create the topics, and the schema as a registry has it; return values in its framing."""
    schema = new_schema(parse_ddl(ddl()), [])
    text = avro_text(schema, schema.latest, "typed")
    typed = NewTopic(
        name="typed",
        partitions=PARTITIONS,
        replication_factor=REPLICAS,
        configs={FORMAT_SETTING: "avro"},
    )
    opaque = NewTopic(name="opaque", partitions=PARTITIONS, replication_factor=REPLICAS)
    compacted = {"cleanup.policy": "compact"}
    schemas = NewTopic(name=_SCHEMAS, partitions=1, replication_factor=REPLICAS, configs=compacted)
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([typed], schema=schema)
        admin.create_topics([opaque, schemas])
    stored = StoredSchema(
        subject="typed-value", version=1, id=_ID, schema=Schema(SchemaType.AVRO, text), foreign={}
    )
    key = RecordKey(KeyType.SCHEMA, stored.subject, stored.version)
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send(_SCHEMAS, stored.encode(), key=key.encode()).result()
    return _values(text)


def _values(text: str) -> list[bytes]:
    import fastavro

    parsed = fastavro.parse_schema(json.loads(text))
    found = []
    for row in make_rows(0, _DISTINCT).to_pylist():
        target = BytesIO(b"\0" + _ID.to_bytes(4))
        target.seek(5)
        fastavro.schemaless_writer(target, parsed, row)
        found.append(target.getvalue())
    return found


def _round(
    brokers: Brokers, topic: str, values: list[bytes], records: int, linger_ms: int
) -> tuple[float, float]:
    """Return the brokers' microseconds for a record, and records a second."""
    from confluent_kafka import Producer as ConfluentProducer

    producer = ConfluentProducer(
        {
            "bootstrap.servers": brokers.bootstrap_servers,
            "acks": "all",
            "linger.ms": linger_ms,
            "compression.type": "lz4",
            "log_level": "2",
        }
    )
    failures: list[str] = []

    def note(error: "KafkaError | None", _message: "Message") -> None:
        if error is not None:
            failures.append(str(error))

    before, started = seconds_of(brokers.pids), time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % len(values)], on_delivery=note)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(120)
    taken = time.perf_counter() - started
    if failures or left:
        first = failures[0] if failures else "not acknowledged"
        raise CommandError(f"{len(failures) + left} records were not taken: {first}")
    return (seconds_of(brokers.pids) - before) / records * 1e6, records / taken
