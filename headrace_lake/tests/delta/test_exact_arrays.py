"""Parts that are never null, inside of nulls."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace_lake.delta.exact_arrays import with_exact_types
from headrace_lake.protocol.columns import file_type
from storage_engine.core.typed.ddl import parse_type
from storage_engine.protocol.typed.arrow_types import arrow_type

CASES = {
    "STRUCT<a: INT NOT NULL, b: STRING>": [{"a": 1, "b": None}, None, {"a": 2, "b": "x"}, None],
    "ARRAY<STRING NOT NULL>": [["a", "b"], None, [], ["c"]],
    "MAP<STRING, INT NOT NULL>": [[("a", 1)], None, [], [("b", 2), ("c", 3)]],
    "ARRAY<STRUCT<a: ARRAY<INT NOT NULL> NOT NULL> NOT NULL>": [[{"a": [1, 2]}], None, [], None],
    "STRUCT<m: MAP<STRING, STRUCT<a: BIGINT NOT NULL>>>": [{"m": [("k", {"a": 1})]}, None, None],
}


@pytest.mark.parametrize(("ddl", "values"), CASES.items())
@pytest.mark.parametrize("offset", [0, 1])
def test_values_stay_and_read_back(tmp_path, ddl, values, offset):
    kind = parse_type(ddl)
    column = pa.chunked_array(
        [pa.array(values, arrow_type(kind)), pa.array(values, arrow_type(kind))]
    )
    rows = pa.table({"c": column}).slice(offset)
    exact = with_exact_types(rows, pa.schema([pa.field("c", file_type(kind))]))
    exact.validate(full=True)
    assert exact["c"].to_pylist() == (values + values)[offset:]
    pq.write_table(exact, tmp_path / "file", store_schema=False)
    assert pq.read_table(tmp_path / "file")["c"].to_pylist() == (values + values)[offset:]


def test_a_null_that_must_not_be_there_is_refused(tmp_path):
    kind = parse_type("STRUCT<a: INT NOT NULL>")
    rows = pa.table({"c": pa.array([{"a": None}], arrow_type(kind))})
    exact = with_exact_types(rows, pa.schema([pa.field("c", file_type(kind))]))
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        pq.write_table(exact, tmp_path / "file")


def test_intervals_become_microseconds():
    rows = pa.table({"c": pa.array([5, None], pa.duration("us"))})
    schema = pa.schema([pa.field("c", file_type(parse_type("INTERVAL DAY TO SECOND")))])
    assert with_exact_types(rows, schema)["c"].to_pylist() == [5, None]
