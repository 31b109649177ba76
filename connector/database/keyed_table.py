"""A table with unique keys, and the ledger beside it, through SQLAlchemy. Rows and ledger change in
one transaction, which begins by locking the ledger's row.

    headrace_batches      query, batch       the last micro-batch of each query that is committed in
                                             one table: `query` names both, since one micro-batch
                                             may go to several

    UPDATE … SET batch = :batch WHERE query = :query AND batch < :batch
        one row     this transaction holds the row until its commit; a zombie or a successor waits
        none        the micro-batch is committed already, perhaps by another driver: nothing to do

Tables are made first and looked at afterwards, so that two queries may begin at the same moment.

Source: R-SPARK4.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from connector.database.column_kinds import (
    MARIADB,
    MYSQL,
    NAME_LENGTH,
    POSTGRESQL,
    column_type,
    database_of,
    key_text,
)
from connector.database.column_values import ColumnValue, column_values
from connector.database.present_table import bad_table, check_table
from connector.errors import ConnectorError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

LEDGER = "headrace_batches"
NO_BATCH = -1
"""The ledger's value before the first micro-batch, which is 0."""

_BESIDE = "\t"
"""Separates the query and the table in the ledger; names don't contain it."""

STATEMENT_ROWS = 1_000
"""Rows passed to the database's driver at once. More would gain nothing, and they are held as
Python objects."""

_SESSION = {
    POSTGRESQL: ("SET LOCAL TIME ZONE 'UTC'",),
    MYSQL: (
        "SET time_zone = '+00:00'",
        "SET sql_mode = concat_ws(',', nullif(@@sql_mode, ''), 'STRICT_ALL_TABLES')",
    ),
}
_SESSION[MARIADB] = _SESSION[MYSQL]
"""Makes times UTC in columns of every kind, and a value that does not fit an error."""

Row = dict[str, ColumnValue]
"""A row's values by their columns."""


@contextlib.contextmanager
def database(url: str, options: Mapping[str, Any]) -> Iterator[sa.Engine]:
    """An engine that keeps no connection. Errors of the database become ConnectorErrors."""
    with in_one_line():
        engine = sa.create_engine(url, **{"poolclass": NullPool, **options})
        try:
            yield engine
        finally:
            engine.dispose()


@contextlib.contextmanager
def in_one_line() -> Iterator[None]:
    """Leaves out the statement and its values, which SQLAlchemy's errors repeat."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        text = " ".join(str(cause).split())
        raise ConnectorError("DATABASE_FAILED", f"{type(cause).__name__}: {text}") from error
    except ModuleNotFoundError as error:
        raise ConnectorError(
            "MISSING_PACKAGE", f"the database needs the package {error.name}: install it"
        ) from None


class KeyedTable:
    """One table with its ledger. Both are made here unless they exist."""

    def __init__(
        self, engine: sa.Engine, name: str, *, key: Sequence[str], schema: "StructType"
    ) -> None:
        """`name` may have a schema and a dot in front. `schema` is that of the rows. ConnectorError
        BAD_TABLE where they don't fit into the table, or where no constraint of the table keeps
        their key unique; BAD_COLUMN where a type of theirs has no column."""
        self._engine = engine
        self._name = name
        self._key = tuple(key)
        self._kinds: dict[str, DataType] = {each.name: each.dataType for each in schema.fields}
        if len(self._kinds) < len(schema.fields):
            raise bad_table(name, "two columns of the rows have the same name")
        missing = [each for each in self._key if each not in self._kinds]
        if missing or not self._key:
            raise bad_table(name, f"the rows have no column '{''.join(missing[:1])}' for the key")
        place, dot, own = name.rpartition(".")
        if not own or (dot and not place) or own == LEDGER:
            raise bad_table(name, "a table is named like 'orders' or 'shop.orders'")
        with engine.connect() as connection:
            self._database = database_of(connection)
        self._ledger = self._ledger_table()
        self._rows = sa.Table(
            own, sa.MetaData(), *self._columns(), schema=place or None, **self._options()
        )
        self._make(self._ledger)
        self._make(self._rows)
        with engine.connect() as connection:
            check_table(
                connection,
                self._rows,
                database=self._database,
                key=self._key,
                kinds=self._kinds,
            )

    def write(
        self, query: str, batch: int, pieces: "Iterable[pa.RecordBatch]", *, part: str = ""
    ) -> bool:
        """Writes all rows and the ledger's note, or nothing. False where an earlier call has
        committed the micro-batch; `pieces` is not read then. `part`: of the frames that go to this
        table. ConnectorError NULL_KEY."""
        place = ledger_place(query, self._name, part)
        self._open_ledger(place)
        with self._engine.begin() as connection:
            for setting in _SESSION.get(self._database, ()):
                connection.exec_driver_sql(setting)
            if not self._take(connection, place, batch):
                return False
            for piece in pieces:
                self._check_key(piece)
                for start in range(0, piece.num_rows, STATEMENT_ROWS):
                    self._upsert(connection, self._values(piece.slice(start, STATEMENT_ROWS)))
        return True

    def _values(self, piece: "pa.RecordBatch") -> list[Row]:
        columns = [
            column_values(name, piece.column(name), kind, self._database)
            for name, kind in self._kinds.items()
        ]
        return [dict(zip(self._kinds, row, strict=True)) for row in zip(*columns, strict=True)]

    def _make(self, table: sa.Table) -> None:
        """Makes the table unless it exists. It is not an error that another query was faster."""
        if self._exists(table):
            return
        try:
            with self._engine.begin() as connection:
                connection.execute(sa.schema.CreateTable(table))
        except sa.exc.DBAPIError:
            if not self._exists(table):
                raise

    def _exists(self, table: sa.Table) -> bool:
        with self._engine.connect() as connection:
            return bool(sa.inspect(connection).has_table(table.name, schema=table.schema))

    def _options(self) -> dict[str, str]:
        """The table options of MySQL and MariaDB: an engine with transactions."""
        return {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}

    def _ledger_table(self) -> sa.Table:
        return sa.Table(
            LEDGER,
            sa.MetaData(),
            sa.Column("query", key_text(self._database), primary_key=True, nullable=False),
            sa.Column("batch", sa.BigInteger(), nullable=False),
            **self._options(),
        )

    def _take(self, connection: sa.Connection, place: str, batch: int) -> bool:
        mine = self._ledger.c.query == place
        moved = connection.execute(
            self._ledger.update().where(mine, self._ledger.c.batch < batch).values(batch=batch)
        )
        return bool(moved.rowcount == 1)

    def _open_ledger(self, place: str) -> None:
        """Makes the ledger's row in a transaction before, so that it can be locked."""
        with self._engine.connect() as connection:
            if self._last_batch(connection, place) is not None:
                return
        try:
            with self._engine.begin() as connection:
                connection.execute(self._ledger.insert().values(query=place, batch=NO_BATCH))
        except sa.exc.IntegrityError:
            # Another driver of the query has made it.
            with self._engine.connect() as connection:
                if self._last_batch(connection, place) is None:
                    raise

    def _last_batch(self, connection: sa.Connection, place: str) -> int | None:
        found = sa.select(self._ledger.c.batch).where(self._ledger.c.query == place)
        last: int | None = connection.execute(found).scalar()
        return last

    def _check_key(self, piece: "pa.RecordBatch") -> None:
        """Refuses null in a key. SQLite would accept it, as a new key each time."""
        for name in self._key:
            nulls = piece.column(name).null_count
            if nulls:
                raise ConnectorError(
                    "NULL_KEY",
                    f"{nulls} of {piece.num_rows} rows have null in '{name}', which is in the key "
                    f"of the table '{self._rows.name}'",
                )

    def _upsert(self, connection: sa.Connection, rows: list[Row]) -> None:
        others = [each.name for each in self._rows.columns if each.name not in self._key]
        insert: postgresql.Insert | sqlite.Insert
        match self._database:
            case "postgresql":
                insert = postgresql.insert(self._rows)
            case "sqlite":
                insert = sqlite.insert(self._rows)
            case "mysql" | "mariadb":
                taken = mysql.insert(self._rows)
                values = {name: taken.inserted[name] for name in others or self._key}
                connection.execute(taken.on_duplicate_key_update(values), rows)
                return
            case _:
                self._replace(connection, rows)
                return
        statement = insert.on_conflict_do_update(
            index_elements=self._key,
            set_={name: insert.excluded[name] for name in others or self._key},
        )
        connection.execute(statement, rows)

    def _replace(self, connection: sa.Connection, rows: list[Row]) -> None:
        """Upserts in a way that every database understands. The last row of a key counts."""
        last = {tuple(row[each] for each in self._key): row for row in rows}
        named = {each: f"key_{number}" for number, each in enumerate(self._key)}
        same = [self._rows.c[each] == sa.bindparam(name) for each, name in named.items()]
        keys = [{name: row[each] for each, name in named.items()} for row in last.values()]
        connection.execute(self._rows.delete().where(*same), keys)
        connection.execute(self._rows.insert(), list(last.values()))

    def _columns(self) -> list[sa.Column[Any]]:
        return [
            sa.Column(
                name,
                column_type(name, kind, self._database, in_key=name in self._key),
                primary_key=name in self._key,
                autoincrement=False,
                nullable=name not in self._key,
            )
            for name, kind in self._kinds.items()
        ]


def ledger_place(query: str, table: str, part: str = "") -> str:
    """The ledger's key for a query and a table. Long names are cut, and kept apart by their
    digest."""
    place = _BESIDE.join((query, table, part) if part else (query, table))
    if len(place) <= NAME_LENGTH:
        return place
    digest = hashlib.sha256(place.encode()).hexdigest()
    return f"{place[: NAME_LENGTH - len(digest) - 1]}{_BESIDE}{digest}"
