"""Others read a table equal: each type, nulls, several files, and files that were put together."""

from zoneinfo import ZoneInfo

import deltalake
import duckdb
import polars
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension

from headrace_lake.delta.compaction import compact
from headrace_lake.tests.lake_tables import EXACT, exact_row, exact_rows, opened, write

ROWS = 40
INTERVAL = "took"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("table")
    table = opened(made, EXACT)
    for first in range(0, 30, 5):
        write(table, exact_rows(first, first + 5), first or None, first + 5, shape=EXACT)
    assert compact(opened(made, EXACT), 10**6, whole_tail=True).files_after == 1
    write(table, exact_rows(30, ROWS), 30, ROWS, shape=EXACT)
    return str(made)


@pytest.fixture(scope="module")
def expected() -> list[dict]:
    names = EXACT.row_schema.names
    return [{name: exact_row(each).get(name) for name in names} for each in range(ROWS)]


def by_offset(rows: list[dict]) -> list[dict]:
    return sorted(rows, key=lambda each: each["_offset"])


def test_deltalake_and_arrow(folder, expected):
    rows = deltalake.DeltaTable(folder).to_pyarrow_table()
    assert by_offset(rows.to_pylist()) == expected


def test_pandas(folder, expected):
    frame = deltalake.DeltaTable(folder).to_pandas(types_mapper=None)
    assert sorted(frame["_offset"]) == list(range(ROWS))
    assert frame.sort_values("_offset")["exact"].tolist() == [each["exact"] for each in expected]


def test_the_engine_of_deltalake_leaves_out_files_by_our_statistics(folder):
    table = deltalake.DeltaTable(folder)
    place = "arrow_cast('-12345678901234567860.5', 'Decimal128(38, 10)')"
    found = (
        deltalake.QueryBuilder()
        .register("t", table)
        .execute(f"select _offset from t where exact > {place} or _offset = 3 order by 1")
    )
    offsets = pa.table(found.read_all())["_offset"].to_pylist()
    assert offsets == [3, *(each for each in range(30, ROWS) if each % 5 != 4)]


def test_polars(folder, expected):
    frame = polars.read_delta(folder).sort("_offset")
    # Maps are lists of pairs in Python, as in Arrow.
    rows = [each | {"names": _pairs(each["names"])} for each in frame.to_dicts()]
    assert rows == expected
    few = polars.scan_delta(folder).filter(polars.col("_offset") >= 35).collect()
    assert sorted(few["_offset"].to_list()) == list(range(35, ROWS))


def _pairs(value):
    if isinstance(value, dict):
        return list(value.items())
    if value and isinstance(value[0], dict):
        return [(each["key"], each["value"]) for each in value]
    return value


@pytest.fixture(scope="module")
def duck(folder):
    import_extension("delta")
    with duckdb.connect() as connection:
        connection.execute("LOAD delta")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TEMP TABLE held AS SELECT * FROM delta_scan('{folder}')")
        yield connection


def test_duckdb(folder, expected, duck):
    found = duck.execute(f"SELECT * FROM delta_scan('{folder}') ORDER BY _offset")
    names = [each[0] for each in found.description]
    rows = [dict(zip(names, each, strict=True)) for each in found.fetchall()]
    for each in rows:
        for name in ("at", "_timestamp"):
            if each[name] is not None:
                each[name] = each[name].astimezone(ZoneInfo("UTC"))
        each["names"] = _pairs(each["names"])
    assert rows == expected


@pytest.mark.parametrize(
    "where",
    [
        "_offset BETWEEN 33 AND 36",
        "exact > -12345678901234567870",
        "\"at\" > TIMESTAMPTZ '2026-01-01 01:02:03.456822+00'",
        "local > TIMESTAMP '1969-01-01 00:00:00.000033'",
        "day >= DATE '1900-02-03'",
        "text > 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx35'",
        "price > 0.34",
        "double > 11",
    ],
)
def test_a_filter_of_duckdb_finds_what_is_there(folder, duck, where):
    found = duck.execute(f"SELECT _offset FROM delta_scan('{folder}') WHERE {where} ORDER BY 1")
    offsets = found.fetchall()
    # No file can be left out of a table that was read whole.
    same = duck.execute(f"SELECT _offset FROM held WHERE {where} ORDER BY 1")
    assert offsets == same.fetchall()
    assert 0 < len(offsets) < ROWS
