"""How each type of Spark is kept in each database, so that what is read there is equal to what was
written: the column that is made, and the columns of a table of the user's own that keep it, too.

A type without a row here has no column. Databases that the table does not name get SQLAlchemy's
own types, and nothing is promised of them.

    keys       text is compared by its bytes, so that 'a', 'A' and 'a ' are three keys
    times      UTC, in a column without a time zone, too
    decimals   SQLite has none, and would make them floats: text, with all digits of the scale
    floats     doubles, as MySQL compares and prints its FLOAT otherwise
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from connector.errors import ConnectorError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

SQLITE, POSTGRESQL, MYSQL, MARIADB = "sqlite", "postgresql", "mysql", "mariadb"

NAME_LENGTH = 249
"""The length of a text column in the key, because databases don't index text of any length. A
topic's name fits."""

_MYSQLS = (MYSQL, MARIADB)
_MICROSECONDS = 6
_MYSQL_MAX_SCALE = 30

BYTEWISE = {MYSQL: "utf8mb4_0900_bin", MARIADB: "utf8mb4_nopad_bin"}
"""Collations that compare bytes, trailing blanks included."""

SqlType: TypeAlias = "sa.types.TypeEngine[Any]"

_TYPES: dict[str, SqlType] = {
    "boolean": sa.Boolean(),
    "byte": sa.SmallInteger(),
    "short": sa.SmallInteger(),
    "integer": sa.Integer(),
    "long": sa.BigInteger(),
    "float": sa.Double(),
    "double": sa.Double(),
    "date": sa.Date(),
    "timestamp": sa.DateTime(timezone=True).with_variant(
        mysql.DATETIME(fsp=_MICROSECONDS), *_MYSQLS
    ),
    "timestamp_ntz": sa.DateTime().with_variant(mysql.DATETIME(fsp=_MICROSECONDS), *_MYSQLS),
    "string": sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), *_MYSQLS),
    "binary": sa.LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQLS),
}
_BINARY_KEY = sa.LargeBinary().with_variant(mysql.VARBINARY(4 * NAME_LENGTH), *_MYSQLS)

_INTEGERS = {"SMALLINT", "INTEGER", "BIGINT", "NUMERIC", "DECIMAL"}
_MYSQL_INTEGERS = {*_INTEGERS, "TINYINT", "MEDIUMINT"}
_MYSQL_TEXTS = {"VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"}
_OF_SQLITE = {
    "boolean": {"BOOLEAN", "INTEGER", "SMALLINT", "BIGINT"},
    "integer": _INTEGERS,
    "float": {"REAL", "FLOAT", "DOUBLE", "DOUBLE_PRECISION"},
    "double": {"REAL", "FLOAT", "DOUBLE", "DOUBLE_PRECISION"},
    "decimal": {"TEXT", "VARCHAR", "CHAR"},
    "date": {"DATE"},
    "timestamp": {"DATETIME", "TIMESTAMP"},
    "timestamp_ntz": {"DATETIME", "TIMESTAMP"},
    "string": {"TEXT", "VARCHAR", "CHAR", "NVARCHAR", "NCHAR"},
    "binary": {"BLOB"},
}
_OF_POSTGRESQL = {
    "boolean": {"BOOLEAN"},
    "integer": _INTEGERS,
    "float": {"REAL", "DOUBLE_PRECISION"},
    "double": {"DOUBLE_PRECISION"},
    "decimal": {"NUMERIC"},
    "date": {"DATE"},
    "timestamp": {"TIMESTAMP"},
    "timestamp_ntz": {"TIMESTAMP"},
    "string": {"TEXT", "VARCHAR"},
    "binary": {"BYTEA"},
}
_OF_MYSQL = {
    "boolean": {"TINYINT", "BOOLEAN"},
    "integer": _MYSQL_INTEGERS,
    "float": {"DOUBLE"},
    "double": {"DOUBLE"},
    "decimal": {"DECIMAL", "NUMERIC"},
    "date": {"DATE"},
    "timestamp": {"DATETIME", "TIMESTAMP"},
    "timestamp_ntz": {"DATETIME"},
    "string": _MYSQL_TEXTS,
    "binary": {"VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"},
}
_KEPT_BY = {
    SQLITE: _OF_SQLITE,
    POSTGRESQL: _OF_POSTGRESQL,
    MYSQL: _OF_MYSQL,
    MARIADB: _OF_MYSQL,
}
"""The kept types by SQLAlchemy's names. A value that is too long for its column is the database's
own error; types that would change values in silence are missing here."""


def database_of(connection: sa.Connection) -> str:
    """The name of the database; MariaDB's also where the URL says MySQL."""
    dialect = connection.dialect
    return MARIADB if getattr(dialect, "is_mariadb", False) else str(dialect.name)


def column_type(name: str, data_type: "DataType", database: str, *, in_key: bool) -> SqlType:
    """The column that keeps `data_type`; ConnectorError BAD_COLUMN where none does."""
    from pyspark.sql.types import DecimalType

    if isinstance(data_type, DecimalType):
        if database == SQLITE:
            return sa.Text()
        if database == MYSQL and data_type.scale > _MYSQL_MAX_SCALE:
            raise _bad_column(name, data_type, f"MySQL keeps {_MYSQL_MAX_SCALE} digits of a scale")
        return sa.Numeric(data_type.precision, data_type.scale)
    kind = data_type.typeName()
    if in_key and kind == "string":
        return key_text(database)
    if in_key and kind == "binary":
        return _BINARY_KEY
    if kind not in _TYPES:
        raise _bad_column(name, data_type, "a database has no type for it")
    return _TYPES[kind]


def key_text(database: str) -> SqlType:
    """The type of a text column in a key, compared by its bytes."""
    if database in _MYSQLS:
        return mysql.VARCHAR(NAME_LENGTH, charset="utf8mb4", collation=BYTEWISE[database])
    return sa.String(NAME_LENGTH)


def is_kept(data_type: "DataType", by: SqlType, database: str) -> bool:
    """Whether a column of a table that exists gives back what it was given."""
    from pyspark.sql.types import DecimalType, IntegralType

    if database not in _KEPT_BY:
        return True
    if isinstance(by, postgresql.DOMAIN):
        by = by.data_type
    kind = "integer" if isinstance(data_type, IntegralType) else data_type.typeName()
    if type(by).__name__ not in _KEPT_BY[database].get(kind, ()):
        return False
    if database == SQLITE:
        return True
    match kind:
        case "decimal":
            assert isinstance(data_type, DecimalType)
            return _has_digits(by, data_type.precision, data_type.scale)
        case "double" | "float" if database in _MYSQLS:
            # DOUBLE(M, D) rounds.
            return getattr(by, "scale", None) is None
        case "timestamp_ntz" if database == POSTGRESQL and getattr(by, "timezone", False):
            return False
        case "timestamp" | "timestamp_ntz":
            return _has_microseconds(by, database)
        case _:
            return True


def _has_digits(by: SqlType, precision: int, scale: int) -> bool:
    if getattr(by, "precision", None) is None:
        return True
    kept = getattr(by, "scale", None) or 0
    return kept >= scale and by.precision - kept >= precision - scale


def _has_microseconds(by: SqlType, database: str) -> bool:
    if database in _MYSQLS:
        return getattr(by, "fsp", None) == _MICROSECONDS
    return getattr(by, "precision", None) in (None, _MICROSECONDS)


def _bad_column(name: str, data_type: "DataType", why: str) -> ConnectorError:
    return ConnectorError(
        "BAD_COLUMN",
        f"the column '{name}' is {data_type.simpleString()}, and {why}; cast it, for example with "
        "to_json",
    )
