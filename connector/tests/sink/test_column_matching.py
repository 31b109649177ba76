"""Which DataFrames fit into a typed topic, by their columns' names and types."""

import pytest
from pyspark.sql.types import NullType

from connector.errors import OptionError
from connector.sink.typed.column_matching import check_matching
from connector.tests.options.parsed import one_line
from connector.typed_columns import spark_type
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema

TRIPS = (
    "id BIGINT NOT NULL, fare DOUBLE, paid DECIMAL(12,2), tags ARRAY<STRING>, who STRUCT<n: INT>"
)


def _check(frame, topic=TRIPS, origin=()):
    version = new_schema(parse_ddl(topic), ["id"]).latest
    check_matching("trips", version, _columns(frame), origin=origin)


def _columns(frame):
    return {column.name: spark_type(column.type) for column in parse_ddl(frame)}


@pytest.mark.parametrize(
    "frame",
    [
        "id BIGINT",
        "ID INT, Fare FLOAT, PAID DECIMAL(5,1)",
        "id TINYINT, fare INT, paid INT",
        "tags ARRAY<STRING>, id SMALLINT, who STRUCT<N: SMALLINT>",
        "id BIGINT, _partition INT, _timestamp TIMESTAMP",
    ],
)
def test_columns_match_by_name_whatever_their_case_order_and_narrower_types(frame):
    _check(frame)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ("fare DOUBLE", "the column 'id' of the topic 'trips' is NOT NULL, and the rows don't"),
        ("id BIGINT, fair DOUBLE", "has no column 'fair'; did you mean 'fare'?"),
        ("id BIGINT, value STRING", "is typed and has no column 'value'; it has id, fare, paid"),
        ("id STRING", "the column 'id' is string, and in the topic 'trips' it is BIGINT: cast it"),
        ("id DECIMAL(20,0)", "is decimal(20,0), and in the topic 'trips' it is BIGINT"),
        ("id BIGINT, fare BIGINT", "the column 'fare' is bigint"),
        ("id BIGINT, fare DECIMAL(5,1)", "the column 'fare' is decimal(5,1)"),
        ("id BIGINT, paid DECIMAL(12,3)", "it is DECIMAL(12,2): cast it"),
        ("id BIGINT, paid BIGINT", "the column 'paid' is bigint"),
        ("id BIGINT, tags ARRAY<INT>", "the column 'tags' is array<int>"),
        ("id BIGINT, who STRUCT<n: INT, m: INT>", "the column 'who' is struct<n:int,m:int>"),
        ("id BIGINT, who STRUCT<n: BIGINT>", "the column 'who' is struct<n:bigint>"),
        ("id BIGINT, _headers STRING", "the column '_headers' can't be written to a typed topic"),
        ("id BIGINT, _deleted BOOLEAN", "the column '_deleted' can't be written to a typed topic"),
        ("id BIGINT, _offset BIGINT", "the column '_offset' says where a row was read"),
        ("id BIGINT, _partition BIGINT", "the column '_partition' must be int, not bigint"),
    ],
)
def test_what_does_not_fit_is_one_line_that_names_the_column(frame, message):
    with one_line(message):
        _check(frame)


def test_rows_without_any_column_of_the_topic_are_not_written():
    version = new_schema(parse_ddl("id BIGINT"), []).latest
    with pytest.raises(OptionError, match="the rows have no column of the typed topic 't'"):
        check_matching("t", version, _columns("_partition INT"))


def test_a_hidden_column_is_not_written():
    schema = new_schema(parse_ddl("id BIGINT, fare DOUBLE"), []).evolved(parse_ddl("id BIGINT"))
    with pytest.raises(
        OptionError, match="'fare' of the topic 't' is hidden, and can't be written"
    ):
        check_matching("t", schema.latest, _columns("id INT, fare DOUBLE"))


def test_a_type_that_no_topic_has_is_named():
    version = new_schema(parse_ddl("id BIGINT"), []).latest
    with pytest.raises(OptionError, match="'id' has the type void, which typed topics don't have"):
        check_matching("t", version, {"id": NullType()})


def test_an_origin_has_no_name_of_a_column_of_the_topic():
    _check("id BIGINT", origin=("topic", "part", "offset"))
    with pytest.raises(OptionError, match="'fare' of idempotentKey is also a column of the topic"):
        _check("id BIGINT", origin=("topic", "fare", "offset"))
