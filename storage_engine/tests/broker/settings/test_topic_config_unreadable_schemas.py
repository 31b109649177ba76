"""A typed topic whose schema a broker can't read, as a later version or somebody's hand wrote it:
nothing is appended that is no row, and nothing is lost; with a readable schema all goes on."""

import json

from storage_engine.core.errors import ErrorCode
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.typed_topics.typed_support import (
    SCHEMA,
    TRIPS,
    columns,
    create_typed,
    fetched,
    produced,
    reason,
    topic_id_of,
    typed_batch,
)
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode

LATER = json.dumps({**json.loads(SCHEMA.to_json()), "format": 2})
ROWS = 10


def fill(made) -> None:
    create_typed(made)
    assert produced(made, typed_batch(topic_id_of(made), 0, ROWS)).error_code == 0


cluster = cluster_fixture(brokers=1, prepare=fill, default_replication_factor="1")


def store(cluster, text: str, **more: str) -> None:
    """As somebody else writes it."""
    config = {SCHEMA_SETTING: text, **more}
    path = ConfigZNode.topic_path(TRIPS.topic)
    cluster.zookeeper.put(path, ConfigZNode(config=config).encode())


def restart(cluster) -> None:
    cluster[1].kill()
    cluster.loop.run_for(30_000)
    cluster[1].start()

    def leads() -> bool:
        partition = cluster[1].replicas.get(TRIPS)
        return partition is not None and partition.leader is not None

    cluster.loop.run_until(leads, limit_ms=60_000)


def json_record(number: int) -> bytearray:
    import pyarrow as pa

    (batch,) = encode_batches(pa.array([b'{"id":%d}' % number]))
    return bytearray(batch.data)


def end_offset(cluster) -> int:
    return int(cluster[1].replicas.get(TRIPS).log.log_end_offset)


def test_a_broker_that_can_not_read_the_schema_takes_and_gives_nothing_until_it_can(cluster):
    topic_id = topic_id_of(cluster)
    store(cluster, LATER, **{"retention.ms": "7000000"})
    restart(cluster)
    assert cluster[1].logs.logs[TRIPS].config.retention_ms == 7_000_000
    # Whoever sends JSON is told what each of Kafka's clients takes for a reason to send again.
    for batch, code in (
        (json_record(77), ErrorCode.NOT_ENOUGH_REPLICAS),
        (typed_batch(topic_id, 77, 1), ErrorCode.UNKNOWN_SCHEMA_VERSION),
    ):
        answer = produced(cluster, batch)
        assert answer.error_code == code
        assert "can't be read on this broker" in reason(answer)
    assert fetched(cluster).error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    # What needs no schema goes on: copies for followers, and columns by their ids.
    assert len(list(iter_headers(bytes(fetched(cluster, replica=1).records)))) == 1
    assert fetched(cluster, want=columns(1)).records
    assert end_offset(cluster) == ROWS
    store(cluster, SCHEMA.to_json())
    restart(cluster)
    assert produced(cluster, json_record(77)).base_offset == ROWS
    assert fetched(cluster).records


def test_a_running_broker_keeps_the_schema_that_it_could_read(cluster):
    topics = cluster[1].parts.settings.topics
    assert not topics.update(TRIPS.topic, {SCHEMA_SETTING: LATER})
    assert topics.of(TRIPS.topic).log.schema == SCHEMA
