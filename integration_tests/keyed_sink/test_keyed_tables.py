"""Tables with unique keys, in SQLite and PostgreSQL, without Spark: a micro-batch is there as a
whole and once, whatever is repeated, fails midway, or happens at the same time. Source: R-SPARK4.
"""

import datetime
import threading
import uuid
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql.types import IntegerType, MapType, StringType, StructType

from connector.database.keyed_table import KeyedTable, database
from connector.errors import ConnectorError
from integration_tests.keyed_sink.databases import database_url, postgres_server

__all__ = ["database_url", "postgres_server"]

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
            found = connection.execute(sa.text(f'SELECT "offset", value FROM {self.name}'))
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


def test_a_ledger_of_an_earlier_version_goes_on(table):
    """It had one row for all tables of a query."""
    table.write(0, [], query="another")
    with database(table.url, {}) as engine, engine.begin() as connection:
        made = sa.text("INSERT INTO headrace_batches (query, batch) VALUES (:query, 7)")
        connection.execute(made, {"query": table.query})
    assert not table.write(7, [piece(0, 5)])
    assert table.write(8, [piece(5, 9)])
    assert not table.write(8, [piece(5, 9, "again")])
    assert table.rows() == values(5, 9)


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


def test_the_types_of_spark_have_columns(table):
    schema = struct(
        **ORIGIN, a="binary", b="boolean", c="byte", d="short", e="float", f="double", g="date",
        h="timestamp", i="timestamp_ntz", j="decimal(10,2)", k="string",
    )  # fmt: skip
    instant = datetime.datetime(2026, 3, 29, 1, 30, tzinfo=datetime.UTC)
    row = {
        "topic": ["t"], "partition": pa.array([0], pa.int32()), "offset": [0], "a": [b"\0x"],
        "b": [True], "c": pa.array([1], pa.int8()), "d": pa.array([2], pa.int16()), "e": [0.5],
        "f": [0.1], "g": [instant.date()], "h": [instant],
        "i": [instant.replace(tzinfo=None)], "j": [Decimal("1.25")], "k": [None],
    }  # fmt: skip
    assert table.write(0, [pa.record_batch(row)], schema=schema)
    with database(table.url, {}) as engine, engine.connect() as connection:
        found = sa.Table(table.name, sa.MetaData(), autoload_with=engine)
        (read,) = connection.execute(sa.select(found)).mappings()
    assert bytes(read["a"]) == b"\0x" and read["b"] and read["k"] is None
    assert (read["c"], read["d"], read["e"], read["f"]) == (1, 2, 0.5, 0.1)
    assert read["g"] == instant.date() and float(read["j"]) == 1.25
    # SQLite keeps no time zone: what is stored is UTC.
    stored = read["h"]
    assert (stored if stored.tzinfo else stored.replace(tzinfo=datetime.UTC)) == instant


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ('(topic text, partition int, "offset" bigint, value text)', "nothing in it keeps"),
        ('(topic text, partition int, "offset" bigint, primary key (topic))', "no column 'value'"),
    ],
)
def test_a_table_that_can_not_keep_rows_apart_is_refused(table, made, message):
    with database(table.url, {}) as engine, engine.begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE {table.name} {made}"))
    with pytest.raises(ConnectorError, match=r"^\[BAD_TABLE\] ") as raised:
        table.write(0, [piece(0, 1)])
    assert message in str(raised.value)


def test_a_table_of_the_users_own_is_taken(table):
    with database(table.url, {}) as engine, engine.begin() as connection:
        connection.execute(
            sa.text(
                f"CREATE TABLE {table.name} (id int, value text, topic text, partition int, "
                '"offset" bigint, unique ("offset", topic, partition))'
            )
        )
    table.write(0, [piece(0, 3, "old")])
    table.write(1, [piece(1, 3, "new")])
    assert table.rows() == [(0, "old"), (1, "new"), (2, "new")]


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
