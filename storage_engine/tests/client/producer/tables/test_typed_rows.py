"""Tables become rows of a topic's schema without a value changing, or it is said why not."""

import datetime

import pyarrow as pa
import pytest

from storage_engine.client.producer.producer_errors import SerializationError
from storage_engine.client.producer.tables.typed_rows import fitted
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema

SCHEMA = new_schema(
    parse_ddl("id BIGINT NOT NULL, tag STRING, fare DOUBLE, at TIMESTAMP, local TIMESTAMP_NTZ"),
    ["id"],
)
KEYLESS = new_schema(parse_ddl("id BIGINT NOT NULL, tag STRING"), [])


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"ids": [1]}, "has no column 'ids'; is 'id' meant\\?: rename or drop it, or add it"),
        ({"ID": [1]}, "has no column 'ID'; is 'id' meant"),
        ({"tag": ["a"]}, "has no column 'id', which is NOT NULL in topic 't': add it"),
        ({"id": [1, None]}, "'id' is null in row 1, and NOT NULL in topic 't': give it a value"),
        ({"id": [1], "_offset": [1]}, "'_offset' can't be sent"),
        ({"_partition": [1]}, "none of the columns of topic 't': id, tag"),
        ({"id": [1], "_partition": ["a"]}, "'_partition' is string, no integer"),
        ({"id": [1], "_timestamp": ["a"]}, "'_timestamp' is string; it must be a timestamp"),
        ({"id": [1], "_timestamp": [-5]}, "'_timestamp' has -5 ms; times are not before 1970"),
        (
            {"id": [1], "_timestamp": pa.array([-1], pa.timestamp("us"))},
            "'_timestamp' has -1 ms; times are not before 1970",
        ),
        ({"id": [1], "_headers": [5]}, "'_headers' is int64; it must be list"),
        ({"id": [1], "_deleted": [1]}, "'_deleted' is int64, not a boolean"),
    ],
)
def test_a_table_that_does_not_fit_is_told_by_its_column(table, complaint):
    with pytest.raises(SerializationError, match=complaint) as caught:
        fitted(pa.table(table), "t", KEYLESS)
    assert "\n" not in str(caught.value)


def test_two_columns_of_one_name_are_told():
    table = pa.table([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(SerializationError, match="has two columns 'id'"):
        fitted(table, "t", KEYLESS)


def test_a_hidden_column_is_not_written():
    schema = SCHEMA.evolved(parse_ddl("id BIGINT NOT NULL, tag STRING, fare DOUBLE"))
    with pytest.raises(SerializationError, match="'local' is hidden in the schema of topic 't'"):
        fitted(pa.table({"id": [1], "local": pa.nulls(1)}), "t", schema)


def test_rows_are_deleted_only_by_a_key():
    table = pa.table({"id": [1, 2], "_deleted": [False, True]})
    with pytest.raises(SerializationError, match="true in row 1, and topic 't' has no key"):
        fitted(table, "t", KEYLESS)
    assert fitted(table, "t", SCHEMA)["_deleted"].to_pylist() == [False, True]
    assert "_deleted" not in fitted(table.slice(0, 1), "t", KEYLESS).column_names


def test_a_deleted_row_needs_its_key_and_nothing_else():
    schema = new_schema(parse_ddl("id BIGINT, tag STRING NOT NULL"), ["id"])
    rows = {"id": [1, 2], "tag": ["a", None], "_deleted": [None, True]}
    assert fitted(pa.table(rows), "t", schema)["_deleted"].to_pylist() == [False, True]
    with pytest.raises(SerializationError, match="'tag' is null in row 1"):
        fitted(pa.table(rows | {"_deleted": [True, False]}), "t", schema)
    with pytest.raises(SerializationError, match="'id' is null in row 0"):
        fitted(pa.table(rows | {"id": [None, 1], "_deleted": [True, True]}), "t", schema)


def test_times_of_records_are_milliseconds():
    at = datetime.datetime(2026, 1, 31, 12, microsecond=123_456, tzinfo=datetime.UTC)
    for column in (
        pa.array([at, None]),
        pa.array([int(at.timestamp() * 1000), None]),
        pa.array([at.replace(tzinfo=None), None], pa.timestamp("ns")),
    ):
        table = pa.table({"id": [1, 2], "_timestamp": column})
        times = fitted(table, "t", KEYLESS)["_timestamp"].to_pylist()
        assert times == [int(at.timestamp() * 1000), None]
