"""Rows become typed batches: their size, their sequence, how columns are stored."""

import subprocess
import sys

import pytest

from storage_engine.core.errors import UnsupportedCompressionError
from storage_engine.protocol.records.record_batch import (
    Codec,
    crc_matches,
    iter_headers,
    read_header,
)
from storage_engine.protocol.typed.directory import DICTIONARY, read_directory
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.logs import (
    decoded,
    encoded,
    log_of,
    rows_from,
    schema_of,
    table_of,
)


def test_reading_and_writing_rows_does_not_import_pandas_or_the_table_of_kernels():
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "from uuid import UUID\n"
        "import pyarrow as pa\n"
        "from storage_engine.core.typed.ddl import parse_ddl\n"
        "from storage_engine.core.typed.topic_schema import new_schema\n"
        "from storage_engine.core.typed.comparisons import Comparison, Operator\n"
        "from storage_engine.protocol.typed.typed_encoder import iter_typed\n"
        "from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan\n"
        "schema = new_schema(parse_ddl('id BIGINT, m MAP<STRING, ARRAY<INT>>, s STRING'))\n"
        "ids = pa.Array.from_buffers(pa.int64(), 100, [None, pa.py_buffer(bytes(800))])\n"
        "rows = pa.RecordBatch.from_arrays([ids], names=['id'])\n"
        "batches = list(iter_typed(rows, schema, schema.latest, UUID(int=1)))\n"
        "read = plan(schema, filter=[Comparison(1, Operator.IN, (0, 5))])\n"
        "found = iter_typed_decoded(\n"
        "    batches[0].data, read, framed=False, topic_schema=schema)\n"
        "assert [len(piece) for piece in found] == [100]\n"
        "print('pyarrow.compute' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("False\n", 0), run.stderr


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


def test_a_codec_that_columns_do_not_have_is_refused():
    schema = schema_of("id BIGINT")
    with pytest.raises(UnsupportedCompressionError, match="by gzip: use none, lz4 or zstd"):
        encoded(rows_from(schema, [{"id": 1}]), schema, compression=Codec.GZIP)
