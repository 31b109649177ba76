"""The comparisons of a filter, and whether rows with given statistics can match one.

A filter is a conjunction of comparisons. The decision errs on one side only: rows are skipped only
where none of them can match. Values compare as Spark compares them: NaN equals itself and is larger
than every other number, -0.0 equals 0.0, strings and binaries go by their bytes (in UTF-8 that is
the order of code points), and null matches nothing but IS NULL.
"""

import enum
import math
from dataclasses import dataclass
from decimal import Decimal

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.column_types import (
    ArrayColumn,
    ColumnType,
    FloatColumn,
    MapColumn,
    StructColumn,
)

MAX_COMPARISONS = 100
"""The most comparisons of one filter."""

MAX_VALUES = 1_000
"""The most values of one IN."""

Literal = bool | int | float | str | bytes | Decimal
"""A value of a column that is not nested. Dates are days since 1970-01-01; timestamps and intervals
are microseconds."""


class Operator(enum.IntEnum):
    """The operators, with their numbers in a filter's bytes."""

    EQ = 1
    NE = 2
    LT = 3
    LE = 4
    GT = 5
    GE = 6
    IN = 7
    IS_NULL = 8
    IS_NOT_NULL = 9


@dataclass(frozen=True, slots=True)
class Comparison:
    """One condition on one column. A FLOAT's values are compared as doubles."""

    column_id: int
    operator: Operator
    values: tuple[Literal, ...] = ()
    """Empty for IS_NULL and IS_NOT_NULL, any number for IN, one for the others."""

    def __post_init__(self) -> None:
        count = len(self.values)
        match self.operator:
            case Operator.IS_NULL | Operator.IS_NOT_NULL:
                is_possible = count == 0
            case Operator.IN:
                is_possible = count <= MAX_VALUES
            case _:
                is_possible = count == 1
        if not is_possible:
            raise ConfigError(
                f"{self.operator.name} with {count:,} values: it takes none for IS_NULL and "
                f"IS_NOT_NULL, at most {MAX_VALUES:,} for IN, and else one"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """Statistics of the values of a column in some rows."""

    rows: int
    null_count: int
    minimum: Literal | None = None
    """The least value that is neither null nor NaN; None: not known, or there is none."""
    maximum: Literal | None = None
    minimum_is_exact: bool = True
    """False: the first bytes of the least value."""
    maximum_is_exact: bool = True
    """False: the first bytes of the largest value."""
    has_nan: bool = False


def may_match(
    comparison: Comparison, column_type: ColumnType, statistics: ColumnStatistics | None
) -> bool:
    """Return False only when no row with these statistics matches."""
    if statistics is None:
        return True
    match comparison.operator:
        case Operator.IS_NULL:
            return statistics.null_count > 0
        case Operator.IS_NOT_NULL:
            return statistics.null_count < statistics.rows
    if statistics.null_count >= statistics.rows:
        return False
    if isinstance(column_type, ArrayColumn | MapColumn | StructColumn):
        return True
    try:
        return _may_compare(comparison, isinstance(column_type, FloatColumn), statistics)
    except (TypeError, ArithmeticError):
        # The value is of another kind than the column's. Its rows are for the reader to judge.
        return True


def _may_compare(comparison: Comparison, is_float: bool, statistics: ColumnStatistics) -> bool:
    if comparison.operator is Operator.IN:
        return any(_may_equal(value, is_float, statistics) for value in comparison.values)
    (value,) = comparison.values
    if is_float and _is_nan(value):
        return _may_compare_nan(comparison.operator, statistics)
    minimum, maximum = statistics.minimum, statistics.maximum
    if _is_unknown(minimum) or _is_unknown(maximum):
        return True
    match comparison.operator:
        case Operator.EQ:
            return _may_equal(value, is_float, statistics)
        case Operator.NE:
            return not _all_equal(value, statistics)
        case Operator.LT:
            return _is_below(minimum, value, may_equal=False)
        case Operator.LE:
            return _is_below(minimum, value, may_equal=True)
        case Operator.GT:
            # NaN is larger than every number.
            return statistics.has_nan or _reaches(value, statistics, may_equal=False)
        case _:
            return statistics.has_nan or _reaches(value, statistics, may_equal=True)


def _may_compare_nan(operator: Operator, statistics: ColumnStatistics) -> bool:
    match operator:
        case Operator.EQ | Operator.GE:
            return statistics.has_nan
        case Operator.GT:
            return False
        case _:
            # Every number is less than NaN, and whether there is one may not be known.
            return True


def _may_equal(value: Literal, is_float: bool, statistics: ColumnStatistics) -> bool:
    if is_float and _is_nan(value):
        return statistics.has_nan
    minimum = statistics.minimum
    if _is_unknown(minimum) or _is_unknown(statistics.maximum):
        return True
    return _is_below(minimum, value, may_equal=True) and _reaches(value, statistics, may_equal=True)


def _is_below(least: Literal | None, value: Literal | None, *, may_equal: bool) -> bool:
    """Compare two values; `may_match` catches the TypeError for different kinds."""
    return least <= value if may_equal else least < value  # type: ignore[operator]


def _reaches(value: Literal, statistics: ColumnStatistics, *, may_equal: bool) -> bool:
    """Return whether a number or a text may be above `value`, or equal to it if that counts."""
    maximum = statistics.maximum
    if not statistics.maximum_is_exact:
        # The largest value begins with `maximum`, and what follows is not known.
        return _is_below(value, maximum, may_equal=True) or _begins_with(value, maximum)
    return _is_below(value, maximum, may_equal=may_equal)


def _all_equal(value: Literal, statistics: ColumnStatistics) -> bool:
    return (
        statistics.minimum_is_exact
        and statistics.maximum_is_exact
        and not statistics.has_nan
        and statistics.minimum == value == statistics.maximum
    )


def _begins_with(value: Literal, beginning: Literal | None) -> bool:
    if isinstance(value, str) and isinstance(beginning, str):
        return value.startswith(beginning)
    if isinstance(value, bytes) and isinstance(beginning, bytes):
        return value.startswith(beginning)
    return True


def _is_nan(value: Literal) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _is_unknown(bound: Literal | None) -> bool:
    return bound is None or _is_nan(bound)
