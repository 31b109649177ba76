"""Avro records of foreign clients become typed batches, or are refused by their number."""

import random
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError, KafkaError, RecordTooLargeError
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.protocol.records.record_batch import (
    LENGTH_END,
    Codec,
    patch_producer,
    read_header,
    seal,
)
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.typed import avro_columns
from storage_engine.protocol.typed.arrays.avro_parser import AvroParser
from storage_engine.protocol.typed.avro_columns import (
    MAX_IDS,
    UnknownSchemaIdsError,
    schema_ids,
    typed_from_avro,
)
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.tests.protocol.typed import json_support
from storage_engine.tests.protocol.typed.foreign.avro_support import (
    ID,
    all_rows,
    framed,
    read,
    rows_in_avro,
    text_of,
    typed,
    writers_of,
    written,
)
from storage_engine.tests.protocol.typed.json_support import as_json, records_of, rows_in
from storage_engine.tests.protocol.typed.logs import TOPIC_ID, encoded, log_of, schema_of
from storage_engine.tests.protocol.typed.typed_values import (
    AVRO_TYPES,
    comparable,
    schemas_and_rows,
)
from storage_engine.tests.sampling import examples


def ids_in(data):
    return schema_ids(data, read_header(data))


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_what_fastavro_writes_becomes_what_json_becomes(data):
    schema, rows = data.draw(schemas_and_rows(kinds=AVRO_TYPES))
    text = text_of(schema)
    values = [written(text, row) for row in rows_in_avro(rows, schema)]
    made = typed(records_of(values), schema, writers_of(text))
    of_json = json_support.typed(as_json(log_of(encoded(rows, schema)), schema), schema)
    found = comparable(rows_in(made, schema))
    assert found == comparable(rows_in(of_json, schema)) == comparable(rows.to_pylist())


def test_a_foreign_batch_is_never_split_and_keeps_its_sequence_times_and_headers():
    schema = schema_of("id BIGINT, m MAP<STRING, INT>")
    text = text_of(schema)
    headers = pa.array([[{"key": "k", "value": b"v"}]] + [None] * 4999, HEADERS_TYPE)
    data = records_of(
        [written(text, {"id": n, "m": {"a": n}}) for n in range(5000)],
        timestamps_ms=pa.array(range(5000)),
        headers=headers,
    )
    patch_producer(data, 0, producer_id=1, producer_epoch=2, base_sequence=3, transactional=True)
    assert ids_in(data) == {ID}
    made = typed(data, schema, writers_of(text), Codec.ZSTD)
    header = read_header(made)
    assert (header.records_count, header.producer_id, header.producer_epoch) == (5000, 1, 2)
    assert header.base_sequence == 3 and header.is_transactional
    assert (header.base_timestamp, header.max_timestamp) == (0, 4999)
    assert rows_in(made, schema) == [{"id": n, "m": [("a", n)]} for n in range(5000)]


@pytest.mark.parametrize("codec", list(Codec))
def test_foreign_batches_of_every_codec_are_read(codec):
    schema = schema_of("text STRING")
    values = [written(text_of(schema), {"text": "a" * 200}), written(text_of(schema), {})]
    data = records_of(values, compression=codec.name.lower())
    assert ids_in(data) == {ID}
    made = typed(data, schema, writers_of(text_of(schema)))
    assert rows_in(made, schema) == [{"text": "a" * 200}, {"text": None}]


def record(**fields):
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def test_records_of_several_ids_lie_in_one_batch_in_any_order():
    schema = schema_of("id BIGINT NOT NULL, v DOUBLE, w STRING")
    old, wide = record(id="int", v="float"), record(w=["string", "null"], id="long")
    writers = writers_of(text_of(schema), old, wide)
    rows, values = [], []
    for n in range(300):
        row: dict[str, object] = {"id": n, "v": None, "w": None}
        kind = random.Random(n).randrange(3)
        if kind == 0:
            row |= {"v": n / 2, "w": "all"}
            values.append(written(text_of(schema), row, ID))
        elif kind == 1:
            row |= {"v": n / 2}
            values.append(written(old, {"id": n, "v": n / 2}, ID + 1))
        else:
            row |= {"w": f"w{n}"}
            values.append(written(wide, {"id": n, "w": f"w{n}"}, ID + 2))
        rows.append(row)
    data = records_of(values)
    assert ids_in(data) == {ID, ID + 1, ID + 2}
    assert rows_in(typed(data, schema, writers), schema) == rows


def test_an_old_writer_goes_on_when_the_topic_has_new_columns():
    schema = schema_of("id INT NOT NULL, f FLOAT, a ARRAY<SMALLINT>")
    text = text_of(schema)
    later = schema.evolved(
        parse_ddl("id BIGINT NOT NULL, f DOUBLE, a ARRAY<INT>, st STRUCT<x: INT>")
    )
    values = [written(text, {"id": 1, "f": 0.5, "a": [1, None]})]
    assert rows_in(typed(records_of(values), later, writers_of(text)), later) == [
        {"id": 1, "f": 0.5, "a": [1, None], "st": None}
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([b"", None, None], "record 0 is not stored: it has 0 bytes, and the framing alone has 5"),
        ([None, b"\0\0\0\0", b""], "record 1 is not stored: it has 4 bytes"),
        ([None, None, b"\1\0\0\0\7\2"], "record 2 is not stored: it begins with the byte 1, and w"),
        ([None, b"\0\xff\xff\xff\xff\2", b""], "record 1 is not stored: its schema id is -1"),
        ([framed(b"\2", 8), None, b""], "record 0 is not stored: schema id 8: no registry has giv"),
        ([None, framed(b""), framed(b"\2", 8)], "record 1 is not stored: schema id 7: 'n' is cut"),
        ([framed(b"\2"), framed(b"\2\2"), b""], "record 1 is not stored: schema id 7: 1 bytes are"),
        ([framed(b"\2"), framed(b"\x80\2"), b""], "record 1 is not stored: schema id 7: 'n' has a"),
        ([framed(b"\x80\2"), framed(b"\2\2"), None], "record 0 is not stored: schema id 7: 'n' ha"),
    ],
)
def test_the_first_record_that_is_no_row_is_named(values, message):
    schema = schema_of("id BIGINT NOT NULL, n TINYINT", ["id"])
    data = records_of(values, [b"1", b"2", b"3"])
    with pytest.raises(RowsDoNotFitError) as raised:
        typed(data, schema, writers_of(record(n="int")))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert f"record {raised.value.row} " in message


def test_ids_are_not_told_of_values_without_framing():
    with pytest.raises(RowsDoNotFitError, match="record 1 is not stored: it begins with the byte"):
        ids_in(records_of([framed(b""), b'{"id": 1}', b""]))
    assert ids_in(records_of([None, framed(b"", 5), framed(b"x", 2**31 - 1)])) == {5, 2**31 - 1}
    assert ids_in(records_of([None])) == frozenset()


def test_a_batch_has_a_bound_of_ids():
    values = [framed(b"\2", n) for n in range(MAX_IDS + 1)]
    assert len(ids_in(records_of(values[1:]))) == MAX_IDS
    with pytest.raises(RecordTooLargeError, match="33 schema ids, and at most 32 are possible"):
        ids_in(records_of(values))
    with pytest.raises(RecordTooLargeError, match="33 schema ids"):
        typed(records_of(values), schema_of("n INT"), {})


@pytest.mark.parametrize(
    ("key", "values", "message"),
    [
        (b"2", {"id": 1}, "record 1 has the key 2, its key columns 'id' say 1: send that key"),
        (b"x", None, "record 1 is not stored: its key is not the one of the key columns"),
        (None, None, "record 1 has neither a key nor a value"),
    ],
)
def test_a_key_says_what_the_key_columns_say(key, values, message):
    schema = schema_of("id BIGINT, v STRING", ["id"])
    text = text_of(schema)
    data = [written(text, {"id": 7}), None if values is None else written(text, values)]
    with pytest.raises(RowsDoNotFitError, match=message) as found:
        typed(records_of(data, [None, key]), schema, writers_of(text))
    assert found.value.row == 1


def test_tombstones_stand_between_rows():
    schema = schema_of("id BIGINT, v STRING NOT NULL", ["id"])
    text = text_of(schema)
    values = [written(text, {"id": 1, "v": "a"}), None, written(text, {"id": 3, "v": "c"})]
    made = typed(records_of(values, [b"1", b"2", None]), schema, writers_of(text))
    assert all_rows(made, schema) == [
        ({"id": 1, "v": "a"}, False), ({"id": 2, "v": None}, True), ({"id": 3, "v": "c"}, False),
    ]  # fmt: skip
    only = typed(records_of([None], [b"9"]), schema, {})
    assert all_rows(only, schema) == [({"id": 9, "v": None}, True)]


def test_key_columns_that_the_writer_does_not_have_are_taken_from_the_key():
    schema = schema_of("day DATE, id BIGINT, v STRING", ["day", "id"])
    writer = record(v="string")
    values = [written(writer, {"v": "a"}), None, written(writer, {"v": "c"})]
    keys = [b'{"day":"2026-01-%02d","id":%d}' % (n + 1, n) for n in range(3)]
    made = typed(records_of(values, keys), schema, writers_of(writer))
    found = [(row["day"].day, row["id"], row["v"], gone) for row, gone in all_rows(made, schema)]
    assert found == [(1, 0, "a", False), (2, 1, None, True), (3, 2, "c", False)]
    with pytest.raises(RowsDoNotFitError, match="row 0 has null in the column 'day'"):
        typed(records_of(values[:1]), schema, writers_of(writer))
    with pytest.raises(RowsDoNotFitError, match="record 1 is not stored: its key"):
        typed(records_of([values[0]] * 2, [keys[0], b"\0\0\0\0\7\2"]), schema, writers_of(writer))
    with pytest.raises(RowsDoNotFitError, match="record 1 is not stored: its key"):
        typed(records_of([None, values[0]], [keys[0], b"{}}"]), schema, writers_of(writer))
    odd = keys[0].replace(b"2026-01-01", b"2026-1-1")
    with pytest.raises(RowsDoNotFitError, match=r"record 0 (is not stored|has the key)"):
        typed(records_of(values[:1], [odd]), schema, writers_of(writer))


SAMPLE = schema_of(
    "id INT NOT NULL, s STRING, d DOUBLE, dec DECIMAL(9,2), b BINARY, ok BOOLEAN,"
    " a ARRAY<STRUCT<x: STRING NOT NULL>>, m MAP<STRING, INT>, im MAP<INT, DATE>"
)
SAMPLE_ROW = {
    "id": 300, "s": "größe", "d": 2.5, "dec": Decimal("-12.50"), "b": b"\0\xff", "ok": True,
    "a": [{"x": "one"}, None], "m": {"k": 1, "l": None}, "im": [{"key": 5, "value": None}],
}  # fmt: skip


def _read_or_none(text, value):
    try:
        return read(text, value)
    except (AssertionError, EOFError, ValueError, IndexError, KeyError, OverflowError, TypeError):
        return None


def test_no_flipped_byte_of_a_value_changes_its_neighbours():
    text, writers = text_of(SAMPLE), writers_of(text_of(SAMPLE))
    good = written(text, SAMPLE_ROW)
    before = rows_in(typed(records_of([good] * 3), SAMPLE, writers), SAMPLE)
    refused = taken = 0
    for place in range(len(good)):
        for bit in range(8):
            value = bytearray(good)
            value[place] ^= 1 << bit
            data = records_of([good, bytes(value), good])
            try:
                first, changed, last = rows_in(typed(data, SAMPLE, writers), SAMPLE)
            except RowsDoNotFitError as error:
                assert error.row == 1, (place, bit)
                refused += 1
                continue
            assert [first, last] == before[:2], (place, bit)
            # What is taken is what fastavro reads, too.
            found = _read_or_none(text, bytes(value))
            again = written(text, found)
            assert rows_in(typed(records_of([again]), SAMPLE, writers), SAMPLE) == [changed]
            taken += 1
    assert refused > 100 and taken > 100


def test_no_part_of_a_value_is_a_row():
    text, writers = text_of(SAMPLE), writers_of(text_of(SAMPLE))
    good = written(text, SAMPLE_ROW)
    for size in range(len(good)):
        with pytest.raises(RowsDoNotFitError, match="record 1 is not stored"):
            typed(records_of([good, good[:size], good]), SAMPLE, writers)
    for more in (b"\0", b"\2", good):
        with pytest.raises(RowsDoNotFitError, match="bytes are left behind its last value"):
            typed(records_of([good, good + more, good]), SAMPLE, writers)


def test_each_flipped_byte_of_a_batch_is_an_error_of_ours_or_a_batch():
    text, writers = text_of(SAMPLE), writers_of(text_of(SAMPLE))
    data = bytes(records_of([written(text, SAMPLE_ROW)] * 3))
    outcomes = set()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        try:
            if place >= LENGTH_END:
                # A producer writes what it likes, with a checksum that is right.
                seal(changed, 0, read_header(changed))
            header = read_header(changed)
            made = typed_from_avro(
                memoryview(changed), header, SAMPLE, TOPIC_ID, Codec.NONE, writers
            )
            outcomes.add(read_header(made).records_count)
        except KafkaError as error:
            outcomes.add(type(error))
    assert outcomes >= {3, RowsDoNotFitError, CorruptRecordError}


def test_short_records_of_wide_topics_are_bounded():
    schema = schema_of(", ".join(f"c{n} BIGINT" for n in range(1900)))
    with pytest.raises(RecordTooLargeError, match="the missing ones included: send smaller"):
        typed(records_of([framed(b"\2")] * 20_000), schema, writers_of(record(c0="int")))


NULLS = record(n=["null", "int"])


@pytest.mark.parametrize(
    ("ddl", "items", "most"),
    [
        ("a ARRAY<STRUCT<n: INT>>", 4_000, 10_000),
        ("a ARRAY<STRUCT<n: INT, o: INT, p: INT, q: INT>>", 1_200, 10_000),
        ("a ARRAY<STRUCT<n: INT, st: STRUCT<o: INT, p: INT>>>", 1_200, 10_000),
    ],
)
def test_lists_of_few_bytes_and_many_values_are_bounded(monkeypatch, ddl, items, most):
    schema = schema_of(ddl)
    writer = record(a={"type": "array", "items": NULLS | {"name": "I"}})
    writers = writers_of(writer)
    monkeypatch.setattr(avro_columns, "MAX_CELLS", most)

    def batch(records):
        return records_of([written(writer, {"a": [{}] * (items // records)})] * records)

    assert len(rows_in(typed(batch(4), schema, writers), schema)) == 4
    with pytest.raises(RecordTooLargeError, match="lists and maps of these records have more than"):
        typed(records_of([written(writer, {"a": [{}] * items})] * 3), schema, writers)


def test_a_schema_is_compared_with_the_topic_once(monkeypatch):
    made = []

    def counted(*arguments):
        made.append(arguments)
        return AvroParser(*arguments)

    monkeypatch.setattr(avro_columns, "AvroParser", counted)
    schema, other = schema_of("n INT"), schema_of("n INT")
    writers = writers_of(record(n="int"), record(x="int"))
    for _ in range(3):
        typed(records_of([framed(b"\2")]), schema, writers)
        with pytest.raises(RowsDoNotFitError, match="'x' is not in the topic's schema"):
            typed(records_of([framed(b"\2", ID + 1)]), schema, writers)
    assert len(made) == 2
    typed(records_of([framed(b"\2")]), other, writers)
    assert len(made) == 3


def test_a_batch_has_as_many_records_as_it_says():
    schema = schema_of("n INT")
    data = records_of([framed(b"\2")] * 3)
    seal(data, 0, read_header(data)._replace(last_offset_delta=3))
    with pytest.raises(CorruptRecordError, match="a record batch of 3 records has 3"):
        typed(data, schema, writers_of(record(n="int")))


def test_ids_that_are_not_known_are_told_together_where_one_comes_first():
    schema, writers = schema_of("n TINYINT"), writers_of(record(n="int"))
    unknown = [framed(b"\2"), framed(b"\2", 9), framed(b"\x80\2"), framed(b"\2", 8)]
    with pytest.raises(UnknownSchemaIdsError, match=r"record 1 .* 9: no registry has") as raised:
        typed(records_of(unknown), schema, writers)
    assert (raised.value.row, raised.value.schema_ids) == (1, frozenset({8, 9}))
    with pytest.raises(RowsDoNotFitError, match=r"record 0 .* more than 8 bits") as final:
        typed(records_of(unknown[::-1][1:]), schema, writers)
    assert not isinstance(final.value, UnknownSchemaIdsError)


def test_a_record_far_behind_is_named_by_its_number():
    values = [framed(b"\2")] * 9_000
    values[8_500] = framed(b"\2\2")
    with pytest.raises(RowsDoNotFitError, match="record 8500 is not stored: schema id 7: 1 bytes"):
        typed(records_of(values), schema_of("n INT"), writers_of(record(n="int")))
