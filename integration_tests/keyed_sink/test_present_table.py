"""Tables that exist before the keyed sink comes: tables that keep all rows whole and apart are
taken, others are refused by one line. Source: R-SPARK4.
"""

import pytest
import sqlalchemy as sa
from pyspark.sql.types import StructType

from connector.database.keyed_table import KeyedTable, database
from connector.errors import ConnectorError
from integration_tests.keyed_sink.databases import (
    database_url,
    mariadb_server,
    postgres_server,
)
from integration_tests.keyed_sink.test_keyed_table import piece, table

__all__ = ["database_url", "mariadb_server", "postgres_server", "table"]

BYTEWISE = "COLLATE utf8mb4_nopad_bin"


def run(url, statement):
    with database(url, {}) as engine, engine.begin() as connection:
        connection.execute(sa.text(statement))


def make(table, columns):
    """A table of the user's own."""
    with database(table.url, {}) as engine:
        quote = engine.dialect.identifier_preparer.quote_identifier
        suffix = f" ENGINE InnoDB DEFAULT {BYTEWISE}" if engine.dialect.name == "mysql" else ""
    for word in ("offset", "partition"):
        columns = columns.replace(word, quote(word))
    run(table.url, f"CREATE TABLE {table.name} {columns}{suffix}")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("(topic varchar(99), partition int, offset bigint, value text)", "no unique index"),
        ("(topic varchar(99), partition int, offset bigint, primary key (topic))", "no column"),
    ],
)
def test_a_table_that_can_not_keep_rows_apart_is_refused(table, made, message):
    make(table, made)
    with pytest.raises(ConnectorError, match=r"^\[BAD_TABLE\] ") as raised:
        table.write(0, [piece(0, 1)])
    assert message in str(raised.value)


def test_a_table_of_the_users_own_is_taken(table):
    make(
        table,
        "(id int, value text, topic varchar(99), partition int, offset bigint, "
        "unique (offset, topic, partition))",
    )
    table.write(0, [piece(0, 3, "old")])
    table.write(1, [piece(1, 3, "new")])
    assert table.rows() == [(0, "old"), (1, "new"), (2, "new")]


def refusal(url, name, kinds, *, key=("k",)):
    schema = StructType()
    for column, kind in kinds.items():
        schema.add(column, kind)
    with (
        pytest.raises(ConnectorError, match=r"^\[BAD_TABLE\] ") as raised,
        database(url, {}) as engine,
    ):
        KeyedTable(engine, name, key=key, schema=schema)
    assert "\n" not in str(raised.value)
    return str(raised.value)


LOSSY = {
    "sqlite": [
        ("decimal(20,0)", "NUMERIC(20, 0)"),
        ("decimal(20,0)", "BIGINT"),
        ("string", "NUMERIC"),
        ("string", "STRING"),
        ("double", "TEXT"),
    ],
    "postgresql": [
        ("decimal(12,4)", "NUMERIC(12, 2)"),
        ("decimal(12,4)", "DOUBLE PRECISION"),
        ("double", "REAL"),
        ("timestamp", "TIMESTAMPTZ(3)"),
        ("timestamp", "DATE"),
        ("timestamp_ntz", "TIMESTAMPTZ"),
        ("string", "CHAR(20)"),
    ],
    "mysql": [
        ("decimal(12,4)", "DECIMAL(12, 2)"),
        ("double", "FLOAT"),
        ("float", "FLOAT"),
        ("double", "DOUBLE(9, 2)"),
        ("timestamp", "DATETIME"),
        ("timestamp", "TIMESTAMP(3)"),
        ("timestamp_ntz", "TIMESTAMP(6)"),
        ("string", "CHAR(20)"),
        ("string", "ENUM('a', 'b')"),
        ("binary", "BINARY(20)"),
    ],
}
"""By dialect, a type of Spark and a column that would change its values in silence."""


def test_a_column_that_would_change_values_is_refused(table):
    for kind, column in LOSSY[sa.engine.make_url(table.url).get_backend_name()]:
        run(table.url, f"DROP TABLE IF EXISTS {table.name}")
        make(table, f"(k int primary key, v {column})")
        assert "its column 'v' is " in refusal(table.url, table.name, {"k": "integer", "v": kind})


@pytest.mark.parametrize(
    ("database_url", "columns", "kinds", "reason"),
    [
        ("sqlite", "(k text collate nocase primary key)", "string", "collation nocase"),
        ("sqlite", "(k text collate rtrim, unique (k))", "string", "collation rtrim"),
        (
            "postgresql",
            "(k text collate {name}_any_case primary key)",
            "string",
            "collation {name}_any_case",
        ),
        ("mariadb", "(k varchar(9) primary key) COLLATE utf8mb4_general_ci", "string", "nopad_bin"),
        # It has 'a' equal to 'a '.
        ("mariadb", "(k varchar(9) primary key) COLLATE utf8mb4_bin", "string", "nopad_bin"),
        ("mariadb", f"(k text, unique (k(2))) {BYTEWISE}", "string", "only the beginning"),
        ("mariadb", "(k varbinary(99), primary key (k(2)))", "binary", "only the beginning"),
        ("mariadb", "(k int primary key) ENGINE MyISAM", "integer", "the engine MyISAM"),
        ("mariadb", "(k int primary key, v int unique)", "integer", "another unique index"),
    ],
    indirect=["database_url"],
)
def test_a_table_that_takes_two_keys_for_one_is_refused(table, columns, kinds, reason):
    if "any_case" in columns:
        run(
            table.url,
            f"CREATE COLLATION {table.name}_any_case "
            "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        )
    if table.url.startswith("mysql") and "ENGINE" not in columns:
        columns += " ENGINE InnoDB"
    run(table.url, f"CREATE TABLE {table.name} {columns.format(name=table.name)}")
    all_kinds = {"k": kinds, **({"v": kinds} if " v " in columns else {})}
    assert reason.format(name=table.name) in refusal(table.url, table.name, all_kinds)


def test_a_name_with_a_dot_is_a_schema_and_a_table(table):
    schema = {"sqlite": "main", "postgresql": f"s_{table.name}", "mysql": f"s_{table.name}"}[
        sa.engine.make_url(table.url).get_backend_name()
    ]
    if schema != "main":
        run(table.url, f"CREATE SCHEMA {schema}")
    own, table.name = table.name, f"{schema}.{table.name}"
    for batch, text in enumerate(["old", "new"]):
        assert table.write(batch, [piece(0, 2, text)])
        assert not table.write(batch, [piece(0, 2, "again")])
    with database(table.url, {}) as engine:
        assert table.name not in sa.inspect(engine).get_table_names()
        with engine.connect() as connection:
            found = connection.execute(sa.text(f"SELECT value FROM {schema}.{own}"))
            assert found.scalars().all() == ["new", "new"]


@pytest.mark.parametrize("name", ["", ".", "orders.", ".orders", "headrace_batches"])
def test_a_name_of_no_table_is_one_line(tmp_path, name):
    url = f"sqlite:///{tmp_path}/database"
    assert "a table is named like" in refusal(url, name, {"k": "string"})


def test_a_schema_that_does_not_exist_is_one_line(table):
    table.name = f"no_such_schema.{table.name}"
    with pytest.raises(ConnectorError, match=r"^\[DATABASE_FAILED\] ") as raised:
        table.write(0, [])
    assert "\n" not in str(raised.value)
