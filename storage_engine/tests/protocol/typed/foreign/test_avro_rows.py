"""Rows of typed batches as Avro records."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError, RecordTooLargeError
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.protocol.records.record_batch import crc_matches, patch, read_header
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.typed import avro_rows
from storage_engine.tests.protocol.typed.foreign.avro_support import (
    as_avro,
    rows_in_avro,
    text_of,
    typed,
    values_in,
    writers_of,
)
from storage_engine.tests.protocol.typed.json_support import rows_in
from storage_engine.tests.protocol.typed.logs import encoded, log_of, rows_from, schema_of
from storage_engine.tests.protocol.typed.typed_values import (
    AVRO_TYPES,
    comparable,
    schemas_and_rows,
)
from storage_engine.tests.sampling import examples


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_fastavro_reads_every_row_and_it_becomes_the_same_row_again(data):
    schema, rows = data.draw(schemas_and_rows(kinds=AVRO_TYPES))
    log = log_of(encoded(rows, schema))
    assert comparable(values_in(log, schema)) == comparable(rows_in_avro(rows, schema))
    back = typed(as_avro(log, schema), schema, writers_of(text_of(schema)))
    assert comparable(rows_in(back, schema)) == comparable(rows.to_pylist())


def test_a_batch_keeps_its_offsets_producer_times_and_headers_as_avro():
    schema = schema_of("id BIGINT")
    headers = pa.array([[{"key": "k", "value": b"v"}], None, None], HEADERS_TYPE)
    (batch,) = encoded(
        rows_from(schema, [{"id": n} for n in range(3)]),
        schema,
        timestamps=pa.array([7, 3, 9]),
        headers=headers,
        producer_id=5,
        producer_epoch=1,
        base_sequence=70,
        transactional=True,
    )
    patch(batch.data, 0, base_offset=1000, leader_epoch=8)
    plain = as_avro(batch.data, schema)
    header, before = read_header(plain), read_header(batch.data)
    assert crc_matches(plain, 0, len(plain))
    assert header.is_transactional and not header.attributes & 0x80
    records = decode_batches([plain], include_headers=True)
    assert records.offsets.to_pylist() == [1000, 1001, 1002]
    assert records.timestamps_ms.to_pylist() == [7, 3, 9]
    assert records.headers.to_pylist() == headers.to_pylist()
    back = typed(plain, schema, writers_of(text_of(schema)))
    assert read_header(back)._replace(crc=0) == before._replace(crc=0)
    assert back[61:] == batch.data[61:], "the columns are the same bytes"


def test_tombstones_are_null_and_keys_are_texts():
    schema = schema_of("id BIGINT NOT NULL, v STRING NOT NULL", ["id"])
    rows = rows_from(schema, [{"id": 1, "v": "a"}, {"id": 2}, {"id": 3, "v": "c"}])
    log = log_of(encoded(rows, schema, tombstones=pa.array([False, True, False])))
    assert values_in(log, schema) == [{"id": 1, "v": "a"}, None, {"id": 3, "v": "c"}]
    plain = as_avro(log, schema)
    assert decode_batches([plain]).keys.to_pylist() == [b"1", b"2", b"3"]
    assert typed(plain, schema, writers_of(text_of(schema)))[61:] == log[61:]


def test_a_batch_of_nothing_but_tombstones():
    schema = schema_of("id BIGINT NOT NULL, v STRING", ["id"])
    rows = rows_from(schema, [{"id": 1}, {"id": 2}])
    log = log_of(encoded(rows, schema, tombstones=pa.array([True, True])))
    assert values_in(log, schema) == [None, None]


def test_avro_has_the_columns_of_the_latest_version_in_their_latest_types():
    schema = schema_of("id INT NOT NULL, f FLOAT, dec DECIMAL(3,1), gone STRING, a ARRAY<TINYINT>")
    row = {"id": 1, "f": 0.1, "gone": "x", "a": [3]}
    log = log_of(encoded(rows_from(schema, [row]), schema))
    later = schema.evolved(
        parse_ddl("id BIGINT NOT NULL, f DOUBLE, dec DECIMAL(9,1), a ARRAY<BIGINT>, added STRING")
    )
    assert values_in(log, later, schema_id=70_000) == [
        {"id": 1, "f": 0.10000000149011612, "dec": None, "a": [3], "added": None}
    ]


def test_a_batch_that_is_short_as_columns_but_long_as_avro_is_bounded(monkeypatch):
    schema = schema_of(", ".join(f"c{n} BIGINT" for n in range(1000)))
    (batch,) = encoded(rows_from(schema_of("c0 BIGINT"), [{}] * 300), schema)
    monkeypatch.setattr(avro_rows, "MAX_RECORDS_BYTES", 300_000)

    def never(*arguments):
        raise AssertionError("it was made")

    monkeypatch.setattr(avro_rows, "encode", never)
    with pytest.raises(RecordTooLargeError, match="bytes as Avro: read it with a client that"):
        as_avro(batch.data, schema)


def test_a_batch_that_turns_out_longer_than_was_estimated_is_bounded(monkeypatch):
    schema = schema_of("n BIGINT NOT NULL")
    (batch,) = encoded(rows_from(schema, [{"n": -(2**62)}] * 100), schema)
    monkeypatch.setattr(avro_rows, "MAX_RECORDS_BYTES", 1000)
    with pytest.raises(RecordTooLargeError, match="bytes as Avro"):
        as_avro(batch.data, schema)


@pytest.mark.parametrize(
    ("lenient", "strict", "value", "field"),
    [
        ("v STRING", "v STRING NOT NULL", None, "v"),
        ("v STRUCT<x: INT>", "v STRUCT<x: INT NOT NULL>", {"x": None}, "v.x"),
        ("v ARRAY<INT>", "v ARRAY<INT NOT NULL>", [1, None], "v"),
    ],
)
def test_a_null_that_only_a_faulty_client_writes_is_damage(lenient, strict, value, field):
    schema = schema_of(f"id BIGINT, {lenient}")
    rows = rows_from(schema, [{"id": 1, "v": value}])
    log = log_of(encoded(rows, schema), base_offset=40)
    told = f"at offset 40 is damaged: field '{field}': it is null, and the schema allows no null"
    with pytest.raises(CorruptRecordError, match=told):
        as_avro(log, schema_of(f"id BIGINT, {strict}"))
