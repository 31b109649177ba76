"""Rows become typed batches and rows again."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import InvalidRecordError, UnsupportedCompressionError
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import UnknownSchemaVersionError
from storage_engine.protocol.records.record_batch import (
    Codec,
    crc_matches,
    iter_headers,
    patch_log_append_time,
    read_header,
)
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.typed.arrays.row_fit import fitting_columns
from storage_engine.protocol.typed.directory import DICTIONARY, read_directory
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.logs import (
    NOW,
    decoded,
    encoded,
    frames_of,
    log_of,
    rows_from,
    schema_of,
    table_of,
)
from storage_engine.tests.protocol.typed.same_values import comparable
from storage_engine.tests.protocol.typed.typed_values import schemas_and_rows
from storage_engine.tests.sampling import examples

CODECS = st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD])


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data(), codec=CODECS, batch_bytes=st.sampled_from([1, 3000, 1 << 20]))
def test_rows_of_any_schema_come_back_equal(data, codec, batch_bytes):
    schema, rows = data.draw(schemas_and_rows())
    log = log_of(encoded(rows, schema, compression=codec, batch_bytes=batch_bytes))
    read_plan = plan(schema)
    pieces = decoded(log, schema)
    found = table_of(pieces, read_plan)
    assert found.schema == read_plan.arrow_schema
    assert comparable(found.to_pylist()) == comparable(rows.to_pylist())
    assert [n for piece in pieces for n in piece.offsets.to_pylist()] == list(range(rows.num_rows))
    assert pieces[-1].next_offset == rows.num_rows
    framed = decoded(frames_of(log, read_plan, schema), schema, framed=True)
    assert comparable(table_of(framed, read_plan).to_pylist()) == comparable(rows.to_pylist())


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_a_projection_gives_the_named_columns_in_their_order(data):
    schema, rows = data.draw(schemas_and_rows())
    log = log_of(encoded(rows, schema, batch_bytes=2000))
    names = data.draw(st.permutations(rows.schema.names))
    names = names[: data.draw(st.integers(0, len(names)))]
    read_plan = plan(schema, names, ["_offset"])
    pieces = decoded(frames_of(log, read_plan, schema), schema, read_plan, framed=True)
    found = table_of(pieces, read_plan)
    assert found.schema.names == [*names, "_offset"]
    assert found.column("_offset").to_pylist() == list(range(rows.num_rows))
    assert comparable(found.select(names).to_pylist()) == comparable(
        [{name: row[name] for name in names} for row in rows.to_pylist()]
    )


def test_a_batch_keeps_to_its_size_and_its_offsets_follow_each_other():
    schema = schema_of("id BIGINT NOT NULL, text STRING")
    rows = rows_from(schema, [{"id": n, "text": "x" * (n % 700)} for n in range(3000)])
    batches = encoded(rows, schema, batch_bytes=20_000)
    assert max(map(len, batches)) <= 20_000
    assert min(map(len, batches[:-1])) > 8_000
    log = log_of(batches)
    expected = 0
    for position, header in iter_headers(log):
        assert header.base_offset == expected and header.records_count == (
            header.last_offset_delta + 1
        )
        assert crc_matches(log, position, header.size_in_bytes)
        expected = header.next_offset
    assert expected == 3000


def test_a_sequence_goes_on_from_batch_to_batch():
    schema = schema_of("id BIGINT")
    rows = rows_from(schema, [{"id": n} for n in range(500)])
    batches = encoded(
        rows,
        schema,
        batch_bytes=2000,
        producer_id=9,
        producer_epoch=2,
        base_sequence=40,
        transactional=True,
    )
    headers = [read_header(batch.data) for batch in batches]
    assert len(headers) > 1 and all(header.is_transactional for header in headers)
    assert [header.base_sequence for header in headers] == [
        40 + sum(batch.record_count for batch in batches[:n]) for n in range(len(batches))
    ]


def test_strings_with_few_values_are_stored_with_a_dictionary_and_others_are_not():
    schema = schema_of("city STRING, note STRING, code STRING")
    rows = rows_from(
        schema,
        [
            {"city": f"city number {n % 5}" if n % 9 else None, "note": f"note {n}", "code": "x"}
            for n in range(1000)
        ],
    )
    (batch,) = encoded(rows, schema)
    encodings = [entry.encoding for entry in read_directory(batch.data[61:]).entries]
    assert encodings == [DICTIONARY, 0, 0]
    assert table_of(decoded(log_of([batch]), schema), plan(schema)).to_pylist() == rows.to_pylist()


def test_empty_lists_that_are_cut_from_a_large_table_are_stored_without_the_rest():
    schema = schema_of("tags ARRAY<STRING>")
    rows = rows_from(schema, [{"tags": ["airport", "toll"]}] * 1_000 + [{"tags": []}])
    (batch,) = encoded(rows.slice(1_000), schema)
    assert len(batch.data) < 600
    assert decoded(log_of([batch]), schema)[0].batch.to_pylist() == [{"tags": []}]


def test_times_headers_and_tombstones_come_back():
    schema = schema_of("id BIGINT, text STRING NOT NULL", ["id"])
    rows = rows_from(schema, [{"id": n, "text": "x"} for n in range(4)])
    headers = [[{"key": "k", "value": b"v"}], None, [], [{"key": "", "value": None}]]
    (batch,) = encoded(
        rows,
        schema,
        timestamps=pa.array([5, None, 3, 4]),
        headers=pa.array(headers, HEADERS_TYPE),
        tombstones=pa.array([False, True, False, False]),
    )
    header = read_header(batch.data)
    assert (header.base_timestamp, header.max_timestamp) == (5, NOW)
    read_plan = plan(schema, metadata=["_deleted", "_headers", "_timestamp", "_offset"])
    (piece,) = decoded(log_of([batch]), schema, read_plan)
    found = piece.batch.to_pydict()
    assert found["id"] == [0, 1, 2, 3] and found["text"] == ["x", None, "x", "x"]
    assert found["_deleted"] == [False, True, False, False]
    assert found["_headers"] == [headers[0], None, None, headers[3]]
    assert piece.batch.column("_timestamp").cast(pa.int64()).to_pylist() == [
        5000,
        NOW * 1000,
        3000,
        4000,
    ]
    (piece,) = decoded(log_of([batch]), schema)
    assert piece.batch.column("id").to_pylist() == [0, 2, 3], "a tombstone is no row"


def test_rows_of_a_batch_with_the_time_of_the_append_have_that_time():
    schema = schema_of("id BIGINT")
    batches = encoded(
        rows_from(schema, [{"id": 1}, {"id": 2}]), schema, timestamps=pa.array([5, 6])
    )
    patch_log_append_time(batches[0].data, 0, 99)
    (piece,) = decoded(log_of(batches), schema, plan(schema, metadata=["_timestamp"]))
    assert piece.batch.column("_timestamp").cast(pa.int64()).to_pylist() == [99_000, 99_000]


def test_a_range_of_offsets_is_read():
    schema = schema_of("id BIGINT")
    batches = encoded(rows_from(schema, [{"id": n} for n in range(300)]), schema, batch_bytes=1000)
    pieces = decoded(log_of(batches), schema, start_offset=37, end_offset=241)
    assert [n for piece in pieces for n in piece.batch.column("id").to_pylist()] == list(
        range(37, 241)
    )
    assert pieces[-1].next_offset == 241


def test_a_large_batch_comes_in_several_pieces():
    schema = schema_of("id BIGINT")
    rows = rows_from(schema, [{"id": n} for n in range(120_000)])
    batches = encoded(rows, schema, batch_bytes=8 << 20)
    pieces = decoded(log_of(batches), schema)
    assert len(batches) == 1 and [len(piece) for piece in pieces] == [50_000, 50_000, 20_000]
    assert [piece.next_offset for piece in pieces] == [50_000, 100_000, 120_000]


def test_old_rows_are_read_in_a_later_version():
    schema = schema_of("id INT, f FLOAT, gone STRING, who STRUCT<age: SMALLINT>")
    old = {"id": 1, "f": 0.5, "gone": "x", "who": {"age": 7}}
    log = log_of(encoded(rows_from(schema, [old]), schema))
    later = schema.evolved(parse_ddl("id BIGINT, f DOUBLE, who STRUCT<age: INT>, added ARRAY<INT>"))
    pieces = decoded(log, later)
    assert pieces[0].batch.to_pylist() == [{"id": 1, "f": 0.5, "who": {"age": 7}, "added": None}]
    assert pieces[0].batch.schema == plan(later).arrow_schema
    named = plan(later, ["gone", "added"])
    framed = decoded(frames_of(log, named, later), later, named, framed=True)
    assert framed[0].batch.to_pylist() == [{"gone": "x", "added": None}]


def test_a_running_reader_keeps_its_version_and_asks_for_later_ones():
    schema = schema_of("id INT")
    later = schema.evolved(parse_ddl("id BIGINT, added STRING"))
    log = log_of(encoded(rows_from(later, [{"id": 5, "added": "x"}]), later))
    with pytest.raises(UnknownSchemaVersionError):
        decoded(log, schema)
    (piece,) = decoded(log, later, plan(schema))
    assert piece.batch.schema == plan(schema).arrow_schema
    assert piece.batch.to_pylist() == [{"id": 5}]
    log = log_of(encoded(rows_from(later, [{"id": 1 << 40}]), later))
    with pytest.raises(InvalidRecordError, match=r"'id' has values at offset 0 that don't fit INT"):
        decoded(log, later, plan(schema))


@pytest.mark.parametrize(
    ("rows", "row", "message"),
    [
        (pa.table({"id": [1, None]}), 1, r"row 1 has null in the column 'id', which is NOT NULL"),
        (pa.table({"n": pa.array([1], pa.int32())}), -1, "no column 'id', which is NOT NULL"),
        (pa.table({"id": [1], "m": [1]}), -1, "no column 'm': drop or rename it"),
        (pa.table({"id": pa.array([1], pa.int32())}), -1, "'id' has the Arrow type int32"),
        (pa.table({"id": [1], "ID": [2]}), -1, "'ID' twice"),
        (
            pa.table({"id": [1, 2], "a": pa.array([[1], [2, None]], pa.list_(pa.int32()))}),
            1,
            r"row 1 has null inside the column 'a' of type ARRAY<INT NOT NULL>",
        ),
        (
            pa.table(
                {
                    "id": [1],
                    "s": pa.Array.from_buffers(
                        pa.string(),
                        1,
                        [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")],
                    ),
                }
            ),
            -1,
            "'s' is no valid Arrow array",
        ),
    ],
)
def test_rows_that_do_not_fit_are_named(rows, row, message):
    schema = schema_of("id BIGINT NOT NULL, n INT, a ARRAY<INT NOT NULL>, s STRING")
    with pytest.raises(RowsDoNotFitError, match=message) as found:
        encoded(rows.to_batches()[0], schema)
    assert found.value.row == row


def test_nulls_deep_inside_are_found_in_their_row():
    schema = schema_of("m MAP<STRING, ARRAY<STRUCT<x: INT NOT NULL>>>")
    good = {"m": [("a", [{"x": 1}, None]), ("b", None)]}
    bad = {"m": [("a", []), ("b", [{"x": 1}, {"x": None}])]}
    rows = rows_from(schema, [{"m": None}, good, good, bad])
    with pytest.raises(RowsDoNotFitError, match="row 3 has null inside"):
        encoded(rows, schema)
    assert len(encoded(rows.slice(0, 3), schema)) == 1


def test_a_few_rows_of_a_large_table_are_checked_without_the_rest():
    schema = schema_of("a ARRAY<STRUCT<x: STRING NOT NULL>>, m MAP<STRING, INT>")
    rows = rows_from(schema, [{"a": [{"x": f"{n}"}, None], "m": [("k", n)]} for n in range(2_000)])
    few = rows.slice(1_000, 2)
    for _, array in fitting_columns(few, schema, schema.latest):
        assert array.get_total_buffer_size() < 1000
    assert table_of(decoded(log_of(encoded(few, schema)), schema), plan(schema)).to_pylist() == (
        few.to_pylist()
    )


def test_a_codec_that_columns_do_not_have_is_refused():
    schema = schema_of("id BIGINT")
    with pytest.raises(UnsupportedCompressionError, match="by gzip: use none, lz4 or zstd"):
        encoded(rows_from(schema, [{"id": 1}]), schema, compression=Codec.GZIP)
