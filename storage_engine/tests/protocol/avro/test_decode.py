"""Columns have the values that fastavro reads from the same bytes."""

import datetime
import decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.protocol.avro.decode import Decoder, decode
from storage_engine.tests.protocol.avro.avro_samples import (
    bodies,
    encoded,
    in_columns,
    lists_in_any_way,
    parsed,
    plain_values,
    read_by_fastavro,
    record_schemas,
    seeded,
    values,
    varint,
)


@given(data=st.data())
def test_columns_have_the_values_that_fastavro_reads(data):
    schema = data.draw(record_schemas())
    tree = parsed(schema)
    rows = data.draw(st.lists(values(tree), min_size=1, max_size=6))
    random = seeded(data.draw(st.integers(0, 99)))
    records = [encoded(tree, row, random) for row in rows]
    with lists_in_any_way(data.draw):
        found = decode(tree, bodies(records))
    assert found.damaged == ()
    found.batch.validate(full=True)
    read = [in_columns(tree, read_by_fastavro(schema, record)) for record in records]
    columns = {name: plain_values(found.batch.column(name)) for name in found.batch.schema.names}
    assert columns == {name: [row[name] for row in read] for name in columns}
    assert list(columns) == [field["name"] for field in schema["fields"]]


@given(data=st.data())
def test_wanted_columns_are_the_same_as_with_all(data):
    tree = parsed(data.draw(record_schemas()))
    rows = data.draw(st.lists(values(tree), min_size=1, max_size=4))
    records = bodies([encoded(tree, row) for row in rows])
    every = decode(tree, records).batch
    wanted = data.draw(st.sets(st.sampled_from(every.schema.names)))
    decoder = Decoder(tree, wanted)
    with lists_in_any_way(data.draw):
        found = decoder.decode(records)
    assert found.damaged == ()
    assert found.batch.schema == decoder.arrow_schema
    assert found.batch.num_rows == len(rows)
    assert found.batch.schema.names == [name for name in every.schema.names if name in wanted]
    for name in wanted:
        assert plain_values(found.batch.column(name)) == plain_values(every.column(name))


_UTC = datetime.UTC


@pytest.mark.parametrize(
    ("kind", "logical", "value"),
    [
        ("int", {"logicalType": "date"}, datetime.date(1960, 2, 29)),
        (
            "long",
            {"logicalType": "timestamp-millis"},
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, _UTC),
        ),
        (
            "long",
            {"logicalType": "timestamp-micros"},
            datetime.datetime(2026, 1, 2, 3, 4, 5, 123_456, _UTC),
        ),
        (
            "long",
            {"logicalType": "local-timestamp-micros"},
            datetime.datetime(2026, 1, 2, 3, 4, 5, 123_456),
        ),
        (
            "bytes",
            {"logicalType": "decimal", "precision": 38, "scale": 2},
            decimal.Decimal("-123456789012345678901234567890123456.78"),
        ),
        (
            "bytes",
            {"logicalType": "decimal", "precision": 4, "scale": 4},
            decimal.Decimal("-0.0001"),
        ),
    ],
)
def test_logical_types_have_the_values_that_fastavro_writes(kind, logical, value):
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "f", "type": {"type": kind, **logical}}],
    }
    target = BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), {"f": value})
    found = decode(parsed(schema), bodies([target.getvalue()]))
    assert found.batch.column("f").to_pylist() == [value]


def test_many_rows_are_decoded_in_pieces_and_joined():
    tree = parsed(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": "string"}],
        }
    )
    rows = [{"n": number, "t": "x" * (number % 50)} for number in range(20_000)]
    rows[100]["t"] = "y" * (3 << 20)
    records = [encoded(tree, row) for row in rows]
    records[19_999] += b"!"
    found = decode(tree, bodies(records))
    assert [each.row for each in found.damaged] == [19_999]
    assert found.batch.slice(0, 19_999).to_pylist() == rows[:-1]


def test_no_rows_are_no_rows():
    tree = parsed(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "n", "type": ["null", "string", "int"]}],
        }
    )
    found = decode(tree, bodies([]))
    assert (found.batch.num_rows, found.damaged) == (0, ())
    assert pa.types.is_struct(found.batch.schema.field("n").type)


def test_a_key_that_is_no_record_is_one_column():
    found = decode(parsed("string"), bodies([b"\x04ab", b"\x02"]))
    assert found.batch.to_pydict() == {"value": ["ab", None]}
    assert found.damaged == ((1, "it has 1 bytes, and 0 are left"),)


@pytest.mark.parametrize("most_bytes", range(1, 11))
def test_numbers_are_read_whatever_the_most_bytes_among_them(most_bytes):
    tree = parsed({"type": "record", "name": "R", "fields": [{"name": "f", "type": "long"}]})
    edges = [1 << (7 * size - 1) for size in range(1, most_bytes)]
    numbers = [0, *edges, *(-each for each in edges), *(each - 1 for each in edges)]
    numbers += [-each - 1 for each in edges]
    found = decode(tree, bodies([encoded(tree, {"f": each}) for each in numbers]))
    assert found.damaged == ()
    assert found.batch.column(0).to_pylist() == numbers


@pytest.mark.parametrize("precision", [1, 9, 16, 17, 18, 19, 20])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_decimal_has_as_many_digits_as_its_type(precision, sign):
    kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 0}
    tree = parsed({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]})
    most = 10**precision - 1
    records = []
    for number in (sign * most, sign * (most + 1), 0):
        data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        records.append(bytes([2 * len(data)]) + data)
    alone = [decode(tree, bodies([each])) for each in records]
    assert [len(each.damaged) for each in alone] == [0, 1, 0]
    together = decode(tree, bodies(records))
    assert [each.row for each in together.damaged] == [1]
    assert [int(each or 7) for each in together.batch.column(0).to_pylist()] == [sign * most, 7, 7]


@pytest.mark.parametrize("length", [4, 1 << 31, 1 << 62, (1 << 63) - 1, -1, -(1 << 63)])
@pytest.mark.parametrize(
    "kind", ["string", "bytes", {"type": "bytes", "logicalType": "decimal", "precision": 9}]
)
def test_a_text_that_is_longer_than_its_record_is_damage_whatever_it_claims(kind, length):
    fields = [{"name": "a", "type": kind}, {"name": "b", "type": ["null", kind]}]
    tree = parsed({"type": "record", "name": "R", "fields": fields})
    whole, lie = b"\2\1\2\2\1", varint(length) + b"\1\0"
    for hostile in (lie, b"\2\1\2" + lie):
        found = decode(tree, bodies([whole, hostile, whole]))
        assert [each.row for each in found.damaged] == [1]
        assert [each is None for each in found.batch.column(0).to_pylist()] == [False, True, False]
        found.batch.validate(full=True)
