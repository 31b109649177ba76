"""Which columns of typed topics a query reads, and which topics can be read together."""

import pickle
from uuid import UUID

import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from connector.errors import OptionError
from connector.source.typed.typed_read import check_fits, check_typed_alike, plan_read
from connector.tests.options.parsed import one_line
from connector.typed_columns import spark_type
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema

TRIPS = "id BIGINT NOT NULL, fare DOUBLE, tags ARRAY<STRING NOT NULL>"


def _known(ddl, number=1):
    return KnownSchema(UUID(int=number), new_schema(parse_ddl(ddl)))


def _read(*ddls, chosen=None, where=None, user=None):
    topics = {f"t{number}": _known(ddl, number) for number, ddl in enumerate(ddls, 1)}
    schema = None
    if user is not None:
        columns = parse_ddl(user)
        schema = StructType(
            [StructField(each.name, spark_type(each.type), each.nullable) for each in columns]
        )
    return plan_read(topics, chosen=chosen, where=where, user_schema=schema)


def _told(read):
    return read.spark_schema().simpleString()


def test_all_visible_columns_are_read_unless_some_are_named_and_all_of_them_are_nullable():
    read = _read(TRIPS)
    assert _told(read) == "struct<id:bigint,fare:double,tags:array<string>>"
    assert all(field.nullable for field in read.spark_schema())
    assert read.spark_schema()["tags"].dataType.containsNull


def test_columns_come_in_the_order_asked_for_also_those_that_tell_the_place():
    read = _read(TRIPS, chosen=("FARE", "_Offset", "_topic", "id"))
    assert _told(read) == "struct<fare:double,_offset:bigint,_topic:string,id:bigint>"


def test_hidden_columns_are_read_where_they_are_named():
    schema = new_schema(parse_ddl("id BIGINT, fare DOUBLE")).evolved(parse_ddl("id BIGINT"))
    topics = {"t": KnownSchema(UUID(int=1), schema)}
    options = {"where": None, "user_schema": None}
    assert _told(plan_read(topics, chosen=None, **options)) == "struct<id:bigint>"
    assert _told(plan_read(topics, chosen=("fare",), **options)) == "struct<fare:double>"


def test_a_schema_of_the_users_own_names_columns_and_keeps_his_spelling():
    read = _read(TRIPS, user="Fare DOUBLE, _partition INT, ID BIGINT")
    assert _told(read) == "struct<Fare:double,_partition:int,ID:bigint>"
    assert [each.column for each in read.columns] == ["fare", "_partition", "id"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"chosen": ("fair",)}, "the topic 't1': "),
        ({"chosen": ("fair",)}, "fare"),
        ({"chosen": ("_key",)}, "besides, _topic, _partition, _offset, _timestamp, _headers"),
        ({"user": "fare FLOAT"}, "'fare' of the topic 't1' is DOUBLE, and float was asked for"),
        ({"user": "_offset INT"}, "'_offset' of the topic 't1' is bigint, and int was asked for"),
        ({"user": "fare DOUBLE NOT NULL"}, "'fare' can't be NOT NULL in what is read"),
        ({"user": "id BIGINT", "chosen": ("fare",)}, "'columns' names fare, and .schema(…) id"),
        ({"where": "fair > 1"}, "'where', for the topic 't1': "),
        ({"where": "fare > 1 OR id = 2"}, "'where', for the topic 't1': "),
    ],
)
def test_what_the_topic_does_not_have_is_one_line(asked, message):
    with one_line(message):
        _read(TRIPS, **asked)


def test_topics_of_the_same_columns_are_read_together_whatever_their_ids_and_order():
    read = _read("id BIGINT, fare DOUBLE", "fare DOUBLE, ID BIGINT NOT NULL", where="fare > 1.5")
    ids = {
        topic: read.comparisons(topic, known.schema.latest)[0]
        for topic, known in read.schemas.items()
    }
    assert ids["t1"] == Comparison(2, Operator.GT, (1.5,))
    assert ids["t2"] == Comparison(1, Operator.GT, (1.5,))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("id BIGINT", "'t1' and 't2' can't be read together, because 't2' has no column 'fare'"),
        ("id INT, fare DOUBLE", "the column 'id' is INT in 't2' and BIGINT in 't1'"),
        ("id BIGINT, fare DOUBLE, n INT", "because 't1' has no column 'n'"),
    ],
)
def test_topics_of_different_columns_are_not(other, message):
    with one_line(message):
        _read("id BIGINT, fare DOUBLE", other)


def test_a_time_in_where_says_its_zone_as_the_sessions_is_not_known():
    _read("at TIMESTAMP, wall TIMESTAMP_NTZ", where="at > '2026-01-01Z' AND wall > '2026-01-01'")
    with pytest.raises(OptionError, match=r"'where', for the topic 't1': .* the time has no zone"):
        _read("at TIMESTAMP", where="at > TIMESTAMP '2026-01-01 00:00:00'")


def test_topics_of_different_columns_are_read_together_by_columns_that_both_have():
    read = _read("id BIGINT, fare DOUBLE", "id BIGINT, n INT", chosen=("id",))
    assert _told(read) == "struct<id:bigint>"


def test_topics_with_and_without_a_schema_are_not_read_together():
    check_typed_alike({"a": None, "b": None})
    with pytest.raises(OptionError, match="'b' has a schema and 'a' has none, so they can't be"):
        check_typed_alike({"a": None, "b": _known(TRIPS)})


def test_a_topic_that_comes_later_must_have_the_columns_that_are_read():
    read = _read("id BIGINT, fare DOUBLE")
    version = new_schema(parse_ddl("fare DOUBLE, id INT")).latest
    with pytest.raises(OptionError, match="'t1' and 'late' can't be read together, because the co"):
        check_fits(read, "late", version, beside="t1")


def test_what_goes_into_each_task_is_small():
    ddl = ", ".join(f"column_{number} DOUBLE" for number in range(20))
    assert len(pickle.dumps(_read(ddl))) < 4_000


def test_a_schema_without_a_name_of_the_topic_is_an_error():
    schema = StructType([StructField("id", LongType()), StructField("nr", IntegerType())])
    with pytest.raises(OptionError, match=r"\[BAD_COLUMN\] the topic 't': "):
        plan_read({"t": _known(TRIPS)}, chosen=None, where=None, user_schema=schema)
