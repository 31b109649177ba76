"""Statistics are bounds of the values, for each type; ours are compared with Arrow's own."""

import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace_lake.delta.data_files import DataFile, RowFiles
from headrace_lake.delta.store import TableStore
from headrace_lake.tests.lake_tables import EXACT, exact_rows


def written(folder, rows: pa.Table) -> DataFile:
    files = RowFiles(TableStore(str(folder)), rows.schema, order=1)
    # Two row groups, whose bounds are put together.
    files.write(rows.slice(0, 3))
    (file,) = files._open.values()
    file._write_group()
    files.write(rows.slice(3))
    (done,) = files.finish()
    return done


def statistics(folder, rows: pa.Table) -> dict:
    return json.loads(written(folder, rows).statistics, parse_float=Decimal)


def test_the_bounds_of_each_type_are_those_of_the_values(tmp_path):
    rows = exact_rows(0, 10)
    found = statistics(tmp_path, rows)
    low, high, nulls = found["minValues"], found["maxValues"], found["nullCount"]
    assert found["numRecords"] == 10
    for name in ("tiny", "small", "whole", "large", "took", "price", "exact", "_offset"):
        values = [each for each in rows[name].to_pylist() if each is not None]
        assert (low[name], high[name]) == (min(values), max(values)), name
        assert nulls[name] == rows[name].null_count
    for name in ("single", "double"):
        assert float(low[name]) == pc.min(rows[name]).as_py()
        assert float(high[name]) == pc.max(rows[name]).as_py()
    assert (low["flag"], high["flag"]) == (False, True)
    assert (low["day"], high["day"]) == ("1900-01-01", "1900-01-09")
    assert (low["at"], high["at"]) == ("2026-01-01T01:02:03.456Z", "2026-01-01T01:02:03.457Z")
    assert (low["local"], high["local"]) == ("1969-01-01T00:00:00.000", "1969-01-01T00:00:00.001")
    assert low["text"] == "x" * 32
    assert high["text"] == "x" * 32 + "\U0010ffff"
    assert (low["who"], high["who"]) == ({"name": "n0", "age": 0}, {"name": "n8", "age": 8})
    assert nulls["who"] == {"name": 2, "age": 2}
    assert nulls["bytes"] == 2
    assert not {"bytes", "tags", "names"} & set(low)


def test_a_column_with_a_nan_has_no_bounds(tmp_path):
    rows = pa.table({"a": [1.0, float("nan"), 2.0, 3.0], "b": [1.0, 2.0, None, 3.0]})
    found = statistics(tmp_path, rows)
    assert set(found["minValues"]) == {"b"}
    assert found["nullCount"] == {"a": 0, "b": 1}


def test_a_column_with_an_infinite_number_has_no_bounds(tmp_path):
    rows = pa.table({"a": [1.0, float("inf"), 2.0, 3.0], "b": [1.0, 2.0, -float("inf"), 3.0]})
    found = statistics(tmp_path, rows.append_column("c", pa.array([1.0, 2.0, 3.0, 4.0])))
    assert set(found["minValues"]) == {"c"}
    assert found["nullCount"] == {"a": 0, "b": 0, "c": 0}


@pytest.mark.parametrize("year_us", [-(10**17), 10**18])
def test_times_that_no_reader_parses_have_no_bounds(tmp_path, year_us):
    at = pa.array([0, 1, 2, year_us]).cast(pa.timestamp("us", tz="UTC"))
    day = pa.array([0, 1, 2, year_us // 86_400_000_000], pa.int32()).cast(pa.date32())
    found = statistics(tmp_path, pa.table({"at": at, "day": day, "n": [1, 2, 3, 4]}))
    assert set(found["minValues"]) == {"n"}


def test_a_column_of_nulls_has_a_count_and_no_bounds(tmp_path):
    rows = pa.table({"a": pa.nulls(5, pa.int64()), "b": [None, None, None, 4, 5]})
    found = statistics(tmp_path, rows)
    assert found["minValues"] == {"b": 4}
    assert found["nullCount"] == {"a": 5, "b": 3}


def test_the_place_has_bounds_however_many_columns_there_are(tmp_path):
    columns = {f"c{number}": [1, 2, 3, 4] for number in range(40)}
    rows = pa.table({**columns, "_offset": [7, 8, 9, 10]})
    found = statistics(tmp_path, rows)
    assert len(found["minValues"]) == 33
    assert (found["minValues"]["_offset"], found["maxValues"]["_offset"]) == (7, 10)


def test_files_are_closed_at_the_target_and_rows_keep_their_order(tmp_path):
    store = TableStore(str(tmp_path))
    files = RowFiles(store, EXACT.row_schema, order=3, target_bytes=4_000)
    for first in range(0, 400, 100):
        files.write(exact_rows(first, first + 100))
        for file in list(files._open.values()):
            file._write_group()
        assert files.buffered_bytes == 0
    done = files.finish()
    assert len(done) > 1
    assert sum(each.rows for each in done) == 400
    assert [each.size_bytes for each in done] == [
        (tmp_path / each.path).stat().st_size for each in done
    ]


def test_what_is_abandoned_leaves_no_file(tmp_path):
    files = RowFiles(TableStore(str(tmp_path)), EXACT.row_schema, order=3)
    files.write(exact_rows(0, 10))
    files.abandon()
    assert not list(tmp_path.glob("*.parquet"))
