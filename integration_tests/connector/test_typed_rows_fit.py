"""Reads and writes that do not fit the schema of a typed topic, at real brokers without Spark
around them: each is refused in one line that names the column, and nothing is written. Source:
docs/spark.md, Typed topics.
"""

import pyarrow as pa
import pytest

from connector.connections import close_all
from connector.errors import ConnectorError, OptionError
from integration_tests.connector.in_one_process import Read, write
from integration_tests.support.cluster_support import create_topic
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema

TRIPS = "id BIGINT NOT NULL, fare DOUBLE, name STRING, at TIMESTAMP"
IDS = pa.array([0], pa.int64())


@pytest.fixture(scope="module", autouse=True)
def _connections():
    yield
    close_all()


@pytest.fixture
def trips(spark_cluster, topic):
    """The name of a topic of trips."""
    schema = new_schema(parse_ddl(TRIPS), ("id",))
    create_topic(spark_cluster, topic, partitions=2, config={"headrace.schema": schema.to_json()})
    return topic


def _line(raised):
    line = str(raised.value)
    assert "\n" not in line
    return line


def test_topics_with_and_without_a_schema_are_not_read_together(spark_cluster, servers, trips):
    opaque = f"{trips}-opaque"
    create_topic(spark_cluster, opaque)
    with pytest.raises(OptionError) as raised:
        Read(servers, subscribe=f"{trips},{opaque}")
    assert f"'{trips}' has a schema and '{opaque}' has none" in _line(raised)


def test_a_column_that_is_misspelled_is_told_when_it_is_read(servers, trips):
    with pytest.raises(OptionError) as raised:
        Read(servers, subscribe=trips, columns="id,fair")
    assert "fare" in _line(raised)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"id": IDS, "fair": [1.0]}, "did you mean 'fare'?"),
        ({"id": ["0"]}, "it is BIGINT: cast it"),
        ({"fare": [1.5]}, "'id' of the topic"),
    ],
    ids=["misspelled", "of another type", "without the key"],
)
def test_columns_that_do_not_fit_are_told_before_anything_is_written(servers, trips, rows, message):
    with pytest.raises(OptionError) as raised:
        write(servers, pa.table(rows), topic=trips)
    assert message in _line(raised)


def test_columns_for_a_topic_that_does_not_exist_are_told_how_it_is_made(
    spark_cluster, servers, topic, no_wait_for_topics
):
    with pytest.raises(OptionError) as raised:
        write(servers, pa.table({"id": IDS}), topic=topic)
    assert "with createTopic=true it is made" in _line(raised)


def test_a_row_that_does_not_fit_is_told_with_its_origin_and_none_is_written(servers, trips):
    origins = {"t": ["s", "s"], "p": pa.array([0, 0], pa.int32()), "o": [5, 6]}
    rows = pa.table({"id": pa.array([1, None], pa.int64())} | origins)
    keyed = {"sinkId": "s", "idempotentKey": "t,p,o", "originServers": "none"}
    with pytest.raises(ConnectorError, match=r"^\[ROW_DOES_NOT_FIT\]") as raised:
        write(servers, rows, topic=trips, **keyed)
    assert "null, which comes from s-0 at offset 6" in _line(raised)
    assert Read(servers, subscribe=trips).tasks == []
