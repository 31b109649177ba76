"""Typed batches become rows: ranges, pieces, versions, metadata columns."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import ConfigError, InvalidRecordError
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import ColumnSpec, UnknownSchemaVersionError
from storage_engine.protocol.records.record_batch import Codec, patch_log_append_time, read_header
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
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
from storage_engine.tests.protocol.typed.typed_values import comparable, schemas_and_rows
from storage_engine.tests.sampling import examples

SCHEMA = schema_of("id BIGINT NOT NULL, s STRING, d DOUBLE, a ARRAY<STRING>, p DECIMAL(9,2)")


def test_a_column_that_is_given_and_compared_is_loaded_once():
    read_plan = plan(SCHEMA, ["id", "d"], filter=[Comparison(3, Operator.GE, (0.5,))] * 2)
    assert [each.column.name for each in read_plan.loaded] == ["id", "d"]
    rows = rows_from(SCHEMA, [{"id": n, "d": float(n)} for n in range(3)])
    (piece,) = decoded(log_of(encoded(rows, SCHEMA)), SCHEMA, read_plan)
    assert piece.batch.to_pylist() == [{"id": 1, "d": 1.0}, {"id": 2, "d": 2.0}]


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


def test_a_filter_goes_by_columns_that_are_not_read():
    schema = schema_of("id BIGINT, text STRING")
    rows = rows_from(schema, [{"id": n, "text": str(n)} for n in range(100)])
    log = log_of(encoded(rows, schema))
    read_plan = plan(schema, ["text"], filter=[Comparison(1, Operator.GE, (98,))])
    assert set(read_plan.column_ids) == {1, 2}
    (piece,) = decoded(frames_of(log, read_plan, schema), schema, read_plan, framed=True)
    assert piece.batch.to_pydict() == {"text": ["98", "99"]}


def test_columns_added_later_are_null_in_old_batches_for_filters_too():
    schema = schema_of("id BIGINT")
    later = schema.evolved(
        [ColumnSpec("id", types.IntegerColumn(64)), ColumnSpec("n", types.StringColumn())]
    )
    log = log_of(encoded(rows_from(schema, [{"id": 1}]), schema))
    for operator, expected in ((Operator.IS_NULL, [1]), (Operator.IS_NOT_NULL, [])):
        read_plan = plan(later, ["id"], filter=[Comparison(2, operator)])
        pieces = decoded(frames_of(log, read_plan, later), later, read_plan, framed=True)
        assert [n for p in pieces for n in p.batch.column("id").to_pylist()] == expected


@pytest.mark.parametrize(
    ("names", "metadata", "wanted", "message"),
    [
        (["idd"], [], [], "id"),
        (["id", "ID"], [], [], "named twice"),
        (None, ["_offst"], [], "'_offst' is no metadata column: use _offset, _timestamp"),
        (None, [], [Comparison(9, Operator.IS_NULL)], "the column 9, which the schema's version 1"),
    ],
)
def test_a_plan_for_what_does_not_exist_is_refused(names, metadata, wanted, message):
    with pytest.raises(ConfigError, match=message):
        plan(schema_of("id BIGINT"), names, metadata, wanted)
