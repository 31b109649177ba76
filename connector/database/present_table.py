"""Checks a table that exists: whether it keeps the rows apart, whole and equal.

Databases compare and index text in ways of their own. Where two different keys could be one for the
table's unique index, a row would overwrite another.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from connector.database.column_kinds import BYTEWISE, MARIADB, MYSQL, is_kept
from connector.errors import ConnectorError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_SQLITE_COLLATIONS = sa.text(
    "SELECT x.name, x.coll FROM pragma_index_list(:table, :schema) i, "
    "pragma_index_xinfo(i.name, :schema) x "
    "WHERE i.\"unique\" AND x.key AND upper(x.coll) <> 'BINARY'"
)
_POSTGRESQL_COLLATIONS = sa.text(
    "SELECT a.attname, c.collname FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation"
    " WHERE a.attrelid = to_regclass(:quoted) AND NOT c.collisdeterministic"
)
_MYSQL_COLLATIONS = sa.text(
    "SELECT column_name, collation_name FROM information_schema.columns WHERE table_name = :table "
    "AND table_schema = coalesce(:schema, database()) AND collation_name IS NOT NULL "
    "AND collation_name <> 'binary' AND collation_name <> :bytewise "
    "AND right(collation_name, 10) <> '_nopad_bin'"
)
_MYSQL_PREFIXES = sa.text(
    "SELECT column_name FROM information_schema.statistics WHERE table_name = :table "
    "AND table_schema = coalesce(:schema, database()) AND NOT non_unique AND sub_part IS NOT NULL"
)
_MYSQL_ENGINE = sa.text(
    "SELECT engine FROM information_schema.tables WHERE table_name = :table "
    "AND table_schema = coalesce(:schema, database())"
)


def check_table(
    connection: sa.Connection,
    table: sa.Table,
    *,
    database: str,
    key: Sequence[str],
    kinds: Mapping[str, "DataType"],
) -> None:
    """ConnectorError BAD_TABLE names what makes the table unfit for rows of these columns."""
    inspector = sa.inspect(connection)
    where = {"schema": table.schema}
    columns = inspector.get_columns(table.name, **where)
    present = {each["name"]: each["type"] for each in columns}
    for name, data_type in kinds.items():
        if name not in present:
            raise bad_table(table.fullname, f"it has no column '{name}'")
        if not is_kept(data_type, present[name], database):
            raise bad_table(
                table.fullname,
                f"its column '{name}' is {present[name]!r}, which may change values of "
                f"{data_type.simpleString()}; a table that KeyedSink makes has the right types",
            )
    unique: list[Sequence[str | None]] = [
        inspector.get_pk_constraint(table.name, **where)["constrained_columns"],
        *(e["column_names"] for e in inspector.get_unique_constraints(table.name, **where)),
        *(e["column_names"] for e in inspector.get_indexes(table.name, **where) if e["unique"]),
    ]
    if not any(set(each) == set(key) for each in unique):
        raise bad_table(table.fullname, f"it has no unique index on ({', '.join(key)})")
    _check_collations(connection, table, database, key)
    if database in (MYSQL, MARIADB):
        _check_mysql(connection, table, key)
        others = [set(each) for each in unique if each and set(each) != set(key)]
        if any(each & set(kinds) for each in others):
            # ON DUPLICATE KEY UPDATE would overwrite the row that any of them finds.
            raise bad_table(table.fullname, "it has another unique index")


def _check_collations(
    connection: sa.Connection, table: sa.Table, database: str, key: Sequence[str]
) -> None:
    quoted = connection.dialect.identifier_preparer.format_table(table)
    schema = table.schema
    match database:
        case "sqlite":
            asked = _SQLITE_COLLATIONS.bindparams(table=table.name, schema=schema or "main")
        case "postgresql":
            asked = _POSTGRESQL_COLLATIONS.bindparams(quoted=quoted)
        case "mysql" | "mariadb":
            asked = _MYSQL_COLLATIONS.bindparams(
                table=table.name, schema=schema, bytewise=BYTEWISE[MYSQL]
            )
        case _:
            return
    for column, collation in connection.execute(asked):
        if column in key:
            wanted = f"; COLLATE {BYTEWISE[database]} does" if database in BYTEWISE else ""
            raise bad_table(
                table.fullname,
                f"its column '{column}' has the collation {collation}, which does not keep all "
                f"keys apart{wanted}",
            )


def _check_mysql(connection: sa.Connection, table: sa.Table, key: Sequence[str]) -> None:
    named = {"table": table.name, "schema": table.schema}
    kept_by = connection.execute(_MYSQL_ENGINE, named).scalar()
    if kept_by != "InnoDB":
        raise bad_table(
            table.fullname, f"it has the engine {kept_by}, and only InnoDB has transactions"
        )
    for (column,) in connection.execute(_MYSQL_PREFIXES, named):
        if column in key:
            raise bad_table(
                table.fullname, f"only the beginning of its column '{column}' is unique"
            )


def bad_table(name: str, problem: str) -> ConnectorError:
    return ConnectorError("BAD_TABLE", f"the table '{name}' can't take these rows: {problem}")
