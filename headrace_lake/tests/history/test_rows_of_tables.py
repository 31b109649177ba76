"""Rows read from a table are those that the log gave, whatever happened to its files."""

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable

from headrace_lake.delta.compaction import compact
from headrace_lake.delta.data_files import RowFiles
from headrace_lake.history.errors import HistoryError
from headrace_lake.history.row_filters import HistoryFilter
from headrace_lake.history.row_group_index import RowGroupIndex
from headrace_lake.history.slice_rows import HistoryColumn, HistoryRead, read_slice
from headrace_lake.history.slices import plan_slices
from headrace_lake.history.table_version import TablePlace, load_version
from headrace_lake.protocol.columns import typed_shape
from headrace_lake.protocol.stops import TableStoppedError
from headrace_lake.tests.lake_tables import (
    ALL_TYPES,
    EXACT,
    PLAIN,
    TOPIC,
    exact_rows,
    opened,
    place_of,
    plain_rows,
    schema_of_types,
    write,
)
from storage_engine.core.typed.ddl import parse_type
from storage_engine.core.typed.where import parse_where
from storage_engine.protocol.typed.arrow_types import arrow_type

PLACES = {"_partition": pa.int32(), "_offset": pa.int64()}


def reading(types, where=None, names=None):
    """A read of these columns and the place."""
    schema = schema_of_types(types)
    kinds = {name: arrow_type(parse_type(text)) for name, text in types.items()} | PLACES
    filters = () if where is None else parse_where(where, schema.latest)
    return HistoryRead(
        topic="trips",
        columns=tuple(
            HistoryColumn(name=name, column=name, type=kinds[name])
            for name in names or (*types, *PLACES)
        ),
        filters=tuple(
            HistoryFilter(
                column=schema.latest.by_id[each.column_id].name,
                type=schema.latest.by_id[each.column_id].type,
                comparison=each,
            )
            for each in filters
        ),
    )


TEXTS = {"id": "BIGINT", "text": "STRING"}


def version_of(folder):
    return load_version(TablePlace(location=str(folder)), TOPIC, range(4))


def slices_of(folder, wanted, target_bytes=10**9):
    found = version_of(folder)
    groups = RowGroupIndex().groups(found, wanted)
    return plan_slices(groups, wanted, target_bytes=target_bytes)


def rows_read(folder, wanted, read, **options):
    batches = [
        batch
        for part in slices_of(folder, wanted, **options)
        for batch in read_slice(
            TablePlace(location=str(folder)), part, read, lambda: version_of(folder)
        )
    ]
    return pa.Table.from_batches(batches, schema=read.schema)


def test_each_type_is_read_as_the_log_gives_it(tmp_path):
    table = opened(tmp_path, EXACT)
    given = exact_rows(0, 50)
    write(table, given, None, 50, shape=EXACT)
    read = rows_read(tmp_path, {0: (0, 50)}, reading(ALL_TYPES))
    assert read.schema.field("took").type == pa.duration("us")
    assert read.schema.field("who").type == arrow_type(parse_type(ALL_TYPES["who"]))
    for name in (*ALL_TYPES, *PLACES):
        column = read[name].cast(pa.int64()) if name == "took" else read[name]
        assert column.to_pylist() == given[name].to_pylist(), name


def test_intervals_inside_others_are_read_as_the_log_gives_them(tmp_path):
    types = {
        "spans": "ARRAY<INTERVAL DAY TO SECOND>",
        "by_name": "MAP<STRING, INTERVAL DAY TO SECOND>",
        "one": "STRUCT<took: INTERVAL DAY TO SECOND, tags: ARRAY<STRING>>",
    }
    shape = typed_shape("trips", schema_of_types(types))
    values: list[dict] = [
        {"spans": [1, None], "by_name": [("a", 2)], "one": {"took": 3, "tags": ["x"]}},
        {"spans": None, "by_name": None, "one": None},
        {"spans": [], "by_name": [("b", None)], "one": {"took": None, "tags": None}},
    ]
    rows = [value | place_of(0, number) for number, value in enumerate(values)]
    write(
        opened(tmp_path, shape),
        pa.Table.from_pylist(rows, schema=shape.row_schema),
        None,
        3,
        shape=shape,
    )
    for start in (0, 1):
        read = rows_read(tmp_path, {0: (start, 3)}, reading(types))
        kinds = {name: arrow_type(parse_type(text)) for name, text in types.items()}
        expected = pa.Table.from_pylist(values[start:], schema=pa.schema(kinds.items()))
        assert read.select(list(types)).equals(expected)


def test_a_range_is_read_in_order_although_files_interleave(tmp_path):
    """As files do that are divided by a column, or were put together around another."""
    shape = typed_shape("trips", schema_of_types(TEXTS), ("text",))
    table = opened(tmp_path, shape)
    chance = random.Random(5)
    for first in range(0, 300, 100):
        rows = [
            {"id": n, "text": chance.choice("abc"), **place_of(p, n)}
            for n in range(first, first + 100)
            for p in (0, 1)
        ]
        files = pa.Table.from_pylist(rows, schema=shape.row_schema)
        write(table, files, first or None, first + 100, shape=shape)
    read = rows_read(tmp_path, {0: (50, 250), 1: (0, 10)}, reading(TEXTS), target_bytes=1)
    places = list(zip(read["_partition"].to_pylist(), read["_offset"].to_pylist(), strict=True))
    assert [n for p, n in places if p == 0] == list(range(50, 250))
    assert [n for p, n in places if p == 1] == list(range(10))
    assert read["id"].to_pylist() == [n for _, n in places]
    assert set(read["text"].to_pylist()) == set("abc")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id >= 95", range(95, 100)),
        ("text IN ('0-7', '0-8') AND id < 8", [7]),
        ("text IS NULL", []),
        ("id > 1000", []),
    ],
)
def test_only_rows_that_match_are_read(tmp_path, where, expected):
    table = opened(tmp_path)
    for first in range(0, 100, 20):
        write(table, plain_rows(first, first + 20), first or None, first + 20)
    read = rows_read(tmp_path, {0: (0, 100)}, reading(TEXTS, where, ("id",)))
    assert read["id"].to_pylist() == list(expected)


@pytest.mark.parametrize("what", ["flag", "small", "single", "price", "text", "bytes", "day", "at"])
def test_row_groups_are_passed_over_by_each_type_of_column(tmp_path, what):
    """With bounds of a row group the same rows are found as without."""
    table = opened(tmp_path, EXACT)
    for first in range(0, 50, 5):
        write(table, exact_rows(first, first + 5), first or None, first + 5, shape=EXACT)
    texts = {
        "flag": "flag = true",
        "small": "small <= -40",
        "single": "single > 20.0",
        "price": "price BETWEEN 0.10 AND 0.12",
        "text": f"text = '{'x' * 50}7'",
        "bytes": "bytes = X'FF37'",
        "day": "day < DATE '1900-01-03'",
        "at": "at >= TIMESTAMP '2026-01-01 01:02:03.456830Z'",
    }
    numbers = {
        "flag": lambda n: n % 2 == 0,
        "small": lambda n: n >= 40,
        "single": lambda n: n > 40,
        "price": lambda n: 10 <= n <= 12,
        "text": lambda n: n == 7,
        "bytes": lambda n: n == 7,
        "day": lambda n: n < 2,
        "at": lambda n: n >= 41,
    }
    read = rows_read(tmp_path, {0: (0, 50)}, reading(ALL_TYPES, texts[what], ("_offset",)))
    found = [n for n in range(50) if n % 5 != 4 and numbers[what](n)]
    assert read["_offset"].to_pylist() == found


def test_files_that_are_gone_meanwhile_are_read_from_a_later_version(tmp_path):
    table = opened(tmp_path)
    for first in range(0, 100, 10):
        write(table, plain_rows(first, first + 10), first or None, first + 10)
    (part,) = slices_of(tmp_path, {0: (5, 95)})
    place = TablePlace(location=str(tmp_path))
    read = read_slice(place, part, reading(TEXTS), lambda: version_of(tmp_path))
    found = next(read)["id"].to_pylist() + next(read)["id"].to_pylist()
    compact(opened(tmp_path), whole_tail=True)
    named = {each.path for each in version_of(tmp_path).files}
    for each in Path(tmp_path).glob("*.parquet"):
        if each.name not in named:
            each.unlink()
    found += [value for batch in read for value in batch["id"].to_pylist()]
    assert found == list(range(5, 95))


def test_a_file_that_the_newest_version_names_and_that_is_not_there_is_told(tmp_path):
    write(opened(tmp_path), plain_rows(0, 10), None, 10)
    (part,) = slices_of(tmp_path, {0: (0, 10)})
    for each in Path(tmp_path).glob("*.parquet"):
        each.unlink()
    place = TablePlace(location=str(tmp_path))
    with pytest.raises(HistoryError, match="still names it"):
        list(read_slice(place, part, reading(TEXTS), lambda: version_of(tmp_path)))


def test_files_that_others_put_together_are_read_too(tmp_path):
    shape = typed_shape("trips", schema_of_types(TEXTS), ("text",))
    table = opened(tmp_path, shape)
    for first in (0, 10):
        rows = [
            {"id": n, "text": ("a b", "c=%d", "e/f")[n % 3], **place_of(0, n)}
            for n in range(first, first + 10)
        ]
        write(
            table,
            pa.Table.from_pylist(rows, schema=shape.row_schema),
            first or None,
            first + 10,
            shape=shape,
        )
    DeltaTable(str(tmp_path)).optimize.compact()
    read = rows_read(tmp_path, {0: (0, 20)}, reading(TEXTS))
    assert read["id"].to_pylist() == list(range(20))
    assert read["text"].to_pylist() == [("a b", "c=%d", "e/f")[n % 3] for n in range(20)]


def test_an_offset_that_others_added_a_second_time_is_told(tmp_path):
    table = opened(tmp_path)
    write(table, plain_rows(0, 10), None, 10)
    files = RowFiles(table.store, PLAIN.row_schema, (), order=9)
    files.write(plain_rows(3, 4))
    table.commit(files.finish(), {}, "by-others")
    with pytest.raises(HistoryError, match="an offset twice"):
        rows_read(tmp_path, {0: (0, 10)}, reading(TEXTS))


def test_the_first_offset_of_a_partition_is_that_of_its_first_row(tmp_path):
    table = opened(tmp_path)
    write(table, pa.concat_tables([plain_rows(7, 10), plain_rows(50, 60, 1)]), None, 12)
    write(table, pa.concat_tables([plain_rows(12, 20), plain_rows(40, 50, 1)]), 12, 22)
    found, index = version_of(tmp_path), RowGroupIndex()
    assert found.ends == {0: 22}
    assert [index.start(found, each) for each in (0, 1, 2)] == [7, 40, None]


def test_a_planning_process_reads_an_index_and_a_task_rows_without_pandas(tmp_path):
    """Which takes half a second to load, in each query."""
    write(opened(tmp_path), pa.concat_tables([plain_rows(0, 9), plain_rows(0, 9, 1)]), None, 9)
    script = f"""
import sys
from headrace_lake.tests.history.test_rows_of_tables import TEXTS, reading, slices_of
from headrace_lake.history.slice_rows import read_slice
from headrace_lake.history.table_version import TablePlace
assert "pandas" not in sys.modules
(part,) = slices_of({str(tmp_path)!r}, {{0: (2, 9)}})
place = TablePlace(location={str(tmp_path)!r})
read = reading(TEXTS, None, ("id", "_offset"))
assert sum(map(len, read_slice(place, part, read, None))) == 7
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_tables_whose_rows_may_not_be_the_topics_are_refused(tmp_path):
    with pytest.raises(HistoryError, match="no Delta table"):
        version_of(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    foreign = tmp_path / "foreign"
    DeltaTable.create(str(foreign), pa.schema([("id", pa.int64())]))
    with pytest.raises(HistoryError, match="not made by `headrace lake`"):
        version_of(foreign)
    other = tmp_path / "other"
    write(opened(other, topic=TOPIC), plain_rows(0, 10), None, 10)
    with pytest.raises(HistoryError, match="rows of a topic with the id"):
        load_version(
            TablePlace(location=str(other)),
            type(TOPIC)(name="trips", topic_id=type(TOPIC.topic_id)(int=5)),
            (0,),
        )
    changed = tmp_path / "changed"
    write(opened(changed), plain_rows(0, 10), None, 10)
    DeltaTable(str(changed)).delete("id = 3")
    with pytest.raises(TableStoppedError, match="took away or changed rows"):
        version_of(changed)
    DeltaTable(str(changed)).alter.set_table_properties(
        {"headrace.accepted.version": "2"},
        raise_if_not_exists=False,
        commit_properties=CommitProperties(max_commit_retries=0),
    )
    assert "others changed or removed" in version_of(changed).differences[0]
