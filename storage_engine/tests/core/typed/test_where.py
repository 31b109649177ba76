"""Conditions as text: what they mean, and what they are refused for."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.core.typed.where import parse_where
from storage_engine.tests.sampling import examples

COLUMNS = (
    "id BIGINT, small TINYINT, fare DOUBLE, price DECIMAL(6,2), raw BINARY, name STRING, "
    "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, gap INTERVAL DAY TO SECOND, ok BOOLEAN, "
    "`a b` INT, tags ARRAY<STRING>"
)
VERSION = new_schema(parse_ddl(COLUMNS)).latest
ID, SMALL, FARE, PRICE, RAW, NAME, DAY, AT, LOCAL, GAP, OK, SPACED, TAGS = range(1, 14)
DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ID = 5", [(ID, Operator.EQ, 5)]),
        ("id >= -5", [(ID, Operator.GE, -5)]),
        ("small<>127", [(SMALL, Operator.NE, 127)]),
        ("fare<1.5e3", [(FARE, Operator.LT, 1500.0)]),
        ("price <= -10.5", [(PRICE, Operator.LE, Decimal("-10.50"))]),
        ("at > TIMESTAMP '1970-01-01 00:00:01.5'", [(AT, Operator.GT, 1_500_000)]),
        ("gap = INTERVAL '1 00:00:00' DAY TO SECOND", [(GAP, Operator.EQ, DAY_US)]),
        ("name != 'it''s -- \\n'", [(NAME, Operator.NE, "it's -- \\n")]),
        ("ok = TRUE", [(OK, Operator.EQ, True)]),
        ("`a b` = 1", [(SPACED, Operator.EQ, 1)]),
        ("tags IS NOT NULL", [(TAGS, Operator.IS_NOT_NULL)]),
        ("name is null", [(NAME, Operator.IS_NULL)]),
        ("id IN (3, -4)", [(ID, Operator.IN, 3, -4)]),
        ("id BETWEEN 1 AND 9 AND ok = false",
         [(ID, Operator.GE, 1), (ID, Operator.LE, 9), (OK, Operator.EQ, False)]),
    ],
)  # fmt: skip
def test_what_a_condition_means(text, expected):
    wanted = tuple(
        Comparison(column, operator, tuple(values)) for column, operator, *values in expected
    )
    assert parse_where(text, VERSION) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ide = 5", "there is no column 'ide', did you mean 'id'?"),
        ("id = 'x'", "column id is BIGINT, and the value must be one of that type"),
        ("gap = 5", "column gap is INTERVAL DAY TO SECOND"),
        ("tags = 'x'", "nested columns can only be compared with NULL"),
        ("id = NULL", "nothing is equal to NULL: use IS NULL"),
        ("id = 1 OR id = 2", "character 8, 'OR': conditions are a column"),
        ("NOT id = 1", "character 1, 'NOT': conditions are a column"),
        ("(id = 1)", "character 1, '(': conditions are a column"),
        ("id NOT IN (1)", "character 4, 'NOT': conditions are a column"),
        ("name LIKE 'a%'", "character 6, 'LIKE': conditions are a column"),
        ("id <=> 1", "'<=>': conditions are a column"),
        ("upper(name) = 'A'", "functions and nested fields are not supported"),
        ("who.name = 'A'", "functions and nested fields are not supported"),
        ("1 < id", "a column is expected"),
        ("id IN ()", "column id is BIGINT"),
        ("", "the end of the text: a column is expected"),
        ("id = 5 AND", "the end of the text: a column is expected"),
        (" AND ".join(["id = 1"] * 101), "more than 100 comparisons"),
        ("id IN (" + ",".join(["1"] * 1001) + ")", "more than 1,000 values"),
        ("id = 1 -- " + "x" * 300_000, "more than 256 KiB"),
    ],
)
def test_what_is_refused_is_told(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_where(text, VERSION)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


WORDS = [
         "id", "fare", "price", "at", "gap", "AND", "=", "<", "IN", "(", ")", ",", "-", "'x'", "5",
         "1e5", ".5", "BETWEEN", "IS", "NULL", "DATE", "'2026-01-01'", "INTERVAL", "X",
         "\n"]  # fmt: skip


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join))
def test_any_text_is_read_or_refused_in_one_line(text):
    try:
        parse_where(text, VERSION)
    except ConfigError as error:
        assert "\n" not in str(error)
