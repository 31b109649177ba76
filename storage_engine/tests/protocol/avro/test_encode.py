"""Rows of columns become records that fastavro reads back as the same values."""

import datetime as dt
import decimal
import io
import json
import uuid

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.protocol.avro.decode import decode
from storage_engine.protocol.avro.encode import encode, encode_values
from storage_engine.protocol.avro.encoding import byte_rows
from storage_engine.protocol.avro.encoding.byte_rows import TooManyBytesError
from storage_engine.protocol.avro.encoding.value_errors import UnencodableValueError
from storage_engine.tests.protocol.avro.avro_samples import (
    bodies,
    encoded,
    in_columns,
    parsed,
    plain_values,
    read_by_fastavro,
    record_schemas,
    values,
)

UTC = dt.UTC


@given(data=st.data())
def test_fastavro_reads_back_what_was_encoded(data):
    schema = data.draw(record_schemas())
    tree = parsed(schema)
    rows = data.draw(st.lists(values(tree), max_size=8))
    batch = decode(tree, bodies([encoded(tree, row) for row in rows])).batch
    first = data.draw(st.integers(0, len(rows)))
    found = encode(tree, batch.slice(first)).to_pylist()
    read = [in_columns(tree, read_by_fastavro(schema, each)) for each in found]
    assert read == [in_columns(tree, row) for row in rows[first:]]


@given(data=st.data())
def test_columns_that_were_read_are_written_as_the_same_bytes(data):
    """Where no union of numbers was read as one number."""
    schema = data.draw(record_schemas())
    tree = parsed(schema)
    records = [encoded(tree, row) for row in data.draw(st.lists(values(tree), max_size=8))]
    batch = decode(tree, bodies(records)).batch
    again = decode(tree, encode(tree, batch)).batch
    for name in batch.schema.names:
        assert plain_values(again.column(name)) == plain_values(batch.column(name))


def _one(avro_type, array, *, value="f"):
    tree = parsed({"type": "record", "name": "R", "fields": [{"name": "f", "type": avro_type}]})
    return encode(tree, pa.record_batch([array], names=[value]))


def _read(avro_type, array):
    """What fastavro reads, with its own types for logical types."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": avro_type}]}
    parsed_schema = fastavro.parse_schema(json.loads(json.dumps(schema)))
    read = []
    for body in _one(avro_type, array).to_pylist():
        source = io.BytesIO(body)
        row = fastavro.schemaless_reader(source, parsed_schema)
        assert isinstance(row, dict)
        read.append(row["f"])
        assert source.read() == b""
    return read


TIMES = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    dt.datetime(1, 1, 1, tzinfo=UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    dt.datetime(2026, 11, 30, 1, 2, 3, 456_789, UTC),
]


def test_times_in_microseconds():
    array = pa.array(TIMES, pa.timestamp("us", "UTC"))
    assert _read({"type": "long", "logicalType": "timestamp-micros"}, array) == TIMES


def test_times_that_are_finer_than_the_schema_are_cut_off_downwards():
    array = pa.array(TIMES, pa.timestamp("us", "UTC"))
    assert _read({"type": "long", "logicalType": "timestamp-millis"}, array) == [
        each.replace(microsecond=each.microsecond // 1000 * 1000) for each in TIMES
    ]


def test_times_in_nanoseconds():
    array = pa.array([TIMES[0], TIMES[3]], pa.timestamp("us", "UTC"))
    nanos = {"type": "long", "logicalType": "timestamp-nanos"}
    assert _read("long", _numbers(_one(nanos, array))) == [-1_000, 1_796_000_523_456_789_000]
    with pytest.raises(UnencodableValueError, match="outside of what a long holds in ns"):
        _one(nanos, pa.array(TIMES[1:2], pa.timestamp("us", "UTC")))
    numbers = pa.array([7, -(2**63)], pa.int64())
    assert _read("long", _numbers(_one(nanos, numbers))) == [7, -(2**63)]


def _numbers(encoded_longs):
    """The longs of records with one field."""
    tree = parsed({"type": "record", "name": "R", "fields": [{"name": "f", "type": "long"}]})
    return decode(tree, encoded_longs).batch.column(0)


def test_local_times_dates_and_times_of_a_day():
    naive = [each.replace(tzinfo=None) for each in TIMES]
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    assert _read(local, pa.array(naive, pa.timestamp("us"))) == naive
    days = [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]
    assert _read({"type": "int", "logicalType": "date"}, pa.array(days)) == days
    clock = [dt.time(0), dt.time(23, 59, 59, 999_000)]
    millis = {"type": "int", "logicalType": "time-millis"}
    assert _read(millis, pa.array(clock, pa.time32("ms"))) == clock
    micros = {"type": "long", "logicalType": "time-micros"}
    assert _read(micros, pa.array(clock, pa.time64("us"))) == clock


@pytest.mark.parametrize("size", [None, 5, 16, 20])
@pytest.mark.parametrize("digits", [1, 2, 3, 10, 38])
def test_decimals_to_the_last_digit(size, digits):
    if size == 5 and digits > 10:
        digits = 11
    edges = {0, 1, 127, 128, 255, 256, 32_767, 32_768, 10 ** (digits - 1), 10**digits - 1}
    context = decimal.Context(prec=60)
    numbers = [
        decimal.Decimal(sign * each).scaleb(-min(2, digits), context)
        for each in sorted(edges)
        for sign in (1, -1)
        if each < 10**digits
    ]
    logical = {"logicalType": "decimal", "precision": digits, "scale": min(2, digits)}
    kind = {"type": "bytes"} if size is None else {"type": "fixed", "name": "F", "size": size}
    array = pa.array(numbers, pa.decimal128(digits, min(2, digits)))
    assert _read(kind | logical, array) == numbers


def test_a_decimal_that_the_fixed_has_no_room_for_is_told():
    narrow = {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal"}
    tree = parsed({"type": "record", "name": "R", "fields": [
        {"name": "f", "type": narrow | {"precision": 2, "scale": 0}}]})  # fmt: skip
    assert encode(tree, pa.record_batch([pa.array([99, -99], pa.decimal128(2, 0))], ["f"])) == (
        pa.array([b"\x63", b"\x9d"], pa.binary())
    )
    with pytest.raises(UnencodableValueError, match="'f'") as raised:
        encode(tree, pa.record_batch([pa.array([1, 100], pa.decimal128(3, 0))], ["f"]))
    assert raised.value.row == 1


def test_uuids_as_text_and_as_bytes():
    given_uuids = [uuid.UUID(int=0), uuid.UUID("01234567-89ab-cdef-0123-456789ABCDEF")]
    array = pa.array([str(each) for each in given_uuids])
    assert _read({"type": "string", "logicalType": "uuid"}, array) == given_uuids
    tree = parsed({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"})
    assert encode_values(tree, array).to_pylist() == [each.bytes for each in given_uuids]
    for wrong in ("0123456789abcdef0123456789abcdef0123", "g" * 36, "", "ü" * 18):
        with pytest.raises(UnencodableValueError, match="is not a UUID"):
            encode_values(tree, pa.array([wrong]))


def test_a_union_of_several_types():
    union = ["int", "null", "string", {"type": "array", "items": "int"}]
    kind = pa.struct(
        [("member0", pa.int32()), ("member1", pa.string()), ("member2", pa.list_(pa.int32()))]
    )
    array = pa.array(
        [{"member1": "a"}, None, {"member0": 7}, {"member2": []}, {"member2": [1, 2]}], kind
    )
    assert _read(union, array) == ["a", None, 7, [], [1, 2]]
    for row, told in (({}, "0 members"), ({"member0": 1, "member1": "a"}, "2 members")):
        with pytest.raises(UnencodableValueError, match=told) as raised:
            _one(union, pa.array([{"member0": 1}, row], kind))
        assert raised.value.row == 1


ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}
INNER = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
LISTS = ["null", {"type": "array", "items": ["null", INNER]}]
IN_LISTS = pa.list_(pa.struct([("x", pa.int32())]))
MAPS = pa.map_(pa.string(), pa.int32())
UNFIT = [
    ("int", pa.array([1, None], pa.int32()), 1, "'f': it is null"),
    ("int", pa.array([1, 2**31]), 1, "'f'"),
    (["int", "string"], pa.array([None], pa.struct([("member0", pa.int32())])), 0, "no branch"),
    (ENUM, pa.array(["A", "B"]), 1, "'B' is not one"),
    ({"type": "fixed", "name": "X", "size": 2}, pa.array([b"ab", b"abc"]), 1, "3 bytes"),
    ("string", pa.array([["a"]]), 0, "'f': it is no string"),
    ({"type": "array", "items": "int"}, pa.array([[1], [], [2, None]]), 2, "'f': it is null"),
    ({"type": "map", "values": "int"}, pa.array([[], [("k", None)]], MAPS), 1, "'f.value'"),
    (LISTS, pa.array([None, [], [None, {"x": 1}], [{"x": None}]], IN_LISTS), 3, "'f.x'"),
]


@pytest.mark.parametrize(("avro_type", "array", "row", "told"), UNFIT)
def test_a_value_that_the_schema_does_not_hold_is_told_by_row_and_field(
    avro_type, array, row, told
):
    with pytest.raises(UnencodableValueError, match=told) as raised:
        _one(avro_type, array)
    assert raised.value.row == row


def test_a_column_that_is_missing_is_null():
    assert _one(["null", "int"], pa.array([1, 2]), value="other").to_pylist() == [b"\0", b"\0"]
    with pytest.raises(UnencodableValueError, match="'f': it is null"):
        _one("int", pa.array([1]), value="other")


def test_a_schema_that_is_no_record_and_no_rows():
    assert encode(parsed("int"), pa.record_batch([pa.array([1, -1])], ["value"])).to_pylist() == [
        b"\x02",
        b"\x01",
    ]
    assert len(encode(parsed("int"), pa.record_batch([pa.array([], pa.int32())], ["value"]))) == 0
    empty = {"type": "record", "name": "R", "fields": []}
    assert encode_values(parsed(empty), pa.array([{}, {}])).to_pylist() == [b"", b""]


def test_rows_of_too_many_bytes_are_told(monkeypatch):
    monkeypatch.setattr(byte_rows, "LARGEST_ARRAY_BYTES", 99)
    with pytest.raises(TooManyBytesError, match="pass fewer rows"):
        _one("string", pa.array(["x" * 50] * 2))
