"""Rows of a DataFrame on their way to a typed topic: routed by key, encoded, and checked."""

import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from connector.errors import ConnectorError, RowError
from connector.options.sink_options import parse_sink_options
from connector.sink import topic_limits
from connector.sink.null_check import NullCheck
from connector.sink.typed import typed_rows
from connector.sink.typed.typed_rows import TypedEncoder
from connector.topic_schemas import TypedSink
from storage_engine.client.producer.partitioner import partitions_for_keys
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.protocol.typed.typed_encoder import iter_typed

ID = UUID(int=7)
SCHEMA = new_schema(
    parse_ddl("id BIGINT NOT NULL, fare DOUBLE, who STRUCT<n: INT NOT NULL>"), ["id"]
)
NO_KEY = new_schema(parse_ddl("id BIGINT"), [])
LIMIT = 20_000


class FakeCluster:
    bootstrap_servers = "h:1"
    topic_id = ID
    limit: int | None = LIMIT

    def metadata(self, names, *, max_age_ms):
        found = SimpleNamespace(partitions=range(4), topic_id=self.topic_id)
        return SimpleNamespace(topics=dict.fromkeys(names, found))


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setattr(topic_limits, "_limits", {})
    monkeypatch.setattr(topic_limits, "_ask_limit", lambda cluster, topic: cluster.limit)
    return FakeCluster()


def _sink(schema):
    return TypedSink(topic="t", topic_id=ID, schema=schema)


def _options(**options):
    return parse_sink_options({"bootstrap.servers": "h:1", "topic": "t"} | options)


def _written(cluster, rows, schema=SCHEMA):
    """The rows of each partition, as a reader gets them."""
    encoder = TypedEncoder(_sink(schema), _options(), cluster)
    wanted = plan(schema, None, ["_timestamp"])
    found: dict[int, list[dict[str, Any]]] = {}
    for route in encoder.route(rows):
        read = found.setdefault(route.topic_partition.partition, [])
        for batch in route.batches:
            for piece in iter_typed_decoded(batch.data, wanted, framed=False, topic_schema=schema):
                read += piece.batch.to_pylist()
    return found


def _rows(count, **columns):
    return pa.record_batch({"ID": pa.array(range(count), pa.int32()), **columns})


def test_rows_of_a_key_go_where_a_kafka_client_sends_its_text(cluster):
    found = _written(cluster, _rows(200))
    keys = pa.array([str(number).encode() for number in range(200)], pa.binary())
    expected = partitions_for_keys(keys, 4)
    assert {row["id"]: p for p, rows in found.items() for row in rows} == (
        dict(enumerate(expected.tolist()))
    )
    assert all(rows == sorted(rows, key=lambda row: row["id"]) for rows in found.values())


def test_a_partition_of_the_row_comes_before_its_key_and_null_leaves_it_to_the_key(cluster):
    partitions = pa.array([3, 3, None], pa.int32())
    found = _written(cluster, _rows(3, _partition=partitions))
    assert {0, 1} <= {row["id"] for row in found[3]}
    with pytest.raises(RowError, match="the column '_partition' names partition 4 of the topic"):
        _written(cluster, _rows(1, _partition=pa.array([4], pa.int32())))


def test_rows_without_a_key_go_to_one_partition(cluster):
    assert len(_written(cluster, _rows(100), NO_KEY)) == 1


def test_a_row_may_have_a_time_of_its_own(cluster):
    at = datetime(2026, 1, 31, 12, 0, 0, 5_999, tzinfo=UTC)
    times = pa.array([at, None], pa.timestamp("us", tz="Europe/Berlin"))
    found = _written(cluster, _rows(2, _timestamp=times), NO_KEY)
    ((first, second),) = found.values()
    assert first["_timestamp"] == at.replace(microsecond=5_000)
    assert second["_timestamp"] > at


def test_no_rows_make_no_route(cluster):
    assert TypedEncoder(_sink(SCHEMA), _options(), cluster).route(_rows(0)) == []


def test_batches_keep_below_the_limit_of_the_topic(cluster):
    encoder = TypedEncoder(_sink(NO_KEY), _options(), cluster)
    (route,) = encoder.route(pa.record_batch({"id": pa.array(range(50_000), pa.int64())}))
    batches = list(route.batches)
    assert len(batches) > 10
    assert all(len(batch) <= LIMIT for batch in batches)


def test_a_batch_whose_size_was_estimated_too_low_is_made_again_in_parts(cluster, monkeypatch):
    def in_one(rows, *arguments, batch_bytes, **settings):
        return iter_typed(rows, *arguments, batch_bytes=1 << 20, **settings)

    monkeypatch.setattr(typed_rows, "iter_typed", in_one)
    times = pa.array([None, *range(1, 5_000)], pa.timestamp("us", tz="UTC"))
    found = _written(cluster, _rows(5_000, _timestamp=times), NO_KEY)
    ((rows,),) = [found.values()]
    assert [row["id"] for row in rows] == list(range(5_000))
    assert rows[4_000]["_timestamp"].microsecond == 4_000


def test_a_row_above_the_limit_of_the_topic_is_one_line(cluster):
    schema = new_schema(parse_ddl("name STRING"), [])
    encoder = TypedEncoder(_sink(schema), _options(), cluster)
    (route,) = encoder.route(pa.record_batch({"name": pa.array(["x" * 30_000])}))
    with pytest.raises(RowError, match=r"and the topic's max\.message\.bytes is 20000; shor"):
        list(route.batches)


def test_a_row_goes_to_the_broker_where_the_limit_was_raised_or_is_not_told(cluster):
    schema = new_schema(parse_ddl("name STRING"), [])
    encoder = TypedEncoder(_sink(schema), _options(), cluster)
    rows = pa.record_batch({"name": pa.array(["x" * 2_000_000])})
    for now in (3_000_000, None):
        topic_limits._limits["h:1", "t"] = (time.monotonic(), LIMIT)
        cluster.limit = now
        for _ in range(2):
            (route,) = encoder.route(rows)
            assert len(list(route.batches)) == 1


def test_a_topic_that_was_created_again_is_not_written_to(cluster):
    cluster.topic_id = UUID(int=8)
    with pytest.raises(
        ConnectorError, match=r"\[UNKNOWN_TOPIC_ID\] the topic 't' was deleted, and"
    ):
        _written(cluster, _rows(1))


def test_a_null_inside_a_value_is_one_line(cluster):
    who = pa.array([{"n": 1}, {"n": None}], pa.struct([("n", pa.int32())]))
    with pytest.raises(RowError) as raised:
        _written(cluster, _rows(2, who=who, _partition=pa.array([0, 0], pa.int32())))
    assert str(raised.value).startswith("[ROW_DOES_NOT_FIT] a row for t-0: ")
    assert "who" in str(raised.value)


def _null_check(schema, options):
    sink = _sink(schema)
    return NullCheck(sink.topic, [each.name for each in sink.required], options)


def test_a_null_is_named_with_the_row_it_is_in():
    rows = pa.record_batch(
        {
            "t": pa.array(["a", "b"]),
            "p": pa.array([0, 3], pa.int32()),
            "o": pa.array([10, 11], pa.int64()),
            "Id": pa.array([1, None], pa.int64()),
        }
    )
    keyed = _options(sinkId="s", idempotentKey="t,p,o")
    with pytest.raises(RowError) as raised:
        _null_check(SCHEMA, keyed).checked(rows)
    assert "which comes from b-3 at offset 11: leave such rows out" in str(raised.value)
    with pytest.raises(RowError, match="and a row has null: leave such rows out, or fill it"):
        _null_check(SCHEMA, _options()).checked(rows)
    assert _null_check(NO_KEY, _options()).checked(rows) is rows
