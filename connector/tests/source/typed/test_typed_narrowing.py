"""Which filters of a batch read go to the brokers of a typed topic, and which Spark applies
again."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from connector.source.pushdown.typed_narrowing import narrow_typed
from connector.source.typed.typed_read import NamedComparison, plan_read
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema

SCHEMA = new_schema(
    parse_ddl(
        "id BIGINT, fare DOUBLE, paid DECIMAL(10,2), name STRING, raw BINARY, ok BOOLEAN, "
        "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, who STRUCT<n: INT>, offset INT"
    )
)
NAMES = [column.name for column in SCHEMA.latest.columns]
READ = plan_read(
    {"t": KnownSchema(UUID(int=1), SCHEMA)},
    chosen=[*NAMES, "_offset", "_partition", "_timestamp"],
    where=None,
    user_schema=None,
)


def _narrowed(*filters):
    read, narrowing, left = narrow_typed(READ, filters)
    return read.filters, narrowing, left


@pytest.mark.parametrize(
    ("one", "operator", "values"),
    [
        (EqualTo(("id",), 5), Operator.EQ, (5,)),
        (LessThan(("name",), "x"), Operator.LT, ("x",)),
        (LessThanOrEqual(("paid",), Decimal("1.50")), Operator.LE, (Decimal("1.50"),)),
        (GreaterThan(("raw",), bytearray(b"x")), Operator.GT, (b"x",)),
        (GreaterThanOrEqual(("ok",), True), Operator.GE, (True,)),
        (EqualTo(("day",), date(1970, 1, 3)), Operator.EQ, (2,)),
        (EqualTo(("at",), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), Operator.EQ, (1_000_000,)),
        (EqualTo(("local",), datetime(1969, 12, 31, 23, 59, 59)), Operator.EQ, (-1_000_000,)),
        (In(("id",), (1, None, 3)), Operator.IN, (1, 3)),
        (IsNull(("fare",)), Operator.IS_NULL, ()),
        (IsNotNull(("name",)), Operator.IS_NOT_NULL, ()),
    ],
)
def test_a_comparison_with_values_of_the_columns_type_is_complete(one, operator, values):
    column = one.attribute[0]
    expected = NamedComparison(column=column, operator=operator, values=values)
    filters, _, left = _narrowed(one)
    assert (filters, left) == ((expected,), [])


def test_floats_are_compared_by_the_brokers_and_by_spark_again():
    one = GreaterThan(("fare",), 1.5)
    filters, _, left = _narrowed(one)
    assert filters == (NamedComparison(column="fare", operator=Operator.GT, values=(1.5,)),)
    assert left == [one]


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("id",), 5)),
        EqualNullSafe(("id",), 5),
        StringStartsWith(("name",), "x"),
        EqualTo(("who", "n"), 1),
        IsNotNull(("who",)),
        EqualTo(("id",), "5"),
        EqualTo(("id",), True),
        EqualTo(("id",), None),
        EqualTo(("at",), datetime(2026, 1, 1)),
        EqualTo(("local",), datetime(2026, 1, 1, tzinfo=UTC)),
        EqualTo(("day",), datetime(2026, 1, 1)),
        In(("id",), (1, "2")),
        In(("id",), tuple(range(1001))),
        EqualTo(("missing",), 1),
    ],
)
def test_other_filters_are_left_to_spark(one):
    filters, _, left = _narrowed(one)
    assert (filters, left) == ((), [one])


def test_columns_that_tell_the_place_narrow_what_is_fetched_and_a_column_offset_does_not():
    late = GreaterThanOrEqual(("_timestamp",), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    place = (LessThan(("_offset",), 8), EqualTo(("_partition",), 1), late)
    own = EqualTo(("offset",), 3)
    filters, narrowing, left = _narrowed(*place, own)
    assert filters == (NamedComparison(column="offset", operator=Operator.EQ, values=(3,)),)
    assert (narrowing.end_offset, narrowing.start_timestamp_ms) == (8, 1000)
    assert len(narrowing.filters) == 1
    assert left == [late]


def test_pushed_filters_and_the_option_where_both_hold():
    schemas = {"t": KnownSchema(UUID(int=1), SCHEMA)}
    read = plan_read(schemas, chosen=None, where="id > 5", user_schema=None)
    read, _, _ = narrow_typed(read, [EqualTo(("name",), "x")])
    assert read.comparisons("t", SCHEMA.latest) == (
        Comparison(1, Operator.GT, (5,)),
        Comparison(4, Operator.EQ, ("x",)),
    )


def test_more_filters_than_a_fetch_may_have_are_left_to_spark():
    many = [GreaterThan(("id",), number) for number in range(120)]
    filters, _, left = _narrowed(*many)
    assert len(filters) + len(left) == 120
    assert len(filters) == 50
