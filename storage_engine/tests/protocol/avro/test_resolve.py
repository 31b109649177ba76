"""Records of one schema are read as the columns of another, as fastavro reads them."""

import copy
import datetime
import decimal
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.protocol.avro.resolve import Resolver
from storage_engine.tests.protocol.avro.avro_evolutions import (
    Evolution,
    in_one,
    in_text,
    read_by_fastavro,
    without_logical,
)
from storage_engine.tests.protocol.avro.avro_samples import (
    bodies,
    encoded,
    parsed,
    plain_values,
    record_schemas,
    values,
)


@given(data=st.data())
def test_resolved_columns_have_the_values_that_fastavro_reads(data):
    writer = without_logical(data.draw(record_schemas(most_fields=3, depth=2)))
    reader = Evolution(data.draw).record(copy.deepcopy(writer))
    written = parsed(writer)
    rows = data.draw(st.lists(values(written), min_size=1, max_size=4))
    records = [encoded(written, row) for row in rows]
    read = [read_by_fastavro(writer, reader, record) for record in records]
    try:
        resolver = Resolver(written, parsed(reader))
    except InvalidSchemaError:
        assert_refused_rightly(read)
        return
    found = resolver.decode(bodies(records))
    found.batch.validate(full=True)
    assert {each.row for each in found.damaged} == {
        n for n, each in enumerate(read) if each is None
    }
    for field in found.batch.schema:
        column = plain_values(found.batch.column(field.name))
        expected = [None if row is None else in_text(row[field.name]) for row in read]
        assert [in_one(each, field.type) for each in column] == expected


def assert_refused_rightly(read):
    """What is refused before it is read could not be read, but for empty lists."""
    for each in read:
        assert (
            each is None or "[]" in json.dumps(in_text(each)) or "{}" in json.dumps(in_text(each))
        )


def record(*fields, name="R"):
    return {"type": "record", "name": name, "fields": list(fields)}


def field(kind, name="f", **more):
    return {"name": name, "type": kind, **more}


def resolved(writer, reader, *rows):
    """The rows of the reader's columns; those of the writer's in the form of `values`."""
    tree = parsed(writer)
    found = Resolver(tree, parsed(reader)).decode(bodies([encoded(tree, row) for row in rows]))
    found.batch.validate(full=True)
    return found


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -7, -7),
        ("long", 2**62, 2**62),
        ("float", 0.5, 0.5),
        ("double", 1, 1.0),
        ("bytes", "\u00ff\u0000", b"\xff\x00"),
        ("string", "é", "é"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0001\u0002", b"\1\2"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": "string"}, {"a": "b"}, [("a", "b")]),
        (["null", "int"], None, None),
        (["int", "string"], 5, {"member0": 5, "member1": None}),
        (["int", "string"], "s", {"member0": None, "member1": "s"}),
        (
            record(field("int", "a"), field("string", "b", default="own"), name="D"),
            {"a": 3},
            {"a": 3, "b": "own"},
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "\u0001\u0000",
            decimal.Decimal("2.56"),
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            1,
            datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, datetime.UTC),
        ),
    ],
)
def test_a_field_that_is_not_there_has_its_default_in_every_row(kind, default, expected):
    writer = record(field("int", "n"))
    reader = record(field("int", "n"), field(kind, "added", default=default))
    found = resolved(writer, reader, {"n": 1}, {"n": 2})
    assert found.damaged == ()
    assert found.batch.column("added").to_pylist() == [expected] * 2


def test_defaults_are_only_in_rows_that_are_there():
    writer, reader = record(field("int")), record(field("int"), field("int", "d", default=9))
    records = pa.array([b"\x02", None, b"\x80", b"\x04"], pa.binary())
    found = Resolver(parsed(writer), parsed(reader)).decode(records)
    assert found.batch.to_pydict() == {"f": [1, None, None, 2], "d": [9, None, None, 9]}
    assert [each.row for each in found.damaged] == [2]


_AB = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    ("writer", "reader", "values", "expected", "damaged"),
    [
        (_AB, {**_AB, "symbols": ["B"]}, ["B", "A"], ["B", None],
         "'f' is a symbol that the reader's enum does not have"),
        (["null", "int"], "int", [(1, 5), (0, None)], [5, None],
         "'f' is null, which the reader's type is not"),
        (["int", "string"], "string", [(1, "a"), (0, 5)], ["a", None],
         "'f' is int, which the reader's type is not"),
        ("bytes", "string", ["é".encode(), b"\xff"], ["é", None], "'f' is no text in UTF-8"),
        ({"type": "array", "items": _AB}, {"type": "array", "items": {**_AB, "symbols": ["B"]}},
         [["B"], ["B", "A"]], [["B"], None],
         "'f' is a symbol that the reader's enum does not have"),
    ],
)  # fmt: skip
def test_a_value_that_the_reader_does_not_take_is_told_with_its_row(
    writer, reader, values, expected, damaged
):
    rows = [{"f": value} for value in values]
    found = resolved(record(field(writer)), record(field(reader)), *rows, rows[0])
    assert found.batch.column("f").to_pylist() == [*expected, expected[0]]
    assert found.damaged == ((1, damaged),)


@pytest.mark.parametrize(
    ("writer", "reader", "reason"),
    [
        ("string", "int", "'f' is string, and the reader's is int"),
        ("long", "int", "'f' is long, and the reader's is int"),
        (["null", "string"], "int", "'f' is string, which the reader's type is not"),
        ({"type": "array", "items": "string"}, {"type": "array", "items": "int"},
         "'f[]' is string, and the reader's is int"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3},
         "'f' has 2 bytes, which are not read as 3"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "G", "size": 2},
         "'f' is fixed F, and the reader's is fixed G"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
         {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
         "'f' is a decimal(9, 2), which is not read as decimal(9, 3)"),
        ({"type": "long", "logicalType": "timestamp-nanos"},
         {"type": "long", "logicalType": "timestamp-micros"},
         "'f' is timestamp-nanos, which is not read as timestamp-micros"),
        (record(field("int", "a"), name="S"), record(field("int", "b"), name="S"),
         "'f.b' is not in the writer's schema, and has no default"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_is_told_before_data_is_read(writer, reader, reason):
    with pytest.raises(InvalidSchemaError) as refused:
        Resolver(parsed(record(field(writer))), parsed(record(field(reader))))
    assert str(refused.value) == reason


def test_a_time_in_milliseconds_is_the_same_time_in_microseconds():
    millis, micros = (
        {"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros")
    )
    found = resolved(record(field(millis)), record(field(micros)), {"f": 1001})
    assert plain_values(found.batch.column("f")) == [1_001_000]
    back = resolved(record(field(millis)), record(field("long")), {"f": -1001})
    assert back.batch.column("f").to_pylist() == [-1001]
    read = resolved(record(field("int")), record(field(millis)), {"f": 1001})
    assert plain_values(read.batch.column("f")) == [1_001_000]


def test_only_wanted_columns_are_read():
    writer = record(field("int", "a"), field("string", "b"), field("long", "c"))
    reader = record(field("double", "z", aliases=["c"]), field("int", "a"), field("string", "b"))
    tree = parsed(writer)
    resolver = Resolver(tree, parsed(reader), ["z"])
    found = resolver.decode(bodies([encoded(tree, {"a": 1, "b": "x", "c": 5})]))
    assert resolver.arrow_schema == pa.schema([("z", pa.float64())])
    assert found.batch.to_pydict() == {"z": [5.0]}


@pytest.mark.parametrize(
    ("union", "value", "expected"),
    [
        (["null", "float", "int"], (2, 7), {"member0": None, "member1": 7}),
        (
            [
                {"type": "long", "logicalType": "time-micros"},
                {"type": "int", "logicalType": "date"},
            ],
            (1, 7),
            {"member0": None, "member1": datetime.date(1970, 1, 8)},
        ),
        (["bytes", "string"], (1, "a"), {"member0": None, "member1": "a"}),
    ],
)
def test_a_branch_stays_itself_before_it_is_promoted_to_another(union, value, expected):
    schema = record(field(union))
    found = resolved(schema, schema, {"f": value})
    assert found.damaged == ()
    assert found.batch["f"].to_pylist() == [expected]
