"""Columns read and written."""

import inspect

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from connector.errors import OptionError
from connector.schema import (
    ALL_COLUMNS,
    COLUMNS,
    check_sink_schema,
    check_user_schema,
    source_arrow_schema,
    source_schema,
)
from connector.tests.options.parsed import one_line

# An earlier Spark knows no other zone.
UTC = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


@pytest.mark.parametrize("columns", [COLUMNS, ALL_COLUMNS, ("value", "offset")])
def test_the_arrow_schema_is_the_one_that_spark_derives(columns):
    ours = source_arrow_schema(columns)
    theirs = to_arrow_schema(source_schema(columns), **UTC)
    assert ours.names == list(columns)
    assert ours.equals(theirs)


def _struct(ddl):
    columns = StructType()
    for column in ddl.split(";"):
        name, data_type = column.split(" ", 1)
        if data_type.startswith("array"):
            columns.add(name, source_schema(ALL_COLUMNS)["headers"].dataType)
        else:
            columns.add(name, data_type)
    return columns


@pytest.mark.parametrize(
    "ddl",
    [
        "value string",
        "key binary;value binary",
        "KEY string;Value binary;headers array;topic string;partition integer",
    ],
)
def test_rows_that_can_be_written_pass(ddl):
    check_sink_schema(_struct(ddl), topic_option="t")


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("key string", "the column 'value' is missing"),
        ("value integer", "the column 'value' must be string or binary, not int; cast it"),
        ("value string;partition long", "the column 'partition' must be int, not bigint"),
        ("value string;topic binary", "the column 'topic' must be string"),
        ("value string;colour string", "the column 'colour' can't be written"),
        ("value string;headers string", "the column 'headers' must be array<struct<key:string"),
        ("value string;VALUE string", "same name"),
    ],
)
def test_rows_that_cannot_be_written_are_one_line(ddl, message):
    with one_line(message):
        check_sink_schema(_struct(ddl), topic_option="t")


def test_a_topic_must_come_from_somewhere():
    with pytest.raises(OptionError, match="set the option 'topic' or add a column 'topic'"):
        check_sink_schema(_struct("value string"), topic_option=None)
    check_sink_schema(_struct("value string;topic string"), topic_option=None)


ORIGIN = ("topic", "partition", "offset")


def test_the_columns_of_an_origin_are_no_part_of_the_record():
    keyed = _struct("value string;Topic string;partition integer;OFFSET long")
    check_sink_schema(keyed, topic_option="t", origin=ORIGIN)
    both = _struct("value string;topic string;partition integer;t string;p integer;o integer")
    check_sink_schema(both, topic_option=None, origin=("t", "p", "o"))


@pytest.mark.parametrize(
    ("ddl", "topic", "message"),
    [
        ("value string;topic string;partition integer", "t", "'offset', which idempotentKey names"),
        ("value string;topic string;partition long;offset long", "t", "must be int, not bigint"),
        ("value string;topic binary;partition integer;offset long", "t", "must be string, not bin"),
        (
            "value string;topic string;partition integer;offset long",
            None,
            "that of idempotentKey says where a row comes from",
        ),
    ],
)
def test_an_origin_that_cannot_be_told_is_one_line(ddl, topic, message):
    with one_line(message):
        check_sink_schema(_struct(ddl), topic_option=topic, origin=ORIGIN)


def test_a_schema_given_to_the_source_must_be_its_own():
    check_user_schema(source_schema(COLUMNS), columns=COLUMNS)
    with pytest.raises(OptionError, match="has its own schema"):
        check_user_schema(_struct("value string"), columns=COLUMNS)
