"""Tables with unique keys, in each database, without Spark: a micro-batch is there as a
whole and once, whatever is repeated, fails midway, or happens at the same time. Source: R-SPARK4.
"""

import multiprocessing
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql.types import IntegerType, MapType, StringType, StructType

from connector.database.keyed_table import KeyedTable, database
from connector.errors import ConnectorError
from integration_tests.keyed_sink.databases import (
    database_url,
    mariadb_server,
    postgres_server,
)

__all__ = ["database_url", "mariadb_server", "postgres_server"]

KEY = ("topic", "partition", "offset")


def struct(**columns: str | MapType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made.add(name, kind)
    return made


ORIGIN = {"topic": "string", "partition": "integer", "offset": "long"}
SCHEMA = struct(**ORIGIN, value="string")


def piece(first: int, last: int, value: str = "v", partition: int | None = 0) -> pa.RecordBatch:
    """Rows of these offsets."""
    count = last - first
    return pa.record_batch(
        {
            "topic": pa.array(["t"] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(first, last), pa.int64()),
            "value": pa.array([value] * count),
        }
    )


class Table:
    """One of its own for each test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = f"t_{uuid.uuid4().hex}"
        self.query = f"{self.name}-query"

    def write(self, batch, pieces, *, query=None, schema=SCHEMA, key=KEY):
        with database(self.url, {}) as engine:
            table = KeyedTable(engine, self.name, key=key, schema=schema)
            return table.write(query or self.query, batch, pieces)

    def rows(self):
        """Value and offset of each, by offset."""
        with database(self.url, {}) as engine, engine.connect() as connection:
            asked = sa.select(sa.column("offset"), sa.column("value"))
            found = connection.execute(asked.select_from(sa.table(self.name)))
            return sorted((row[0], row[1]) for row in found)


@pytest.fixture
def table(database_url):
    return Table(database_url)


def values(first, last, value="v"):
    return [(offset, value) for offset in range(first, last)]


def test_a_replay_of_a_committed_batch_does_not_even_look_at_its_rows(table):
    assert table.write(0, [piece(0, 10), piece(10, 2500)])

    def other_rows() -> Iterator[pa.RecordBatch]:
        yield pytest.fail("computed for nothing")

    assert not table.write(0, other_rows())
    assert table.write(1, [piece(2500, 2600)])
    assert not table.write(0, other_rows())
    assert table.rows() == values(0, 2600)


def test_each_table_that_a_query_writes_to_gets_every_batch(table):
    """As where one `foreachBatch` calls two sinks."""
    other = Table(table.url)
    for batch, (first, last) in enumerate([(0, 5), (5, 9)]):
        for each in (table, other):
            assert each.write(batch, [piece(first, last)], query=table.query)
            assert not each.write(batch, [piece(first, last, "again")], query=table.query)
    assert table.rows() == other.rows() == values(0, 9)


def test_the_longest_names_have_a_ledger(table):
    table.query = "q" * 249
    other = Table(table.url)
    other.query = table.query
    assert table.write(0, [piece(0, 1)])
    assert other.write(0, [piece(0, 1)])
    assert not table.write(0, [piece(0, 1)])


def test_another_query_overwrites_what_has_the_same_key(table):
    table.write(0, [piece(0, 10, "old")])
    table.write(0, [piece(5, 15, "new")], query=f"{table.query}-with a new checkpoint")
    assert table.rows() == values(0, 5, "old") + values(5, 15, "new")


def test_a_batch_that_fails_midway_leaves_nothing_and_can_be_written_again(table):
    table.write(0, [piece(0, 10)])

    def fails() -> Iterator[pa.RecordBatch]:
        yield piece(5, 3000, "half")
        raise RuntimeError("a task")

    with pytest.raises(RuntimeError, match="a task"):
        table.write(1, fails())
    assert table.rows() == values(0, 10)
    with pytest.raises(ConnectorError, match=r"^\[NULL_KEY\] 5 of 5 rows have null in 'partition'"):
        table.write(1, [piece(5, 3000, "half"), piece(0, 5, partition=None)])
    assert table.rows() == values(0, 10)
    assert table.write(1, [piece(10, 20)])
    assert table.rows() == values(0, 20)


def test_a_zombie_and_its_successor_write_a_batch_once(table):
    """The successor comes while the zombie is at its rows: it waits, and has nothing to do."""
    table.write(0, [piece(0, 1)])
    outcomes = []

    def successor() -> None:
        outcomes.append(table.write(1, [piece(1, 5, "successor")]))

    thread = threading.Thread(target=successor)

    def meanwhile() -> Iterator[pa.RecordBatch]:
        yield piece(1, 3, "zombie")
        thread.start()
        yield piece(3, 5, "zombie")

    assert table.write(1, meanwhile())
    thread.join()
    assert outcomes == [False]
    assert table.rows() == [(0, "v"), *values(1, 5, "zombie")]


class Late(KeyedTable):
    """Looks whether a table exists, and goes on when another one has looked, too."""

    looked: threading.Barrier
    first_looks: set[tuple[int, str]]

    def _exists(self, table):
        found = super()._exists(table)
        look = (threading.get_ident(), table.name)
        if look not in self.first_looks:
            self.first_looks.add(look)
            self.looked.wait(30)
        return found


@pytest.mark.parametrize("of_one_table", [True, False], ids=["one-table", "two-tables"])
def test_two_queries_begin_at_the_same_moment_in_a_fresh_database(table, of_one_table):
    with database(table.url, {}) as engine, engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS headrace_batches"))
    Late.looked, Late.first_looks = threading.Barrier(2), set()

    def begin(number):
        name = table.name if of_one_table else f"{table.name}_{number}"
        # SQLite lets them write one after the other.
        with database(table.url, {}) as engine:
            writer = Late(engine, name, key=KEY, schema=SCHEMA)
            return writer.write(f"{name}-query-{number}", 0, [piece(number, number + 1)])

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(begin, range(2))) == [True, True]
    if of_one_table:
        assert table.rows() == values(0, 2)


def _write_half(url, name, half_is_written):
    def pieces():
        yield piece(10, 2500, "half")
        half_is_written.set()
        threading.Event().wait()

    table = Table(url)
    table.name, table.query = name, f"{name}-query"
    table.write(1, pieces())


def test_a_driver_killed_within_a_batch_leaves_every_row_once(table):
    table.write(0, [piece(0, 10)])
    # Forked: a start of Python costs a second.
    context = multiprocessing.get_context("fork")
    half_is_written = context.Event()
    driver = context.Process(target=_write_half, args=(table.url, table.name, half_is_written))
    driver.start()
    assert half_is_written.wait(60)
    driver.kill()
    driver.join()
    assert table.rows() == values(0, 10)
    assert table.write(1, [piece(10, 2500, "whole")])
    assert not table.write(1, [piece(10, 2500, "again")])
    assert table.rows() == values(0, 10) + values(10, 2500, "whole")


def test_databases_without_an_upsert_of_ours_replace_rows(tmp_path, monkeypatch):
    def replace(self, connection, rows):
        self._replace(connection, rows)

    monkeypatch.setattr(KeyedTable, "_upsert", replace)
    table = Table(f"sqlite:///{tmp_path}/database")
    table.write(0, [piece(0, 10, "old")])
    table.write(1, [pa.concat_batches([piece(5, 15, "twice"), piece(5, 15, "new")])])
    assert table.rows() == values(0, 5, "old") + values(5, 15, "new")


def test_what_the_database_refuses_is_one_line(tmp_path):
    table = Table(f"sqlite:///{tmp_path}/no/such/folder")
    with pytest.raises(ConnectorError, match=r"^\[DATABASE_FAILED\] OperationalError: unable to"):
        table.write(0, [])
    with pytest.raises(ConnectorError, match=r"^\[BAD_COLUMN\] the column 'm' is map<string,int>"):
        Table(f"sqlite:///{tmp_path}/database").write(
            0,
            [],
            schema=struct(topic="string", m=MapType(StringType(), IntegerType())),
            key=("topic",),
        )
    with pytest.raises(ConnectorError, match=r"^\[BAD_TABLE\] .* no column 'offset' for the key"):
        table.write(0, [], schema=struct(topic="string", partition="integer"))
