"""Columns of topics as columns of Delta."""

import pyarrow as pa
import pytest

from headrace_lake.protocol.columns import growth, opaque_shape, typed_shape
from headrace_lake.protocol.stops import StopKind, TableStoppedError
from headrace_lake.tests.lake_tables import schema_of_types
from storage_engine.core.typed.ddl import parse_type
from storage_engine.core.typed.topic_schema import ColumnSpec, new_schema

PLACE = ["_topic", "_partition", "_offset", "_timestamp"]


def as_table(shape):
    return [(each.name, each.delta_type, each.nullable) for each in shape.columns]


@pytest.mark.parametrize(
    ("ddl", "delta", "arrow"),
    [
        ("BOOLEAN", "boolean", pa.bool_()),
        ("TINYINT", "byte", pa.int8()),
        ("SMALLINT", "short", pa.int16()),
        ("INT", "integer", pa.int32()),
        ("BIGINT", "long", pa.int64()),
        ("FLOAT", "float", pa.float32()),
        ("DOUBLE", "double", pa.float64()),
        ("DECIMAL(38,4)", "decimal(38,4)", pa.decimal128(38, 4)),
        ("STRING", "string", pa.string()),
        ("BINARY", "binary", pa.binary()),
        ("DATE", "date", pa.date32()),
        ("TIMESTAMP", "timestamp", pa.timestamp("us", tz="UTC")),
        ("TIMESTAMP_NTZ", "timestamp_ntz", pa.timestamp("us")),
        ("INTERVAL DAY TO SECOND", "long", pa.int64()),
        (
            "ARRAY<INTERVAL DAY TO SECOND NOT NULL>",
            {"type": "array", "elementType": "long", "containsNull": False},
            pa.list_(pa.field("element", pa.int64(), nullable=False)),
        ),
        (
            "MAP<STRING, INT NOT NULL>",
            {
                "type": "map",
                "keyType": "string",
                "valueType": "integer",
                "valueContainsNull": False,
            },
            pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
        ),
        (
            "STRUCT<a: INT NOT NULL>",
            {
                "type": "struct",
                "fields": [{"name": "a", "type": "integer", "nullable": False, "metadata": {}}],
            },
            pa.struct([pa.field("a", pa.int32(), nullable=False)]),
        ),
    ],
)
def test_each_type_has_its_type_in_delta_and_in_files(ddl, delta, arrow):
    shape = typed_shape("t", schema_of_types({"c": ddl}))
    assert shape.columns[0].delta_type == delta
    assert shape.row_schema.field("c").type == arrow


def test_columns_are_not_null_as_in_the_topic_but_for_those_beside_a_key():
    columns = [
        ColumnSpec("id", parse_type("BIGINT"), nullable=False),
        ColumnSpec("must", parse_type("INT"), nullable=False),
        ColumnSpec("may", parse_type("INT")),
    ]
    without = typed_shape("t", new_schema(columns))
    keyed = typed_shape("t", new_schema(columns, ["id"]))
    assert [each.nullable for each in without.columns[:3]] == [False, False, True]
    assert [each.nullable for each in keyed.columns[:3]] == [False, True, True]
    assert [each.name for each in without.columns[3:]] == PLACE
    assert [each.name for each in keyed.columns[3:]] == [*PLACE, "_deleted"]


def test_a_topic_without_a_schema_has_kafka_s_columns():
    names = [each.name for each in opaque_shape("t").columns]
    assert names == ["key", "value", "headers", "timestamp", "timestampType", *PLACE]


@pytest.mark.parametrize(
    ("types", "partition_by", "problem"),
    [
        ({"a b": "INT"}, [], "such a name as 'a b'"),
        ({"s": "STRUCT<`x,y`: INT>"}, [], "such a name as 'x,y'"),
        ({"a": "INT"}, ["b"], "no column 'b'"),
        ({"a": "DOUBLE"}, ["a"], "can't be divided by 'a'"),
        ({"a": "INT"}, ["a", "a"], "once"),
    ],
)
def test_what_delta_can_t_have_is_named_in_one_line(types, partition_by, problem):
    with pytest.raises(TableStoppedError, match=problem) as stopped:
        typed_shape("t", schema_of_types(types), partition_by)
    assert stopped.value.kind is StopKind.COLUMNS
    assert "\n" not in str(stopped.value)


def test_a_table_grows_by_nullable_columns():
    old = typed_shape("t", schema_of_types({"a": "INT"}))
    new = typed_shape("t", schema_of_types({"a": "INT", "b": "DATE"}))
    assert [each.name for each in growth("t", as_table(old), new).added] == ["b"]
    assert not growth("t", as_table(new), old).is_needed


@pytest.mark.parametrize(
    ("new", "problem"),
    [
        ({"a": "BIGINT"}, "column 'a' is integer, and the topic's is long"),
        ({"A": "INT"}, "differs from the topic's in case"),
    ],
)
def test_a_table_can_t_become_anything(new, problem):
    old = typed_shape("t", schema_of_types({"a": "INT"}))
    with pytest.raises(TableStoppedError, match=problem):
        growth("t", as_table(old), typed_shape("t", schema_of_types(new)))


def test_a_column_that_is_not_null_can_t_be_added():
    old = typed_shape("t", schema_of_types({"a": "INT"}))
    with pytest.raises(TableStoppedError, match="lacks the column 'b'"):
        growth(
            "t", as_table(old), typed_shape("t", schema_of_types({"a": "INT", "b": "INT"}, ("b",)))
        )
