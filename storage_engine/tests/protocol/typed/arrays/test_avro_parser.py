"""Which types of a writer become which columns, and why others do not."""

import datetime as dt
import json
from decimal import Decimal

import pytest

from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.avro.decode import UndecodableRecordError
from storage_engine.protocol.avro.record_bytes import Bodies
from storage_engine.protocol.avro.value_room import ValueRoom
from storage_engine.protocol.typed.arrays.avro_parser import AvroParser
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.tests.protocol.avro.avro_samples import bodies, encoded, parsed

UTC = dt.UTC
AT = dt.datetime(2026, 1, 31, 12, 0, 0, 1000)


def logical(kind, logical_type, **more):
    return {"type": kind, "logicalType": logical_type, **more}


def decimal(precision, scale, size=None):
    of = {"precision": precision, "scale": scale}
    if size is None:
        return logical("bytes", "decimal", **of)
    return logical("fixed", "decimal", name="D", size=size, **of)


def record(**fields):
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def inner(name, **fields):
    return record(**fields) | {"name": name}


def parser(writer, ddl):
    return AvroParser(parsed(writer), new_schema(parse_ddl(ddl)).latest.visible)


def columns(writer, ddl, *values):
    """The rows of values in the form of `avro_samples.values`."""
    tree = parsed(writer)
    data = bodies([encoded(tree, value) for value in values])
    schema = new_schema(parse_ddl(ddl))
    arrays = AvroParser(tree, schema.latest.visible).columns(Bodies.of(data), ValueRoom(1000))
    for column, array in zip(schema.latest.visible, arrays, strict=True):
        assert array.type == arrow_type(column.type)
        array.validate(full=True)
    return [list(row) for row in zip(*(each.to_pylist() for each in arrays), strict=True)]


MICROS = int((AT - dt.datetime(1970, 1, 1)) / dt.timedelta(microseconds=1))
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "BB"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}


@pytest.mark.parametrize(
    ("kind", "ddl", "value", "read"),
    [
        ("boolean", "BOOLEAN", True, True),
        ("int", "TINYINT", -128, -128),
        ("int", "SMALLINT", 32767, 32767),
        ("int", "BIGINT", 5, 5),
        ("int", "FLOAT", 5, 5.0),
        ("long", "DOUBLE", 5, 5.0),
        ("float", "DOUBLE", 0.5, 0.5),
        ("string", "BINARY", "é", b"\xc3\xa9"),
        ("bytes", "STRING", b"\xc3\xa9", "é"),
        (ENUM, "STRING", "BB", "BB"),
        (logical("string", "uuid"), "STRING", "u", "u"),
        (FIXED, "BINARY", b"ab", b"ab"),
        (decimal(5, 2), "DECIMAL(9,2)", b"\xfb", Decimal("-0.05")),
        (decimal(5, 2, 4), "DECIMAL(5,2)", b"\0\0\0\7", Decimal("0.07")),
        (logical("int", "date"), "DATE", 1, dt.date(1970, 1, 2)),
        (logical("int", "date"), "INT", 1, 1),
        (logical("long", "timestamp-millis"), "TIMESTAMP", MICROS // 1000,
         AT.replace(tzinfo=UTC)),
        (logical("long", "timestamp-micros"), "TIMESTAMP", MICROS, AT.replace(tzinfo=UTC)),
        ("long", "TIMESTAMP", MICROS, AT.replace(tzinfo=UTC)),
        (logical("long", "local-timestamp-millis"), "TIMESTAMP_NTZ", MICROS // 1000, AT),
        ("long", "INTERVAL DAY TO SECOND", 1, dt.timedelta(microseconds=1)),
        ("int", "INTERVAL DAY TO SECOND", 1, dt.timedelta(microseconds=1)),
        ("null", "STRUCT<x: INT>", None, None),
        (["null"], "BIGINT", (0, None), None),
        (["int", "null"], "SMALLINT", (0, 3), 3),
        (["int", "null"], "SMALLINT", (1, None), None),
        (["int", "null", "long"], "BIGINT", (0, 3), 3),
        (["int", "null", "long"], "BIGINT", (2, 2**40), 2**40),
        (["float", "double"], "DOUBLE", (0, 0.5), 0.5),
        ({"type": "array", "items": "int"}, "ARRAY<TINYINT>", [1, 2], [1, 2]),
        ({"type": "array", "items": ["null", "int"]}, "ARRAY<BIGINT>", [(1, 2), (0, None)],
         [2, None]),
        ({"type": "map", "values": "int"}, "MAP<STRING, DOUBLE>", {"k": 1}, [("k", 1.0)]),
        ({"type": "array", "items": inner("I", value="long", key="int")}, "MAP<INT, BIGINT>",
         [{"value": 5, "key": 2}], [(2, 5)]),
        ({"type": "array", "items": inner("I", key="int")}, "MAP<INT, BIGINT>",
         [{"key": 2}], [(2, None)]),
        (inner("I", y="int", x="int"), "STRUCT<x: BIGINT, z: STRUCT<a: INT>, y: INT>",
         {"y": 1, "x": 2}, {"x": 2, "z": None, "y": 1}),
        (["null", inner("I", x="int")], "STRUCT<x: INT, z: ARRAY<INT>>", (1, {"x": 2}),
         {"x": 2, "z": None}),
        (["null", inner("I", x="int")], "STRUCT<x: INT, z: ARRAY<INT>>", (0, None), None),
        ({"type": "array", "items": inner("I", x="int")}, "ARRAY<STRUCT<z: INT, x: TINYINT>>",
         [{"x": 2}], [{"z": None, "x": 2}]),
    ],
)  # fmt: skip
def test_types_that_become_columns(kind, ddl, value, read):
    rows = columns(record(c=kind, n="int"), f"c {ddl}, n INT", {"c": value, "n": 9})
    assert rows == [[read, 9]]
    # And as nothing but a nullable one among others.
    several = columns(
        record(n="int", c=kind), f"c {ddl}, n INT", *[{"c": value, "n": n} for n in range(3)]
    )
    assert several == [[read, n] for n in range(3)]


@pytest.mark.parametrize(
    ("kind", "ddl", "why"),
    [
        ("long", "INT", "'c' is long, and the column is INT"),
        ("double", "FLOAT", "'c' is double, and the column is FLOAT"),
        ("string", "INT", "'c' is string, and the column is INT"),
        (ENUM, "BINARY", "'c' is enum E, and the column is BINARY"),
        (decimal(5, 2), "BINARY", "'c' is a decimal on one side, and plain bytes on the other"),
        ("bytes", "DECIMAL(5,2)", "'c' is a decimal on one side, and plain bytes on the other"),
        (FIXED, "DECIMAL(5,2)", "'c' is a decimal on one side, and plain bytes on the other"),
        (FIXED, "STRING", "'c' is fixed F, and the column is STRING"),
        (decimal(9, 2), "DECIMAL(5,2)", "'c' is a decimal(9, 2), which is not"),
        (decimal(5, 1), "DECIMAL(9,2)", "'c' is a decimal(5, 1), which is not"),
        (logical("long", "timestamp-nanos"), "TIMESTAMP",
         "'c' is timestamp-nanos, which is not read as timestamp-micros"),
        (["int", "string"], "STRING", "'c' is a union of 2 types beside null, and a column has o"),
        (["null", "int", "string"], "STRING", "'c' is a union of 2 types beside null"),
        ({"type": "array", "items": ["int", "string"]}, "ARRAY<INT>",
         "'c[]' is a union of 2 types beside null"),
        ("int", "ARRAY<INT>", "'c' is int, and the column is ARRAY<INT>"),
        ({"type": "array", "items": "int"}, "INT", "'c' is array, and the column is INT"),
        ({"type": "array", "items": "int"}, "MAP<STRING, INT>", "'c' is array, and the column is"),
        ({"type": "map", "values": "int"}, "MAP<INT, INT>", "'c' is map, and the column is MAP"),
        ({"type": "array", "items": "int"}, "MAP<INT, INT>",
         "'c' must be an array of records of 'key' and 'value'"),
        ({"type": "array", "items": inner("I", key=["null", "int"], value="int")},
         "MAP<INT, INT>", "'c.key' may be null, and keys of a MAP may not"),
        ({"type": "array", "items": inner("I", value="int")}, "MAP<INT, INT>",
         "'c.key' is NOT NULL, and the record has no such field"),
        (inner("I", x="int", z="int"), "STRUCT<x: INT>", "'c.z' is not in the topic's schema: d"),
        (inner("I", x="int"), "STRUCT<x: INT, z: INT NOT NULL>",
         "'c.z' is NOT NULL, and the record has no such field"),
        (inner("I", x="string"), "STRUCT<x: INT>", "'c.x' is string, and the column is INT"),
        ({"type": "map", "values": inner("I", x="string")}, "MAP<STRING, STRUCT<x: INT>>",
         "'c[].x' is string, and the column is INT"),
    ],
)  # fmt: skip
def test_types_that_do_not_are_told_with_their_field(kind, ddl, why):
    with pytest.raises(InvalidSchemaError) as raised:
        parser(record(c=kind), f"c {ddl}")
    assert str(raised.value).startswith(why)
    assert "\n" not in str(raised.value)


def test_schemas_that_can_be_no_row():
    with pytest.raises(InvalidSchemaError, match="its schema is no record"):
        parser("int", "c INT")
    with pytest.raises(InvalidSchemaError, match="'C' is not in the topic's schema"):
        parser(record(C="int"), "c INT")
    with pytest.raises(InvalidSchemaError, match="'id' is NOT NULL, and the record has no such"):
        parser(record(c="int"), "id INT NOT NULL, c INT")
    node = inner("N", next=["null", "N"])
    with pytest.raises(InvalidSchemaError, match="'N' contains itself"):
        parser(record(c=node), "c STRUCT<next: INT>")


@pytest.mark.parametrize(
    ("kind", "ddl", "values", "row", "why"),
    [
        ("int", "TINYINT", [1, 128, -200], 1, "'c' has a number of more than 8 bits"),
        ("int", "TINYINT", [-129, 128], 0, "'c' has a number of more than 8 bits"),
        ({"type": "array", "items": "int"}, "ARRAY<SMALLINT>", [[1], [], [3, 40000]], 2,
         "'c' has a number of more than 16 bits"),
        (["null", inner("I", x="int")], "STRUCT<x: TINYINT>", [(0, None), (1, {"x": 999})], 1,
         "'c' has a number of more than 8 bits"),
        ("bytes", "STRING", [b"a", b"\xff"], 1, "'c' is no text in UTF-8"),
        (decimal(3, 0), "DECIMAL(3,0)", [b"\1", b"\x7f\xff"], 1, "'c' has more than 3 digits"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_told_with_their_row(kind, ddl, values, row, why):
    with pytest.raises(UndecodableRecordError) as raised:
        columns(record(c=kind), f"c {ddl}", *[{"c": each} for each in values])
    assert (raised.value.damage.row, raised.value.damage.reason) == (row, why)


def test_the_first_record_is_told_whether_it_is_damaged_or_does_not_fit():
    tree = parsed(record(c="int"))
    reader = parser(record(c="int"), "c TINYINT")
    big, cut = encoded(tree, {"c": 500}), b""
    for data, row, why in (([b"\2", big, cut], 1, "8 bits"), ([b"\2", cut, big], 1, "cut off")):
        with pytest.raises(UndecodableRecordError, match=why) as raised:
            reader.columns(Bodies.of(bodies(data)), ValueRoom(10))
        assert raised.value.damage.row == row


def test_a_record_without_fields_is_a_row_of_nulls():
    assert columns(record(), "c INT, st STRUCT<x: INT>", {}, {}) == [[None, None]] * 2


def test_all_branches_of_aliases_and_defaults_of_a_writer_mean_nothing():
    writer = record(c="int")
    writer["fields"][0] |= {"aliases": ["d"], "default": 5}
    assert columns(writer, "c INT, d INT", {"c": 1}) == [[1, None]]
    assert json.dumps(writer)
