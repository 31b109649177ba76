"""Columns are cast to the types of a topic without a value changing, or it is said why not."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.client.producer.producer_errors import SerializationError
from storage_engine.client.producer.tables.typed_rows import fitted
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema


def column_of(ddl: str, array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as a topic with this type gets it."""
    return fitted(pa.table({"c": array}), "t", new_schema(parse_ddl(f"c {ddl}"), []))["c"]


def utc(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("ddl", "array"),
    [
        ("BIGINT", pa.array([1, None, -5], pa.int8())),
        ("INT", pa.array([65_535, None], pa.uint16())),
        ("DOUBLE", pa.array([0.5, None], pa.float32())),
        ("FLOAT", pa.array(np.array([0.5, 2], np.float16))),
        ("STRING", pa.array(["é", None], pa.large_string())),
        ("STRING", pa.array(["é", None], pa.string_view())),
        ("STRING", pa.array(["a", None, "a"]).dictionary_encode()),
        ("STRING", pa.nulls(3)),
        ("BINARY", pa.array([b"ab", None], pa.binary(2))),
        ("BINARY", pa.array([b"", None], pa.large_binary())),
        ("DECIMAL(10,3)", pa.array([Decimal("1.25"), None], pa.decimal128(5, 2))),
        ("DATE", pa.array([datetime.date(2026, 1, 31), None], pa.date64())),
        ("INTERVAL DAY TO SECOND", pa.array([1000, None], pa.duration("s"))),
        ("ARRAY<BIGINT>", pa.array([[1, None], None, []], pa.large_list(pa.int16()))),
        ("ARRAY<STRING>", pa.array([["a", "b"], None], pa.list_(pa.string(), 2))),
        ("ARRAY<ARRAY<DOUBLE>>", pa.array([[[1.5], None], []], pa.list_(pa.list_(pa.float32())))),
        (
            "MAP<STRING, BIGINT>",
            pa.array([[("a", 1)], None], pa.map_(pa.large_string(), pa.int8())),
        ),
        (
            "STRUCT<a: BIGINT, b: STRING>",
            pa.array([{"b": "x", "a": 1}, None], pa.struct([("b", pa.string()), ("a", pa.int8())])),
        ),
    ],
)
def test_wider_types_and_other_layouts_take_all_values(ddl, array):
    padded = pa.concat_arrays([array, array]).slice(1)
    whole = pa.chunked_array([array, padded, array.slice(0, 0)])
    cast = column_of(ddl, whole)
    cast.validate(full=True)
    assert cast.to_pylist() == whole.to_pylist()


LONG = "longer than what a view holds itself"

TEXT_VIEW = pa.array(["a", None, LONG], pa.string_view())


def runs(values: pa.Array) -> pa.RunEndEncodedArray:
    return pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 6], pa.int32()), values)


@pytest.mark.parametrize(
    ("ddl", "array"),
    [
        ("STRING", TEXT_VIEW),
        ("BINARY", pa.array([b"a", None, b"x" * 40], pa.binary_view())),
        ("STRING", pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 1]), TEXT_VIEW)),
        ("STRING", runs(pa.array(["a", None, "b"]))),
        ("STRING", runs(TEXT_VIEW)),
        ("STRING", runs(pa.array(["a", None, "b"]).dictionary_encode())),
        ("BIGINT", runs(pa.array([1, None, 3], pa.int8()))),
        ("ARRAY<STRING>", pa.array([["a", LONG], None, ["b"]], pa.list_(pa.string_view()))),
        ("ARRAY<STRING>", pa.array([["a", None], None, [], ["b"]], pa.list_view(pa.string()))),
        ("ARRAY<STRING>", pa.array([["a"], None, [LONG]], pa.large_list_view(pa.string_view()))),
        # The lists of a view lie in any order, and may share elements.
        ("ARRAY<BIGINT>", pa.ListViewArray.from_arrays([2, 0, 1], [1, 2, 2], pa.array([1, 2, 3]))),
        ("ARRAY<ARRAY<INT>>", pa.array([[[1], None], []], pa.list_view(pa.list_view(pa.int32())))),
        ("STRUCT<x: STRING>", pa.StructArray.from_arrays([TEXT_VIEW], ["x"])),
        (
            "MAP<STRING, STRING>",
            pa.array([[("k", LONG)], None, []], pa.map_(pa.string_view(), pa.string_view())),
        ),
        ("DECIMAL(12,2)", pa.array([Decimal("1.25"), None], pa.decimal64(12, 2))),
        ("STRING", pa.array(["{}", None], pa.json_(pa.string()))),
    ],
    ids=lambda each: str(each.type if isinstance(each, pa.Array) else each),
)
def test_the_encodings_of_other_libraries_take_all_values(ddl, array):
    for start in range(len(array)):
        whole = pa.chunked_array([array, array.slice(start), array.slice(start, 1)])
        cast = column_of(ddl, whole)
        cast.validate(full=True)
        assert cast.to_pylist() == whole.to_pylist()


def test_a_field_that_is_missing_is_null():
    array = pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())]))
    cast = column_of("STRUCT<a: BIGINT, b: ARRAY<STRING>>", array)
    assert cast.to_pylist() == [{"a": 1, "b": None}, None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_counted_in_microseconds(unit):
    times = [utc("2026-01-31T12:00:00"), None]
    cast = column_of("TIMESTAMP", pa.array(times, pa.timestamp(unit, "Europe/Berlin")))
    assert (cast.type, cast.to_pylist()) == (pa.timestamp("us", "UTC"), times)


@pytest.mark.parametrize(
    ("ddl", "array", "complaint"),
    [
        ("INT", pa.array([1], pa.int64()), r"'c' is int64, the topic's is INT \(int32\): cast it"),
        ("INT", pa.array([1], pa.uint32()), "is uint32"),
        ("BIGINT", pa.array(["1"]), "is string, the topic's is BIGINT"),
        ("BIGINT", pa.array([1.0]), "is double"),
        ("DOUBLE", pa.array([1]), "is int64"),
        ("FLOAT", pa.array([1.0]), "is double"),
        ("STRING", pa.array([b"a"]), "is binary"),
        ("BINARY", pa.array(["a"]), "is string"),
        ("DECIMAL(5,2)", pa.array([Decimal("1.125")], pa.decimal128(5, 3)), "is decimal128"),
        ("DECIMAL(5,2)", pa.array([Decimal(1)], pa.decimal128(6, 2)), "is decimal128"),
        ("TIMESTAMP", pa.array([1], pa.timestamp("us")), r"is timestamp\[us\]"),
        ("TIMESTAMP_NTZ", pa.array([1], pa.timestamp("us", "UTC")), "tz=UTC"),
        ("DATE", pa.array([1], pa.timestamp("s")), r"is timestamp\[s\]"),
        ("ARRAY<INT>", pa.array([[1]]), "'c.element' is int64"),
        ("MAP<STRING, INT>", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "'c.value'"),
        ("STRUCT<a: INT>", pa.array([{"a": 1}]), "'c.a' is int64"),
        ("STRUCT<a: BIGINT>", pa.array([{"a": 1, "b": 2}]), "'c' has a field 'b'"),
        ("STRUCT<a: INT NOT NULL, b: BIGINT>", pa.array([{"b": 2}]), "no field 'a', which is NOT"),
        ("STRUCT<a: INT>", pa.array([1]), "is int64, the topic's is STRUCT"),
        (
            "TIMESTAMP_NTZ",
            pa.array([1000, None, 2001, 1], pa.timestamp("ns")),
            r"'c' in row 2: timestamp\[ns\] 2001 can't be TIMESTAMP_NTZ exactly",
        ),
        ("TIMESTAMP_NTZ", pa.array([1 << 60], pa.timestamp("s")), "'c' in row 0: .* exactly"),
        ("DATE", pa.array([86_400_000, 1], pa.date64()), "'c' in row 1"),
    ],
)
def test_what_can_not_be_said_exactly_is_an_error_of_the_column(ddl, array, complaint):
    with pytest.raises(SerializationError, match=complaint) as caught:
        column_of(ddl, array)
    assert "\n" not in str(caught.value)


def test_the_row_that_does_not_fit_is_counted_over_all_pieces_of_a_column():
    column = pa.chunked_array(
        [pa.array([1000] * 3, pa.timestamp("ns")), pa.array([1000, 7], pa.timestamp("ns"))]
    )
    with pytest.raises(SerializationError, match="'c' in row 4"):
        column_of("TIMESTAMP_NTZ", column)


@given(st.lists(st.one_of(st.none(), st.integers(-(1 << 62), 1 << 62)), max_size=20))
def test_nanoseconds_become_microseconds_or_the_first_inexact_row_is_named(values):
    array = pa.array(values, pa.timestamp("ns"))
    wrong = [row for row, value in enumerate(values) if value is not None and value % 1000]
    if wrong:
        with pytest.raises(SerializationError, match=f"in row {wrong[0]}:"):
            column_of("TIMESTAMP_NTZ", array)
    else:
        cast = column_of("TIMESTAMP_NTZ", array)
        assert cast.cast(pa.int64()).to_pylist() == [
            None if value is None else value // 1000 for value in values
        ]
