"""Rows of typed batches as JSON records."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import RecordTooLargeError
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.protocol.records.record_batch import crc_matches, patch, read_header
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.tests.protocol.typed.json_support import (
    as_json,
    parsed,
    plain_json,
    rows_in,
    same,
    typed,
)
from storage_engine.tests.protocol.typed.logs import encoded, log_of, rows_from, schema_of
from storage_engine.tests.protocol.typed.typed_values import comparable, schemas_and_rows
from storage_engine.tests.sampling import examples


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_every_row_is_a_json_object_of_the_same_values_and_becomes_the_same_row_again(data):
    schema, rows = data.draw(schemas_and_rows())
    log = log_of(encoded(rows, schema))
    plain = as_json(log, schema)
    found = decode_batches([plain]).values.to_pylist()
    for text, row in zip(found, rows.to_pylist(), strict=True):
        expected = {c.name: plain_json(row[c.name], c.type) for c in schema.latest.visible}
        assert same(parsed(text), expected), (text, expected)
    assert comparable(rows_in(typed(plain, schema), schema)) == comparable(rows.to_pylist())


def test_a_batch_keeps_its_offsets_producer_times_and_headers_as_json():
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
    plain = as_json(batch.data, schema)
    header, before = read_header(plain), read_header(batch.data)
    assert crc_matches(plain, 0, len(plain))
    same_fields = "base_offset partition_leader_epoch last_offset_delta max_timestamp producer_id"
    for name in (*same_fields.split(), "producer_epoch", "base_sequence", "records_count"):
        assert getattr(header, name) == getattr(before, name)
    assert header.is_transactional and not header.attributes & 0x80
    records = decode_batches([plain], include_headers=True)
    assert records.offsets.to_pylist() == [1000, 1001, 1002]
    assert records.timestamps_ms.to_pylist() == [7, 3, 9]
    assert records.headers.to_pylist() == headers.to_pylist()
    back = typed(plain, schema)
    assert read_header(back)[:4] + read_header(back)[6:] == (
        *before[:1],
        read_header(back).length,
        *before[2:4],
        *before[6:],
    )
    assert back[61:] == batch.data[61:], "the columns are the same bytes"


def test_a_batch_that_is_short_as_columns_but_long_as_json_is_bounded():
    schema = schema_of(", ".join(f"column_{n} BIGINT" for n in range(1000)))
    rows = rows_from(schema_of("column_0 BIGINT"), [{}] * 20_000)
    (batch,) = encoded(rows, schema)
    with pytest.raises(RecordTooLargeError, match="bytes as JSON: read it with a client that"):
        as_json(batch.data, schema)


def test_json_has_the_columns_of_the_latest_version_in_their_latest_types():
    schema = schema_of("id INT, f FLOAT, gone STRING")
    log = log_of(encoded(rows_from(schema, [{"id": 1, "f": 0.1, "gone": "x"}]), schema))
    later = schema.evolved(parse_ddl("id BIGINT, f DOUBLE, added STRING"))
    (value,) = decode_batches([as_json(log, later)]).values.to_pylist()
    assert json.loads(value) == {"id": 1, "f": 0.10000000149011612, "added": None}
