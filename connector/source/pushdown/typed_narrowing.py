"""Filters on typed topics. Those on columns of the schema go to the brokers, which skip batches by
them, and to the reader, which drops rows; those on columns that tell where a row comes from narrow
what is fetched, as for topics without a schema.

Spark applies a filter again unless it is complete here. That is every comparison of a column with
values of its own type, but not of FLOAT and DOUBLE, where Spark itself has several notions of zero
and NaN.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql.datasource import (
    ColumnPath,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from connector.source.pushdown.narrowing import Narrowing, narrow
from connector.source.typed.typed_read import NamedComparison, ReadColumn, TypedRead
from connector.typed_columns import OFFSET, PARTITION, TIMESTAMP, TOPIC
from storage_engine.core.typed.column_types import (
    ArrayColumn,
    BinaryColumn,
    BooleanColumn,
    ColumnType,
    DateColumn,
    DecimalColumn,
    FloatColumn,
    IntegerColumn,
    MapColumn,
    StringColumn,
    StructColumn,
    TimestampColumn,
)
from storage_engine.core.typed.comparisons import MAX_COMPARISONS, MAX_VALUES, Literal, Operator

_RECORD_COLUMNS = {TOPIC: "topic", PARTITION: "partition", OFFSET: "offset", TIMESTAMP: "timestamp"}

_OPERATORS: dict[type[Filter], Operator] = {
    EqualTo: Operator.EQ,
    LessThan: Operator.LT,
    LessThanOrEqual: Operator.LE,
    GreaterThan: Operator.GT,
    GreaterThanOrEqual: Operator.GE,
    In: Operator.IN,
    IsNull: Operator.IS_NULL,
    IsNotNull: Operator.IS_NOT_NULL,
}

_EPOCH = datetime(1970, 1, 1)
_FIRST_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def narrow_typed(
    read: TypedRead, filters: Iterable[Filter]
) -> tuple[TypedRead, Narrowing, list[Filter]]:
    """What all `filters` leave of a read, and the filters that Spark has to apply again."""
    columns = {each.name: each for each in read.columns}
    comparisons: list[NamedComparison] = []
    of_records: list[tuple[Filter, Filter]] = []
    left: list[Filter] = []
    # Those of the option `where` count, too.
    room = MAX_COMPARISONS // 2
    for each in filters:
        column = columns.get(_name(each) or "")
        if column is not None and column.column in _RECORD_COLUMNS:
            of_records.append((each, _renamed(each, _RECORD_COLUMNS[column.column])))
            continue
        found = None if column is None else _comparison(each, column)
        if column is None or found is None or len(comparisons) >= room:
            left.append(each)
            continue
        comparisons.append(found)
        if not _is_complete(each, column):
            left.append(each)
    narrowing, again = narrow(renamed for _, renamed in of_records)
    left += [each for each, renamed in of_records if any(renamed is one for one in again)]
    return replace(read, filters=tuple(comparisons)), narrowing, left


def _is_complete(one: Filter, column: ReadColumn) -> bool:
    return isinstance(one, IsNull | IsNotNull) or not isinstance(column.type, FloatColumn)


def _comparison(one: Filter, column: ReadColumn) -> NamedComparison | None:
    operator = _OPERATORS.get(type(one))
    if operator is None or column.type is None:
        return None
    values: tuple[Literal, ...] = ()
    if operator not in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        given: Any = getattr(one, "value", None)
        listed = given if operator is Operator.IN else (given,)
        found = [_literal(each, column.type) for each in listed]
        # A null in IN matches nothing, as the rest of it does.
        kept = [each for each, value in zip(found, listed, strict=True) if value is not None]
        if len(kept) > MAX_VALUES or any(each is None for each in kept):
            return None
        if operator is not Operator.IN and not kept:
            return None
        values = tuple(each for each in kept if each is not None)
    elif isinstance(column.type, ArrayColumn | MapColumn | StructColumn):
        return None
    return NamedComparison(column=column.column, operator=operator, values=values)


def _literal(value: Any, column_type: ColumnType) -> Literal | None:
    """The value as comparisons have it. None where its type is not the column's."""
    match column_type, value:
        case (BooleanColumn(), bool()) | (StringColumn(), str()) | (DecimalColumn(), Decimal()):
            literal: Literal = value
            return literal
        case IntegerColumn(), int() if not isinstance(value, bool):
            return int(value)
        case DecimalColumn(), int() if not isinstance(value, bool):
            return Decimal(value)
        case FloatColumn(), float():
            return float(value)
        case BinaryColumn(), bytes() | bytearray():
            return bytes(value)
        case TimestampColumn(with_zone), datetime() if with_zone == (value.tzinfo is not None):
            plain = value.astimezone(UTC).replace(tzinfo=None) if with_zone else value
            return (plain - _EPOCH) // _MICROSECOND
        case DateColumn(), date() if not isinstance(value, datetime):
            return (value - _FIRST_DAY).days
    return None


def _name(one: Filter) -> str | None:
    inner = one.child if isinstance(one, Not) else one
    path: ColumnPath = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else None


def _renamed(one: Any, name: str) -> Filter:
    """The same filter on a column of that name."""
    if isinstance(one, Not):
        return Not(_renamed(one.child, name))
    renamed: Filter = replace(one, attribute=(name,))
    return renamed
