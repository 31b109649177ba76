"""The values of an Arrow column as a database's driver takes them. What the database would change
or refuse in words of its own is an error here, before any of the rows is written.
"""

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connector.database.column_kinds import MARIADB, MYSQL, POSTGRESQL, SQLITE
from connector.errors import RowError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

ColumnValue: TypeAlias = (
    bool | int | float | str | bytes | Decimal | datetime.date | datetime.datetime | None
)

_DAYS = (-719_162, 2_932_896)
"""The first day of the year 1 and the last of 9999, in days since 1970."""

_DAY_US = 24 * 60 * 60 * 1_000_000
_MICROSECONDS = (_DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1)


def column_values(
    name: str, array: pa.Array, data_type: "DataType", database: str
) -> list[ColumnValue]:
    """Python values of a column of `data_type`; RowError ROW_DOES_NOT_FIT names what is wrong."""
    match data_type.typeName():
        case "timestamp":
            # Arrow has them in the session's zone.
            utc = array.cast(pa.timestamp("us", "UTC")).view(pa.int64())
            _check_range(name, utc, _MICROSECONDS)
            naive = utc.view(pa.timestamp("us")).to_pylist()
            return [each and each.replace(tzinfo=datetime.UTC) for each in naive]
        case "timestamp_ntz":
            _check_range(name, array.cast(pa.timestamp("us")).view(pa.int64()), _MICROSECONDS)
        case "date":
            _check_range(name, array.view(pa.int32()), _DAYS)
        case "float" | "double":
            _check_finite(name, array, database)
        case "string":
            return _texts(name, array, database)
        case "decimal" if database == SQLITE:
            # One form for equal numbers: `str` would write some with an exponent.
            return [None if each is None else format(each, "f") for each in array.to_pylist()]
    values: list[ColumnValue] = array.to_pylist()
    return values


def _check_range(name: str, numbers: pa.Array, bounds: tuple[int, int]) -> None:
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and not bounds[0] <= found["min"] <= found["max"] <= bounds[1]:
        _refuse(name, "a time outside of the years 1 to 9999", "leave it out or make it null")


def _check_finite(name: str, array: pa.Array, database: str) -> None:
    """Raise RowError: SQLite makes null of NaN, and MySQL has neither NaN nor infinity."""
    if database == SQLITE:
        lost = pc.is_nan(array)
    elif database in (MYSQL, MARIADB):
        lost = pc.invert(pc.is_finite(array))
    else:
        return
    if pc.any(lost).as_py():
        what = "NaN" if database == SQLITE else "NaN or an infinite number"
        _refuse(name, f"{what}, which the database can't keep", "make it null, or cast to string")


def _texts(name: str, array: pa.Array, database: str) -> list[ColumnValue]:
    if database == POSTGRESQL and pc.any(pc.match_substring(array, "\0")).as_py():
        _refuse(
            name, "text with the character NUL, which PostgreSQL can't keep", "replace it, or "
            "cast to binary"
        )  # fmt: skip
    try:
        values: list[ColumnValue] = array.to_pylist()
    except UnicodeDecodeError:
        _refuse(name, "text that is not UTF-8", "cast to binary, or decode it")
    return values


def _refuse(name: str, what: str, remedy: str) -> NoReturn:
    raise RowError("ROW_DOES_NOT_FIT", f"the column '{name}' has {what}: {remedy}")
