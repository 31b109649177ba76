"""The columns of a stored batch."""

import pytest

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.record_batch import Codec, read_header
from storage_engine.protocol.typed.stored_rows import StoredRows
from storage_engine.tests.protocol.typed.logs import encoded, log_of, rows_from, schema_of


def test_the_columns_of_a_batch_decompress_to_no_more_than_the_limit():
    schema = schema_of("a BIGINT, b BIGINT")
    rows = rows_from(schema, [{"a": 0, "b": 0}] * 10_000)
    log = log_of(encoded(rows, schema, compression=Codec.ZSTD))
    assert len(log) < 2000
    stored = StoredRows.of_batch(read_header(log), log, schema, max_bytes=100_000)
    assert stored.column(1) is not None
    with pytest.raises(CorruptRecordError, match="more than the 100000 bytes allowed"):
        stored.column(2)
