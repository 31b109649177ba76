"""Matches the columns of a DataFrame with those of a topic. Pure.

Columns are matched by their names, upper and lower case aside, as neither a DataFrame in Spark's
default mode nor a topic distinguishes them by case. A type may be narrower than the topic's, where
each of its values is one of the topic's. Columns of the topic that are not given are null.
"""

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from connector.errors import OptionError
from connector.typed_columns import (
    DELETED,
    HEADERS,
    METADATA_COLUMNS,
    PARTITION,
    TIMESTAMP,
    column_type_of,
    metadata_types,
)
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.topic_schema import SchemaColumn, SchemaVersion

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

WRITABLE_METADATA = (PARTITION, TIMESTAMP)

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""The decimal digits of the largest whole number of so many bits."""

_EXACT_BITS = {32: 16, 64: 32}
"""The largest whole numbers, in bits, that a float of so many bits holds exactly."""


def check_matching(
    topic: str,
    version: SchemaVersion,
    given: "Mapping[str, DataType]",
    *,
    origin: tuple[str, ...] = (),
) -> None:
    """OptionError BAD_COLUMN unless rows with the columns `given` fit into the topic. `origin`: the
    columns of `idempotentKey`, which are not among `given` and leave the rows before they are
    written."""
    columns = {column.name.lower(): column for column in version.columns}
    for name in origin:
        if name.lower() in columns:
            raise OptionError(
                "BAD_COLUMN",
                f"'{name}' of idempotentKey is also a column of the topic '{topic}': give the "
                f"origin another name, such as .withColumn('from_{name}', …)",
            )
    for name, data_type in given.items():
        column = columns.get(name.lower())
        if column is not None and not column.hidden:
            _check_type(topic, name, data_type, column)
        elif name.lower() in METADATA_COLUMNS:
            _check_metadata(name.lower(), data_type)
        else:
            raise OptionError("BAD_COLUMN", _not_there(topic, name, version, column))
    names = {name.lower() for name in given}
    if not names & columns.keys():
        raise OptionError(
            "BAD_COLUMN", f"the rows have no column of the typed topic '{topic}': add one"
        )
    for column in version.visible:
        if not column.nullable and column.name.lower() not in names:
            raise OptionError(
                "BAD_COLUMN",
                f"the column '{column.name}' of the topic '{topic}' is NOT NULL, and the rows "
                "don't have it: add it",
            )


def _check_type(topic: str, name: str, data_type: "DataType", column: SchemaColumn) -> None:
    if not holds_all(column.type, column_type_of(name, data_type)):
        raise OptionError(
            "BAD_COLUMN",
            f"the column '{name}' is {data_type.simpleString()}, and in the topic '{topic}' it is "
            f"{types.ddl_of(column.type)}: cast it",
        )


def _check_metadata(name: str, data_type: "DataType") -> None:
    if name in (HEADERS, DELETED):
        raise OptionError(
            "BAD_COLUMN",
            f"the column '{name}' can't be written to a typed topic by Spark: drop it, and write "
            "headers and deletions with Headrace's own producer",
        )
    if name not in WRITABLE_METADATA:
        raise OptionError(
            "BAD_COLUMN",
            f"the column '{name}' says where a row was read, and can't be written: drop it, or "
            "name it in idempotentKey",
        )
    wanted = metadata_types()[name]
    if data_type.simpleString() != wanted.simpleString():
        raise OptionError(
            "BAD_COLUMN",
            f"the column '{name}' must be {wanted.simpleString()}, not "
            f"{data_type.simpleString()}; cast it",
        )


def _not_there(topic: str, name: str, version: SchemaVersion, column: SchemaColumn | None) -> str:
    if column is not None:
        return (
            f"the column '{column.name}' of the topic '{topic}' is hidden, and can't be written: "
            "drop it"
        )
    names = [each.name for each in version.visible]
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    shown = ", ".join(names[:20]) + ", …" * (len(names) > 20)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"it has {shown}"
    return f"the topic '{topic}' is typed and has no column '{name}'; {hint}"


def holds_all(wanted: types.ColumnType, given: types.ColumnType) -> bool:
    """Whether every value of `given` is one of `wanted`, where nothing is null."""
    match given, wanted:
        case _ if given == wanted:
            return True
        case (types.IntegerColumn(bits), types.IntegerColumn(more)) | (
            types.FloatColumn(bits),
            types.FloatColumn(more),
        ):
            return more >= bits
        case types.IntegerColumn(bits), types.FloatColumn(more):
            return bits <= _EXACT_BITS[more]
        case types.IntegerColumn(bits), types.DecimalColumn(precision, scale):
            return precision - scale >= _DIGITS[bits]
        case types.DecimalColumn(), types.DecimalColumn():
            digits = given.precision - given.scale
            return wanted.scale >= given.scale and wanted.precision - wanted.scale >= digits
        case types.ArrayColumn(), types.ArrayColumn():
            return holds_all(wanted.element, given.element)
        case types.MapColumn(), types.MapColumn():
            return holds_all(wanted.key, given.key) and holds_all(wanted.value, given.value)
        case types.StructColumn(), types.StructColumn():
            return _holds_struct(wanted, given)
    return False


def _holds_struct(wanted: types.StructColumn, given: types.StructColumn) -> bool:
    fields = {each.name.lower(): each for each in given.fields}
    if len(fields) != len(given.fields):
        return False
    for each in wanted.fields:
        field = fields.pop(each.name.lower(), None)
        if field is None:
            if not each.nullable:
                return False
        elif not holds_all(each.type, field.type):
            return False
    return not fields
