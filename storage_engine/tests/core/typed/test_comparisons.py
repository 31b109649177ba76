"""Rows are skipped by their statistics only where none of them matches: against a judge that looks
at each row."""

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.column_types import (
    ArrayColumn,
    BinaryColumn,
    BooleanColumn,
    DecimalColumn,
    FloatColumn,
    IntegerColumn,
    StringColumn,
)
from storage_engine.core.typed.comparisons import (
    MAX_VALUES,
    ColumnStatistics,
    Comparison,
    Operator,
    may_match,
)
from storage_engine.tests.sampling import examples

LIMIT = 3
"""Bytes or characters of a text in statistics, so that they are often shortened."""

VALUES = {
    IntegerColumn(64): st.integers(-5, 5) | st.sampled_from([-(2**63), 2**63 - 1]),
    BooleanColumn(): st.booleans(),
    FloatColumn(64): st.sampled_from([math.nan, -math.inf, math.inf, -0.0, 0.0, 1.5, -1.5, 5e-324]),
    DecimalColumn(9, 2): st.integers(-300, 300).map(lambda number: Decimal(number).scaleb(-2)),
    StringColumn(): st.text(alphabet="aéz\U0001f600", max_size=5),
    BinaryColumn(): st.text(alphabet="\x00az\xff", max_size=5).map(
        lambda text: text.encode("latin1")
    ),
}


def is_nan(value):
    return isinstance(value, float) and math.isnan(value)


def order(value):
    """Where a value stands in Spark's order, in which NaN is the largest."""
    value = value.encode() if isinstance(value, str) else value
    return (1, 0) if is_nan(value) else (0, value)


def matches(comparison, value):
    """Whether a row with that value matches, as Spark defines it."""
    if comparison.operator is Operator.IS_NULL:
        return value is None
    if value is None:
        return False
    given = [order(each) for each in comparison.values]
    at = order(value)
    return {
        Operator.EQ: lambda: at == given[0],
        Operator.NE: lambda: at != given[0],
        Operator.LT: lambda: at < given[0],
        Operator.LE: lambda: at <= given[0],
        Operator.GT: lambda: at > given[0],
        Operator.GE: lambda: at >= given[0],
        Operator.IN: lambda: at in given,
        Operator.IS_NOT_NULL: lambda: True,
    }[comparison.operator]()


def statistics_of(values):
    present: list[Any] = [value for value in values if value is not None and not is_nan(value)]
    least: Any = min(present, key=order, default=None)
    most: Any = max(present, key=order, default=None)
    is_text = isinstance(least, str | bytes)
    return ColumnStatistics(
        rows=len(values),
        null_count=values.count(None),
        minimum=least[:LIMIT] if is_text else least,
        maximum=most[:LIMIT] if is_text else most,
        minimum_is_exact=not is_text or len(least) <= LIMIT,
        maximum_is_exact=not is_text or len(most) <= LIMIT,
        has_nan=any(map(is_nan, values)),
    )


def comparisons(literals):
    one = st.sampled_from(
        [Operator.EQ, Operator.NE, Operator.LT, Operator.LE, Operator.GT, Operator.GE]
    )
    return st.one_of(
        st.builds(lambda operator, value: Comparison(1, operator, (value,)), one, literals),
        st.lists(literals, max_size=3).map(lambda few: Comparison(1, Operator.IN, tuple(few))),
        st.sampled_from([Operator.IS_NULL, Operator.IS_NOT_NULL]).map(lambda o: Comparison(1, o)),
    )


@pytest.mark.parametrize("column_type", VALUES, ids=lambda each: type(each).__name__)
def test_what_matches_is_never_skipped(column_type):
    literals = VALUES[column_type]

    @settings(max_examples=examples(500), deadline=None)
    @given(st.lists(st.none() | literals, min_size=1, max_size=4), comparisons(literals))
    def check(values, comparison):
        statistics = statistics_of(values)
        if any(matches(comparison, value) for value in values):
            assert may_match(comparison, column_type, statistics), (values, comparison)

    check()


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.none() | VALUES[IntegerColumn(64)], min_size=1, max_size=4),
    comparisons(VALUES[IntegerColumn(64)]),
)
def test_rows_of_one_value_are_skipped_exactly(values, comparison):
    """Exact statistics decide exactly where all rows are alike."""
    alike = [values[0]] * len(values)
    assert may_match(comparison, IntegerColumn(64), statistics_of(alike)) == matches(
        comparison, values[0]
    )


NAN, TEXT, NUMBER = FloatColumn(64), StringColumn(), IntegerColumn(64)


def compared(operator, *values):
    return Comparison(1, operator, values)


@pytest.mark.parametrize(
    ("column_type", "rows", "comparison", "expected"),
    [
        (NAN, [1.0, math.nan], compared(Operator.GT, 7.0), True),
        (NAN, [1.0, math.nan], compared(Operator.EQ, math.nan), True),
        (NAN, [1.0, 2.0], compared(Operator.EQ, math.nan), False),
        (NAN, [1.0, 2.0], compared(Operator.GE, math.nan), False),
        (NAN, [math.nan], compared(Operator.GT, math.nan), False),
        (NAN, [0.0], compared(Operator.LT, -0.0), False),
        (NAN, [0.0], compared(Operator.EQ, -0.0), True),
        (NAN, [1.0, math.nan], compared(Operator.LE, 0.0), False),
        (TEXT, ["abcdef"], compared(Operator.GT, "abcx"), True),
        (TEXT, ["abcdef"], compared(Operator.EQ, "abd"), False),
        (TEXT, ["abcdef"], compared(Operator.IN, "aba", "abd"), False),
        (TEXT, ["abcdef", None], compared(Operator.NE, "abc"), True),
        (TEXT, [None, None], compared(Operator.NE, "abc"), False),
        (TEXT, ["a"], compared(Operator.NE, "a"), False),
        (NUMBER, [3, 9], compared(Operator.LT, 3), False),
        (NUMBER, [3, 9], compared(Operator.IN), False),
        (NUMBER, [3, 9], compared(Operator.IS_NULL), False),
        (NUMBER, [None], compared(Operator.IS_NOT_NULL), False),
    ],
)
def test_the_cases_that_are_easily_wrong(column_type, rows, comparison, expected):
    assert may_match(comparison, column_type, statistics_of(rows)) is expected


def test_what_is_not_known_is_not_skipped():
    unknown = ColumnStatistics(rows=3, null_count=1)
    for operator in (Operator.EQ, Operator.NE, Operator.LT, Operator.GE):
        assert may_match(compared(operator, 1), NUMBER, None)
        assert may_match(compared(operator, 1), NUMBER, unknown)
        of_texts = ColumnStatistics(rows=3, null_count=1, minimum=5, maximum=9)
        assert may_match(compared(operator, "x"), TEXT, of_texts), "statistics of another type"
        not_numbers = ColumnStatistics(rows=3, null_count=1, minimum=math.nan, maximum=math.nan)
        assert may_match(compared(operator, 1.0), NAN, not_numbers)
        nested = ColumnStatistics(rows=3, null_count=1, minimum=5, maximum=9)
        assert may_match(compared(operator, 1), ArrayColumn(NUMBER), nested)
    assert may_match(compared(Operator.EQ, Decimal("sNaN")), NUMBER, statistics_of([1]))


def test_a_comparison_has_the_values_that_its_operator_takes():
    for operator, count in (
        (Operator.EQ, 0),
        (Operator.EQ, 2),
        (Operator.IS_NULL, 1),
        (Operator.IN, MAX_VALUES + 1),
    ):
        with pytest.raises(ConfigError, match=operator.name):
            Comparison(1, operator, (1,) * count)
