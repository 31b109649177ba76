"""Values in conditions, by the type of their column: what they mean, and what is refused."""

import math
from decimal import Decimal

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.core.typed.where import parse_where

DAY_US = 86_400_000_000


def value_of(kind, text, *, needs_zone=False):
    version = new_schema(parse_ddl(f"c {kind}")).latest
    (comparison,) = parse_where(f"c = {text}", version, needs_zone=needs_zone)
    return comparison.values[0]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("TINYINT", "-128", -128),
        ("INT", "5e1", 50),
        ("DOUBLE", "1.5e3", 1500.0),
        ("DOUBLE", "'-Infinity'", -math.inf),
        ("DECIMAL(6,2)", "10.5", Decimal("10.50")),
        ("DECIMAL(6,2)", "-0.01", Decimal("-0.01")),
        ("BINARY", "X'00fF'", b"\x00\xff"),
        ("DATE", "DATE '1970-02-01'", 31),
        ("DATE", "'1969-12-31'", -1),
        ("TIMESTAMP", "TIMESTAMP '1970-01-01 00:00:01.5'", 1_500_000),
        ("TIMESTAMP", "'1970-01-01T02:00:00+02:00'", 0),
        ("TIMESTAMP", "'1970-01-01 00:00:00 UTC'", 0),
        ("TIMESTAMP", "'1969-12-31T23:59:59.9999999Z'", -1),
        ("TIMESTAMP", "'1969-12-31T19:59:59.000001-04:00'", -999_999),
        ("TIMESTAMP_NTZ", "'1850-01-01T00:00:00.000001'", -43_829 * DAY_US + 1),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '1970-01-02'", DAY_US),
        ("INTERVAL DAY TO SECOND", "INTERVAL '-1 00:00:00.000001' DAY TO SECOND", -DAY_US - 1),
    ],
)
def test_what_a_value_means(kind, text, value):
    found = value_of(kind, text)
    assert (type(found), str(found)) == (type(value), str(value))


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("BIGINT", "1.5", "the number is not a whole one of 64 bits"),
        ("TINYINT", "128", "the number is not a whole one of 8 bits"),
        ("DECIMAL(6,2)", "1.005", "the number has more than 2 digits behind the point"),
        ("DECIMAL(6,2)", "10000", "the number has more than 4 digits"),
        ("DOUBLE", "1e999", "the number is out of range"),
        ("DOUBLE", "1" + "0" * 5000, "more than 400 characters"),
        ("DOUBLE", "'much'", "column c is DOUBLE"),
        ("BINARY", "X'0'", "column c is BINARY"),
        ("DATE", "'2026-02-30'", "day is out of range"),
        ("DATE", "'20260101'", "a date is 2026-01-31"),
        ("TIMESTAMP_NTZ", "'2026-01-01T00:00:00Z'", "has a zone, and the column's times have none"),
        ("TIMESTAMP", "'0001-01-01T00:00:00+23:00'", "the time is out of range"),
        ("TIMESTAMP", "'20260101'", "a time is 2026-01-31 12:00:00, with Z"),
        ("TIMESTAMP", "'2026-W01-1'", "a time is 2026-01-31 12:00:00, with Z"),
        ("INTERVAL DAY TO SECOND", "INTERVAL '1' DAY TO SECOND", "an interval is INTERVAL '1 02"),
    ],
)
def test_what_is_no_value_of_the_type_is_told(kind, text, message):
    with pytest.raises(ConfigError) as caught:
        value_of(kind, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("time", ["2026-06-15", "2026-06-15 00:00:00", "2026-06-15T00:00:00.5"])
def test_times_of_columns_with_a_zone_may_have_to_say_theirs(time):
    for literal in (f"'{time}'", f"TIMESTAMP '{time}'", f"TIMESTAMP_NTZ '{time}'"):
        with pytest.raises(ConfigError, match=r"no zone: put Z, UTC or an offset"):
            value_of("TIMESTAMP", literal, needs_zone=True)
    assert value_of("TIMESTAMP_NTZ", f"'{time}'", needs_zone=True)
