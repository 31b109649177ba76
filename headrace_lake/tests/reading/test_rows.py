"""Records of a topic as the rows of its table."""

import pyarrow as pa
import pytest

from headrace_lake.reading.lake_reader import LakeReader, Position
from headrace_lake.reading.rows import PLACES, RECORD_SCHEMA, rows_of
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.topic_schema import UnknownSchemaVersionError
from storage_engine.tests.client.fake_cluster import FakeCluster
from storage_engine.tests.client.support.batches import append_records
from storage_engine.tests.client.support.typed_topics import (
    WIDER,
    add_typed_topic,
    append_numbered,
    typed_batch,
)

T0 = TopicPartition("t", 0)


@pytest.fixture
def fake():
    made = FakeCluster()
    yield made
    made.close()


@pytest.fixture
def cluster(fake):
    with Cluster(
        fake.bootstrap_servers,
        request_timeout_ms=2000,
        deadline_ms=5000,
        unknown_topic_wait_ms=300,
    ) as made:
        yield made


def fetched(cluster, rows, position=0):
    """All that there is."""
    reader = LakeReader(cluster)
    reader.begin(T0, Position(position), rows.topic_id, rows.want)
    found = []
    for _ in range(3):
        found += reader.poll(100)
    reader.close()
    return found


def table(rows, fetches):
    batches = [batch for each in fetches for batch in rows.batches(each)]
    return pa.Table.from_batches(batches, schema=rows.arrow_schema)


def test_an_opaque_topic_has_the_columns_of_records(fake, cluster):
    fake.add_topic("t", [1])
    append_records(fake, [b"a", b"b"])
    rows = rows_of(cluster, "t")
    assert (rows.topic_schema, rows.want) == (None, None)
    found = table(rows, fetched(cluster, rows))
    assert found.schema == RECORD_SCHEMA
    assert found["value"].to_pylist() == [b"a", b"b"]
    assert found["_offset"].to_pylist() == [0, 1]
    assert set(found["_topic"].to_pylist()) == {"t"}
    assert found["_timestamp"] == found["timestamp"]


def test_rows_before_the_position_are_left_out(fake, cluster):
    fake.add_topic("t", [1])
    append_records(fake, [b"a", b"b", b"c"])
    rows = rows_of(cluster, "t")
    assert table(rows, fetched(cluster, rows, position=2))["value"].to_pylist() == [b"c"]


def test_a_typed_topic_has_its_columns_and_the_places(fake, cluster):
    add_typed_topic(fake, "t", [1])
    append_numbered(fake, "t", range(2))
    rows = rows_of(cluster, "t")
    found = table(rows, fetched(cluster, rows))
    assert found.column_names == ["id", "tag", "fare", *PLACES]
    assert found["id"].to_pylist() == list(range(20)) == found["_offset"].to_pylist()
    assert found["_partition"].type == pa.int32()


def test_rows_of_a_later_schema_are_read_by_it_once_brokers_know_it(fake, cluster):
    topic_id = add_typed_topic(fake, "t", [1])
    append_numbered(fake, "t", range(1))
    before = rows_of(cluster, "t")
    fake.partition("t").append(typed_batch(topic_id, {"id": [77], "note": ["new"]}, WIDER))
    found = fetched(cluster, before)
    assert any(isinstance(before.outdated_by(each), UnknownSchemaVersionError) for each in found)
    fake.schemas["t"] = WIDER
    after = rows_of(cluster, "t", seen=found[-1])
    assert after.topic_schema == WIDER
    read = table(after, fetched(cluster, after))
    assert read["note"].to_pylist() == [None] * 10 + ["new"]


def test_a_topic_that_is_gone_is_an_error_of_its_own(cluster):
    with pytest.raises(KafkaError, match="topic 't' does not exist") as raised:
        rows_of(cluster, "t")
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
