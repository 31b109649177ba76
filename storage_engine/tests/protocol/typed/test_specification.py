"""The reader in docs/typed-topics.md reads what our encoder writes."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from storage_engine.protocol.records.record_batch import Codec, empty_batch
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.tests.protocol.typed.logs import encoded, log_of, rows_from, schema_of

DOCUMENT = Path(__file__).parents[4] / "docs" / "typed-topics.md"


def documented_reader():
    (code,) = re.findall(
        r"```python\n(import struct\n.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S
    )
    assert len(list(filter(None, code.splitlines()))) <= 30
    names: dict = {}
    exec(code, names)
    return names["read_column"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_the_documented_reader_reads_a_segment(codec):
    schema = schema_of(
        "id BIGINT, city STRING, note STRING, price DECIMAL(10,2), tags MAP<STRING, ARRAY<INT>>,"
        " at TIMESTAMP, wait INTERVAL DAY TO SECOND, never STRING"
    )
    rows = rows_from(
        schema,
        [
            {
                "id": n,
                "city": f"city number {n % 3}" if n % 7 else None,
                "note": "x" * (n % 50),
                "tags": [("a", [n])],
            }
            for n in range(2000)
        ],
    )
    batches = log_of(encoded(rows, schema, compression=codec, batch_bytes=30_000))
    log = bytes(batches) + empty_batch(base_offset=2000, next_offset=2001, leader_epoch=0)
    read_column = documented_reader()
    for column in schema.latest.columns:
        found = read_column(log, column.column_id, arrow_type(column.type))
        assert found.num_chunks > 2
        assert found.combine_chunks().equals(
            pa.chunked_array([rows.column(column.name)]).combine_chunks()
        )
