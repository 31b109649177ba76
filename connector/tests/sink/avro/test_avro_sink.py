"""The schema that rows are written in, and rows that fit none."""

import io
import json

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types

from connector.errors import ConnectorError, OptionError, RowError
from connector.options.sink_options import parse_sink_options
from connector.registries import close_registries
from connector.sink.avro.avro_rows import AvroEncoder
from connector.sink.avro.avro_sink import avro_sink
from storage_engine.tests.client.registry.small_registry import small_registry

RIDE = json.dumps({
    "type": "record", "name": "Ride", "namespace": "com.example", "fields": [
        {"name": "id", "type": "long"},
        {"name": "Fare", "type": ["null", "double"], "default": None},
    ]})  # fmt: skip


@pytest.fixture(autouse=True)
def registry():
    with small_registry(first_id=7) as running:
        yield running
    close_registries()


def _options(registry, **more):
    named = {name.replace("__", "."): text for name, text in more.items()}
    given = {
        "bootstrap.servers": "h:1",
        "topic": "t",
        "value.format": "avro",
        "schema.registry.url": registry.url,
    }
    return parse_sink_options(given | named)


def _sink(registry, ddl, **more):
    return avro_sink(_struct(ddl), _options(registry, **more))


KINDS = {
    "BIGINT": types.LongType(),
    "INT": types.IntegerType(),
    "DOUBLE": types.DoubleType(),
    "FLOAT": types.FloatType(),
    "STRING": types.StringType(),
    "BOOLEAN": types.BooleanType(),
    "TIMESTAMP": types.TimestampType(),
    "DECIMAL": types.DecimalType(9, 2),
}


def _struct(ddl):
    parts = [each.split() for each in ddl.split(",")]
    return types.StructType([types.StructField(name, KINDS[kind]) for name, kind in parts])


def _written(sink, **columns):
    """The rows of records that are handed on."""
    found = []

    def taken(rows):
        found.append(rows)
        return []

    AvroEncoder(sink, taken).route(pa.record_batch(columns))
    (rows,) = found
    return rows


def _decoded(text, value):
    assert value[0] == 0
    body = io.BytesIO(value[5:])
    record = fastavro.schemaless_reader(body, fastavro.parse_schema(json.loads(text)))
    assert body.read() == b""
    return int.from_bytes(value[1:5], "big"), record


def test_the_schema_follows_from_the_columns_and_is_registered(registry):
    sink = _sink(registry, "id BIGINT,name STRING,at TIMESTAMP,cost DECIMAL")
    (schema_id,) = registry.subjects["t-value"]
    assert schema_id == sink.value.schema_id == 7
    schema = json.loads(registry.by_id[7]["schema"])
    assert schema["name"] == "topLevelRecord"
    assert [(each["name"], each["type"][0], each["default"]) for each in schema["fields"]] == [
        (name, "null", None) for name in ("id", "name", "at", "cost")
    ]
    assert schema["fields"][3]["type"][1] == {
        "type": "fixed", "name": "fixed", "namespace": "topLevelRecord.cost", "size": 4,
        "logicalType": "decimal", "precision": 9, "scale": 2,
    }  # fmt: skip


def test_the_same_columns_are_the_same_schema(registry):
    first = _sink(registry, "id BIGINT,name STRING")
    assert _sink(registry, "id BIGINT,name STRING") == first
    assert len(registry.by_id) == 1


def test_rows_are_written_in_the_latest_version(registry):
    registry.register("t-value", RIDE)
    sink = _sink(registry, "ID INT,fare FLOAT", use__latest__version="true")
    rows = _written(sink, ID=pa.array([1], pa.int32()), fare=pa.array([2.5], pa.float32()))
    assert _decoded(RIDE, rows["value"][0].as_py()) == (7, {"id": 1, "Fare": 2.5})
    assert len(registry.by_id) == 1


def test_a_given_schema_or_version(registry):
    assert _sink(registry, "id BIGINT", value__schema=RIDE).value.schema_id == 7
    registry.register("t-value", '"int"')
    assert _sink(registry, "id BIGINT", value__schema__version="1").value.schema_id == 7


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("topic", "t-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "com.example.Ride"),
        ("topic-record", "t-com.example.Ride"),
    ],
)
def test_names_of_subjects(registry, strategy, subject):
    _sink(registry, "id BIGINT", value__schema=RIDE, value__subject__name__strategy=strategy)
    assert list(registry.subjects) == [subject]


def test_nothing_is_registered_where_that_is_not_wanted(registry):
    with pytest.raises(OptionError, match=r"\[NO_SCHEMA\] the subject 't-value' does not have"):
        _sink(registry, "id BIGINT", auto__register__schemas="false")
    assert registry.by_id == {}
    registered = _sink(registry, "id BIGINT")
    assert _sink(registry, "id BIGINT", auto__register__schemas="false") == registered


def test_a_schema_that_the_registry_refuses_is_one_line(registry):
    registry.failures = [409]
    with pytest.raises(ConnectorError, match=r"\[SCHEMA_REGISTRY\] .*HTTP 409, 409: as told"):
        _sink(registry, "id BIGINT")


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("id STRING", "the column 'id' is STRING, and in the schema of the topic 't' it is BIGINT"),
        ("id BIGINT,farre DOUBLE", "has no field 'farre'; did you mean 'Fare'?"),
        ("Fare DOUBLE", "the field 'id' in the schema of the topic 't' can't be null"),
        ("id BIGINT,_offset BIGINT", "'_offset' says where a row was read"),
        ("id BIGINT,_key INT", "the column '_key' must be binary or string, not int"),
        ("_key STRING", "the rows have no column for the value"),
        ("id BIGINT,ID BIGINT", "two columns to be written have the same name"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_one_line(registry, ddl, told):
    registry.register("t-value", RIDE)
    with pytest.raises(OptionError) as raised:
        _sink(registry, ddl, use__latest__version="true")
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_name_that_avro_does_not_have_is_refused(registry):
    with pytest.raises(OptionError, match="'total-fare' can't be a field of Avro"):
        _sink(registry, "total-fare DOUBLE")


def test_keys_headers_partitions_and_tombstones(registry):
    sink = _sink(
        registry, "id BIGINT,_key BIGINT,_partition INT,_deleted BOOLEAN", key__format="avro"
    )
    rows = _written(
        sink,
        id=[1, 2, None],
        _key=[5, 6, None],
        _partition=pa.array([0, None, 1], pa.int32()),
        _deleted=[False, True, None],
    )
    key_schema = registry.by_id[sink.key.schema_id]["schema"]
    assert registry.subjects["t-key"] == [sink.key.schema_id]
    assert json.loads(key_schema) == "long"
    assert [None if each is None else _decoded(key_schema, each)[1] for each in
            rows["key"].to_pylist()] == [5, 6, None]  # fmt: skip
    value_schema = registry.by_id[sink.value.schema_id]["schema"]
    first, second, third = rows["value"].to_pylist()
    assert second is None
    assert [_decoded(value_schema, each)[1] for each in (first, third)] == [{"id": 1}, {"id": None}]
    assert rows["partition"].to_pylist() == [0, None, 1]


def test_a_value_that_the_schema_does_not_hold_fails_the_row(registry):
    registry.register("t-value", RIDE)
    sink = _sink(registry, "id BIGINT", use__latest__version="true")
    with pytest.raises(RowError, match=r"\[ROW_DOES_NOT_FIT\] a row for the topic 't': field 'id'"):
        _written(sink, id=[1, None])
    assert [each.name for each in sink.required] == ["id"]


def test_a_schema_that_is_no_record_takes_the_column_value(registry):
    registry.register("t-value", '"string"')
    sink = _sink(registry, "value STRING", use__latest__version="true")
    rows = _written(sink, value=["a"])
    assert rows["value"].to_pylist() == [b"\0\0\0\0\x07\x02a"]
