"""A table with unique keys, and the ledger beside it, through SQLAlchemy. Rows and ledger change in
one transaction, which begins by locking the ledger's row.

    headrace_batches      query, batch       the last micro-batch of each query that is committed in
                                             one table: `query` names both, since one micro-batch
                                             may go to several

    UPDATE … SET batch = :batch WHERE query = :query AND batch < :batch
        one row     this transaction holds the row until its commit; a zombie or a successor waits
        none        the micro-batch is committed already, perhaps by another driver: nothing to do

Source: R-SPARK4.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from connector.errors import ConnectorError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

LEDGER = "headrace_batches"
NO_BATCH = -1
"""Below the first micro-batch, which is 0."""

NAME_LENGTH = 249
"""The length of a text column in the key, because databases don't index text of any length. A
topic's name fits."""

_BESIDE = "\t"
"""Between the query and the table in the ledger: no one has it in a name."""

STATEMENT_ROWS = 1_000
"""Rows passed to the database's driver at once. More would gain nothing, and they are held as
Python objects."""

_LEDGER_COLUMNS = (("query", sa.String(NAME_LENGTH)), ("batch", sa.BigInteger()))


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
        """`schema` is that of the rows. ConnectorError BAD_TABLE where they don't fit into the
        table, or where no constraint of the table keeps their key unique."""
        self._engine = engine
        self._key = tuple(key)
        missing = [each for each in self._key if each not in schema.names]
        if missing or not self._key:
            raise _bad_table(name, f"the rows have no column '{''.join(missing[:1])}' for the key")
        metadata = sa.MetaData()
        self._ledger = sa.Table(
            LEDGER,
            metadata,
            *(
                sa.Column(column, kind, primary_key=column == "query", nullable=False)
                for column, kind in _LEDGER_COLUMNS
            ),
        )
        self._rows = sa.Table(name, metadata, *self._columns(schema))
        if sa.inspect(engine).has_table(name):
            self._check(name, schema.names)
        metadata.create_all(engine, checkfirst=True)

    def write(self, query: str, batch: int, pieces: "Iterable[pa.RecordBatch]") -> bool:
        """Writes all rows and the ledger's note, or nothing. False where an earlier call has
        committed the micro-batch; `pieces` is not read then. ConnectorError NULL_KEY."""
        place = ledger_place(query, self._rows.name)
        self._open_ledger(place, query)
        with self._engine.begin() as connection:
            if not self._take(connection, place, batch):
                return False
            for piece in pieces:
                self._check_key(piece)
                for start in range(0, piece.num_rows, STATEMENT_ROWS):
                    rows = piece.slice(start, STATEMENT_ROWS).to_pylist()
                    self._upsert(connection, rows)
        return True

    def _take(self, connection: sa.Connection, place: str, batch: int) -> bool:
        mine = self._ledger.c.query == place
        moved = connection.execute(
            self._ledger.update().where(mine, self._ledger.c.batch < batch).values(batch=batch)
        )
        return bool(moved.rowcount == 1)

    def _open_ledger(self, place: str, query: str) -> None:
        """Makes the ledger's row in a transaction before, so that it can be locked. It goes on from
        the row of an earlier version, which had one for all tables of a query."""
        with self._engine.connect() as connection:
            if self._last_batch(connection, place) is not None:
                return
            earlier = self._last_batch(connection, query)
        last = NO_BATCH if earlier is None else earlier
        try:
            with self._engine.begin() as connection:
                connection.execute(self._ledger.insert().values(query=place, batch=last))
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

    def _upsert(self, connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
        others = [each.name for each in self._rows.columns if each.name not in self._key]
        insert: postgresql.Insert | sqlite.Insert
        match connection.dialect.name:
            case "postgresql":
                insert = postgresql.insert(self._rows)
            case "sqlite":
                insert = sqlite.insert(self._rows)
            case _:
                self._replace(connection, rows)
                return
        statement = insert.on_conflict_do_update(
            index_elements=self._key,
            set_={name: insert.excluded[name] for name in others or self._key},
        )
        connection.execute(statement, rows)

    def _replace(self, connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
        """Upserts in a way that every database understands. The last row of a key counts."""
        last = {tuple(row[each] for each in self._key): row for row in rows}
        named = {each: f"key_{number}" for number, each in enumerate(self._key)}
        same = [self._rows.c[each] == sa.bindparam(name) for each, name in named.items()]
        keys = [{name: row[each] for each, name in named.items()} for row in last.values()]
        connection.execute(self._rows.delete().where(*same), keys)
        connection.execute(self._rows.insert(), list(last.values()))

    def _columns(self, schema: "StructType") -> list[sa.Column[Any]]:
        return [
            sa.Column(
                each.name,
                _column_type(each.name, each.dataType, in_key=each.name in self._key),
                primary_key=each.name in self._key,
                autoincrement=False,
                nullable=each.name not in self._key,
            )
            for each in schema.fields
        ]

    def _check(self, name: str, columns: Sequence[str]) -> None:
        """Checks a table that exists already."""
        inspector = sa.inspect(self._engine)
        present = {each["name"] for each in inspector.get_columns(name)}
        for column in columns:
            if column not in present:
                raise _bad_table(name, f"it has no column '{column}'")
        unique: list[Sequence[str | None]] = [
            inspector.get_pk_constraint(name)["constrained_columns"],
            *(each["column_names"] for each in inspector.get_unique_constraints(name)),
            *(each["column_names"] for each in inspector.get_indexes(name) if each["unique"]),
        ]
        if not any(set(each) == set(self._key) for each in unique):
            raise _bad_table(name, f"nothing in it keeps ({', '.join(self._key)}) unique")


def ledger_place(query: str, table: str) -> str:
    """What stands in the ledger for a query and a table. Long names are cut, and told apart by
    their digest."""
    place = f"{query}{_BESIDE}{table}"
    if len(place) <= NAME_LENGTH:
        return place
    digest = hashlib.sha256(place.encode()).hexdigest()
    return f"{place[: NAME_LENGTH - len(digest) - 1]}{_BESIDE}{digest}"


def _column_type(name: str, data_type: "DataType", *, in_key: bool) -> sa.types.TypeEngine[Any]:
    from pyspark.sql import types as spark

    match data_type:
        case spark.StringType():
            return sa.String(NAME_LENGTH) if in_key else sa.Text()
        case spark.DecimalType():
            return sa.Numeric(data_type.precision, data_type.scale)
        case spark.TimestampType():
            return sa.DateTime(timezone=True)
    plain: dict[type[DataType], sa.types.TypeEngine[Any]] = {
        spark.BinaryType: sa.LargeBinary(),
        spark.BooleanType: sa.Boolean(),
        spark.ByteType: sa.SmallInteger(),
        spark.ShortType: sa.SmallInteger(),
        spark.IntegerType: sa.Integer(),
        spark.LongType: sa.BigInteger(),
        spark.FloatType: sa.Float(),
        spark.DoubleType: sa.Double(),
        spark.DateType: sa.Date(),
        spark.TimestampNTZType: sa.DateTime(),
    }
    found = plain.get(type(data_type))
    if found is None:
        raise ConnectorError(
            "BAD_COLUMN",
            f"the column '{name}' is {data_type.simpleString()}, for which a database has no type; "
            "cast it, for example with to_json",
        )
    return found


def _bad_table(name: str, problem: str) -> ConnectorError:
    return ConnectorError("BAD_TABLE", f"the table '{name}' can't take these rows: {problem}")
