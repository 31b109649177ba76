"""The rows of the comparison of typed topics, and their sizes."""

import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.typed.columns import (
    ALL,
    JSON_BYTES,
    PIECE_ROWS,
    SCHEMA,
    TWO,
    ddl,
    made_of,
    make_rows,
    share_where,
)
from storage_engine.core.typed.schema_text import parse_schema
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.core.typed.where import parse_where
from storage_engine.protocol.typed.arrow_types import arrow_schema


def test_a_row_follows_from_its_id_whoever_makes_it():
    pieces = pa.Table.from_batches(made_of(0, PIECE_ROWS + 10))
    alone = make_rows(PIECE_ROWS - 5, 10)
    assert pieces.slice(PIECE_ROWS - 5, 10).to_pylist() == alone.to_pylist()
    two = make_rows(PIECE_ROWS - 5, 10, TWO)
    assert two.to_pylist() == alone.select(TWO).to_pylist()


def test_the_rows_are_sound_and_have_the_types_of_the_schema():
    rows = make_rows(1_000_000, 1_000)
    rows.validate(full=True)
    columns = new_schema(parse_schema(ddl()), ()).latest.visible
    assert arrow_schema(columns).equals(SCHEMA)
    assert len(ALL) == 20
    assert 0 < rows.column("shared").null_count < 100


def test_rows_have_as_many_bytes_as_json_as_is_said():
    rows = make_rows(1_000_000, 1_000)
    texts = [json.dumps(row, separators=(",", ":")) for row in as_json(rows)]
    assert sum(map(len, texts)) / len(texts) == pytest.approx(JSON_BYTES, abs=1)


def as_json(rows: pa.RecordBatch):
    """As `to_json` of Spark has them: no nulls, decimals as numbers, milliseconds."""
    for row in rows.to_pylist():
        for name in ("at", "dropped_at"):
            row[name] = row[name].replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        for name in ("tip", "total"):
            row[name] = float(row[name])
        yield {name: value for name, value in row.items() if value is not None}


def test_the_filter_matches_its_share_of_the_rows():
    where, matching = share_where(0.01, 10_000)
    assert matching == 100
    version = new_schema(parse_schema(ddl()), ()).latest
    first, last = (each.values[0] for each in parse_where(where, version))
    times = make_rows(0, 10_000).column("at").cast(pa.int64())
    chosen = pc.and_(pc.greater_equal(times, first), pc.less(times, last))
    assert pc.sum(chosen).as_py() == matching
