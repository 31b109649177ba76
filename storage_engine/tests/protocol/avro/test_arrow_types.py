"""Columns have the types that Spark's from_avro gives them."""

import pyarrow as pa
import pytest

from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.protocol.avro.arrow_types import arrow_schema
from storage_engine.tests.protocol.avro.avro_samples import parsed

UTC = pa.timestamp("us", tz="UTC")
LOCAL = pa.timestamp("us")


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


def record(**fields):
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


_FIXED = {"type": "fixed", "name": "F", "size": 12}
_INNER = {"type": "record", "name": "S", "fields": [{"name": "a", "type": "int"}]}


@pytest.mark.parametrize(
    ("avro_type", "expected"),
    [
        ("null", pa.null()),
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("bytes", pa.binary()),
        ("string", pa.string()),
        (_FIXED, pa.binary()),
        ({**_FIXED, "logicalType": "duration"}, pa.binary()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        (logical("string", "uuid"), pa.string()),
        (logical("int", "date"), pa.date32()),
        (logical("int", "time-millis"), pa.int32()),
        (logical("long", "time-micros"), pa.int64()),
        (logical("long", "timestamp-millis"), UTC),
        (logical("long", "timestamp-micros"), UTC),
        (logical("long", "timestamp-nanos"), pa.int64()),
        (logical("long", "local-timestamp-millis"), LOCAL),
        (logical("long", "local-timestamp-micros"), LOCAL),
        (logical("bytes", "decimal", precision=9, scale=2), pa.decimal128(9, 2)),
        ({**_FIXED, "logicalType": "decimal", "precision": 20}, pa.decimal128(20, 0)),
        (logical("int", "of-nobody"), pa.int32()),
        (_INNER, pa.struct([("a", pa.int32())])),
        ({"type": "array", "items": "int"}, pa.list_(pa.field("element", pa.int32()))),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32())),
        (["null", "int"], pa.int32()),
        (["int", "null"], pa.int32()),
        (["string"], pa.string()),
        (["null"], pa.null()),
        (["int", "long"], pa.int64()),
        (["null", "long", "int"], pa.int64()),
        (["double", "float"], pa.float64()),
        (["int", "double"], pa.struct([("member0", pa.int32()), ("member1", pa.float64())])),
        (
            ["string", "null", _INNER],
            pa.struct([("member0", pa.string()), ("member1", pa.struct([("a", pa.int32())]))]),
        ),
    ],
)  # fmt: skip
def test_a_column_has_the_type_of_spark(avro_type, expected):
    assert arrow_schema(parsed(record(f=avro_type))).field("f").type == expected


def test_a_schema_that_is_no_record_is_one_column():
    assert arrow_schema(parsed("string")) == pa.schema([("value", pa.string())])


def test_a_name_stands_for_its_type():
    schema = record(a=_INNER, b="S", c=["null", "S"])
    types = arrow_schema(parsed(schema)).types
    assert types == [types[0]] * 3


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (record(next=["null", "R"]), "'R' contains itself: no column can have such a depth"),
        (
            record(
                f={"type": "array", "items": {**_INNER, "fields": [{"name": "r", "type": "R"}]}}
            ),
            "'R' contains itself: no column can have such a depth",
        ),
        (
            record(f=logical("bytes", "decimal", precision=39, scale=1)),
            "a decimal of 39 digits: columns have at most 38",
        ),
    ],
)
def test_what_can_be_no_column_is_refused_in_one_line(schema, reason):
    with pytest.raises(InvalidSchemaError) as refused:
        arrow_schema(parsed(schema))
    assert str(refused.value) == reason


def test_names_can_not_stand_for_more_columns_than_there_may_be():
    """Each of 30 records has the one before it twice: a billion columns in 2 KB."""
    inner: dict[str, object] = {"type": "record", "name": "R0", "fields": []}
    for number in range(1, 30):
        fields: list[object] = [
            {"name": "a", "type": inner},
            {"name": "b", "type": f"R{number - 1}"},
        ]
        inner = {"type": "record", "name": f"R{number}", "fields": fields}
    with pytest.raises(InvalidSchemaError, match="more than 10000 columns"):
        arrow_schema(parsed(inner))
