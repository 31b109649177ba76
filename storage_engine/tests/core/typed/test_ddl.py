"""Schemas in Spark's DDL: what is read, what is written, and what is refused with its place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.column_types import (
    MAX_COLUMNS,
    MAX_DEPTH,
    ArrayColumn,
    ColumnSpec,
    DecimalColumn,
    IntegerColumn,
    IntervalColumn,
    MapColumn,
    StringColumn,
    StructColumn,
    StructColumnField,
    TimestampColumn,
    ddl_of,
    nullable_form,
)
from storage_engine.core.typed.ddl import parse_ddl, parse_type, render_ddl
from storage_engine.tests.core.typed.schema_strategies import columns, types
from storage_engine.tests.sampling import examples


@settings(max_examples=examples(150), deadline=None)
@given(columns)
def test_columns_are_read_as_they_were_written(specs):
    assert parse_ddl(render_ddl(specs, exact=True)) == specs


@settings(max_examples=examples(150), deadline=None)
@given(types)
def test_sparks_ddl_loses_nothing_but_that_elements_are_never_null(column_type):
    read = parse_type(ddl_of(column_type))
    assert nullable_form(read) == nullable_form(column_type)
    assert "NOT NULL>" not in ddl_of(ArrayColumn(IntegerColumn(8), element_nullable=False))


@settings(max_examples=examples(150), deadline=None)
@given(st.text(alphabet="ab <>,:`'()-*/;0129.INTARYMPSUC\n", max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text):
    try:
        specs = parse_ddl(text)
    except ConfigError as error:
        assert "\n" not in str(error)
    else:
        assert parse_ddl(render_ddl(specs, exact=True)) == specs


def test_the_forms_that_spark_takes():
    text = """
        id bigint NOT NULL COMMENT 'the ''key''', -- a comment
        `a ``b`: Decimal(10, 2), price NUMERIC, /* none */ at TIMESTAMP_LTZ,
        gap INTERVAL DAY TO SECOND, m MAP<STRING, INTEGER>,
        who STRUCT<name STRING NOT NULL COMMENT 'x', tags: ARRAY<LONG>>;
    """
    assert parse_ddl(text) == [
        ColumnSpec("id", IntegerColumn(64), nullable=False),
        ColumnSpec("a `b", DecimalColumn(10, 2)),
        ColumnSpec("price", DecimalColumn(10, 0)),
        ColumnSpec("at", TimestampColumn(with_zone=True)),
        ColumnSpec("gap", IntervalColumn()),
        ColumnSpec("m", MapColumn(StringColumn(), IntegerColumn(32))),
        ColumnSpec(
            "who",
            StructColumn(
                (
                    StructColumnField("name", StringColumn(), nullable=False),
                    StructColumnField("tags", ArrayColumn(IntegerColumn(64))),
                )
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a FOO", "the DDL can't be read at character 3, 'FOO': no type has that name"),
        ("a VARCHAR(3)", "at character 3, 'VARCHAR': a column can't have that type: use STRING"),
        ("a INTERVAL YEAR TO MONTH", "only INTERVAL DAY TO SECOND can be stored"),
        ("a DECIMAL(39)", "DECIMAL(39,0): the precision must be from 1 to 38"),
        ("a DECIMAL(2,3)", "the scale must be from 0 to the precision"),
        ("a STRING COLLATE UNICODE", "collations are not kept: leave it out"),
        ("a INT DEFAULT 3", "'DEFAULT': a comma or the end is expected"),
        ("a STRUCT<>", "a STRUCT needs a field"),
        ("a STRUCT<x: INT, X: INT>", "the field 'X' stands twice in a STRUCT: rename one"),
        ("a ARRAY<INT", "the end of the text: '>' is expected"),
        ("a-b INT", "character 2, '-': a type is expected"),
        ("'a' INT", "a name is expected; names with other characters need backquotes"),
        ("", "the end of the text: a name is expected"),
    ],
)
def test_what_is_refused_is_told_with_its_place(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_ddl(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a " + "ARRAY<" * 40_000, "nested more than 16 deep"),
        ("a " + "ARRAY<" * 5 + "INT" + ">" * 5 + ", b " + "MAP<INT," * 30_000, "16 deep"),
        (
            "a STRUCT<" + ", ".join(f"f{n}: INT" for n in range(MAX_COLUMNS)) + ">",
            "more than 2,000",
        ),
        (", ".join(f"f{n} INT" for n in range(MAX_COLUMNS + 1)), "more than 2,000 columns"),
        ("a INT" * 100_000, "more than 256 KiB"),
        ("/* " * 80_000, "has no end"),
        ("`" * 100_001, "no closing backquote"),
        ("a \ud800INT", "half a character"),
    ],
    ids=["deep", "deep-map", "wide-struct", "wide", "long", "comments", "quotes", "surrogate"],
)
def test_a_hostile_text_is_refused_soon(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_ddl(text)


def test_types_of_the_largest_depth_and_number_are_taken():
    nested = "ARRAY<" * (MAX_DEPTH - 1) + "INT" + ">" * (MAX_DEPTH - 1)
    assert ddl_of(parse_type(nested)) == nested
    assert len(parse_ddl(", ".join(f"f{n} INT" for n in range(MAX_COLUMNS)))) == MAX_COLUMNS
