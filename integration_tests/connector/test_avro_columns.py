"""Records in Avro are read and written as columns, beside confluent-kafka's serializers, which
judge both ways. Spark's own part is in `integration_tests/avro/test_spark_avro.py`."""

import datetime as dt
import decimal
import json

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connector.errors import ConnectorError
from connector.registries import close_registries
from integration_tests.connector.in_one_process import Read, write
from integration_tests.support.cluster_support import create_topic
from integration_tests.support.spark_support import consume, produce
from storage_engine.tests.client.registry.small_registry import small_registry

UTC = dt.UTC
DECIMAL = {"logicalType": "decimal", "precision": 20, "scale": 4}
NAMED = {
    "type": "record",
    "name": "Ride",
    "namespace": "com.example",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "fare", "type": ["null", {"type": "bytes", **DECIMAL}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["CAR", "BIKE"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 3}},
        {"name": "place", "type": ["null", {"type": "record", "name": "Place", "fields": [
            {"name": "x", "type": "double"}, {"name": "note", "type": ["string", "null"]}]}]},
        {"name": "either", "type": ["null", "int", "string"]},
    ],
}  # fmt: skip


def _ride(number):
    return {
        "id": number,
        "name": None if number % 3 == 0 else f"n{number}",
        "fare": None if number % 5 == 0 else decimal.Decimal(number * 12_345_678_901).scaleb(-4),
        "at": dt.datetime(2026, 1, 1, tzinfo=UTC) + dt.timedelta(milliseconds=number),
        "day": dt.date(2026, 1, 1) + dt.timedelta(days=number),
        "tags": ["t"] * (number % 4),
        "counts": {"a": number, "b": None},
        "kind": "CAR" if number % 2 else "BIKE",
        "mark": bytes([number % 256] * 3),
        "place": None
        if number % 4 == 0
        else {"x": number / 2, "note": "ü" if number % 2 else None},
        "either": [None, number, f"s{number}"][number % 3],
    }


def _as_spark_has_it(ride):
    either = ride["either"]
    return ride | {
        "counts": list(ride["counts"].items()),
        "either": None
        if either is None
        else {
            "member0": either if isinstance(either, int) else None,
            "member1": either if isinstance(either, str) else None,
        },
    }


@pytest.fixture(scope="module")
def registry():
    with small_registry(first_id=1000) as running:
        yield running
    close_registries()


@pytest.fixture
def avro(registry):
    return {"schema.registry.url": registry.url, "value.format": "avro"}


class _Serializers:
    """confluent-kafka's, as another program has them."""

    def __init__(self, registry, topic, schema):
        self._topic = topic
        self._value = AvroSerializer(
            SchemaRegistryClient({"url": registry.url}), json.dumps(schema)
        )

    def value(self, record):
        return self._value(record, SerializationContext(self._topic, MessageField.VALUE))


def _deserialized(registry, servers, topic):
    client = SchemaRegistryClient({"url": registry.url})
    deserializer = AvroDeserializer(client)
    context = SerializationContext(topic, MessageField.VALUE)
    return [
        None if each.value() is None else deserializer(each.value(), context)
        for each in consume(servers, topic)
    ]


def _produce(registry, servers, topic, schema, records):
    serialize = _Serializers(registry, topic, schema)
    produce(servers, topic, [{"value": serialize.value(each)} for each in records])


def _rows(read):
    return read.table().to_pylist()


def test_what_others_write_is_read_as_columns(spark_cluster, servers, topic, registry, avro):
    create_topic(spark_cluster, topic, partitions=1)
    rides = [_ride(number) for number in range(300)]
    _produce(registry, servers, topic, NAMED, rides)
    read = Read(servers, subscribe=topic, **avro)
    assert _rows(read) == [_as_spark_has_it(each) for each in rides]


def test_what_is_written_as_columns_is_read_by_others(
    spark_cluster, servers, topic, registry, avro
):
    target = f"{topic}-copy"
    for name in (topic, target):
        create_topic(spark_cluster, name, partitions=1)
    rides = [_ride(number) for number in range(300)]
    _produce(registry, servers, topic, NAMED, rides)
    registry.register(f"{target}-value", json.dumps(NAMED))
    table = Read(servers, subscribe=topic, **avro).table()
    write(servers, table, topic=target, **avro, **{"use.latest.version": "true"})
    assert _deserialized(registry, servers, target) == rides
    assert _rows(Read(servers, subscribe=target, **avro)) == table.to_pylist()


def test_columns_are_registered_and_keys_and_tombstones_written(
    spark_cluster, servers, topic, registry, avro
):
    create_topic(spark_cluster, topic, partitions=1)
    keyed = {**avro, "key.format": "avro"}
    table = pa.table(
        {
            "_key": pa.array([{"id": 1}, {"id": 2}], pa.struct([("id", pa.int64())])),
            "id": pa.array([1, 2], pa.int64()),
            "fare": pa.array([1.5, None], pa.float64()),
            "_deleted": [False, True],
        }
    )
    write(servers, table, topic=topic, **keyed)
    read = Read(servers, subscribe=topic, columns="_key,id,fare,_deleted,_offset", **keyed)
    assert [tuple(row.values())[:4] for row in _rows(read)] == [
        ({"id": 1}, 1, 1.5, False),
        ({"id": 2}, None, None, True),
    ]
    assert _deserialized(registry, servers, topic) == [{"id": 1, "fare": 1.5}, None]


def test_a_row_that_does_not_fit_leaves_nothing_behind(
    spark_cluster, servers, topic, registry, avro
):
    create_topic(spark_cluster, topic, partitions=1)
    schema = {**NAMED, "fields": NAMED["fields"][:1]}
    registry.register(f"{topic}-value", json.dumps(schema))
    rows = pa.table({"id": pa.array([1, None], pa.int64())})
    with pytest.raises(ConnectorError, match=r"\[ROW_DOES_NOT_FIT\] the column 'id'"):
        write(servers, rows, topic=topic, **avro, **{"use.latest.version": "true"})
    write(servers, rows.slice(0, 1), topic=topic, **avro, **{"use.latest.version": "true"})
    assert _rows(Read(servers, subscribe=topic, **avro)) == [{"id": 1}]
