"""Consumers that know no typed batches get records of Avro, with the id of the topic's schema."""

from dataclasses import replace
from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.schemas.registry.changes import delete_subject
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.foreign_format import ForeignFormat
from storage_engine.tests.broker.schemas.schemas_support import WrittenSchemas, schemas_of
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.typed_topics.avro_support import (
    create_avro,
    own_text,
    read_avro,
    row,
)
from storage_engine.tests.broker.typed_topics.test_foreign_answers import conversions, rows_of
from storage_engine.tests.broker.typed_topics.typed_support import (
    DDL,
    SCHEMA,
    TRIPS,
    fetched,
    produced,
    topic_id_of,
    typed_batch,
)

cluster = cluster_fixture(brokers=1, prepare=create_avro, default_replication_factor="1")


def fill(cluster: SimulatedCluster, count: int = 3) -> list[dict[str, Any]]:
    assert produced(cluster, typed_batch(topic_id_of(cluster), 0, count)).error_code == 0
    return [row(each) for each in range(count)]


def use(cluster: SimulatedCluster, **changed: Any) -> None:
    partition: Any = cluster[1].replicas.get(TRIPS)
    partition.log.update_config(replace(partition.log.config, **changed))


def answer_when_known(cluster: SimulatedCluster) -> Any:
    for _ in range(50):
        answer = fetched(cluster)
        if answer.error_code != ErrorCode.REPLICA_NOT_AVAILABLE:
            return answer
        assert not answer.records
        cluster.loop.run_for(100)
    pytest.fail("the id was never known")


def test_records_have_the_id_of_the_topics_schema_and_its_rows(cluster):
    written = WrittenSchemas(cluster)
    written.register("another", '"int"')
    own = written.register("trips-value", own_text())
    expected = fill(cluster)
    found = read_avro(answer_when_known(cluster))
    assert found == [(own, str(n).encode(), each) for n, each in enumerate(expected)]


def test_until_the_schema_is_registered_the_answer_is_an_error_that_clients_retry(cluster, caplog):
    written = WrittenSchemas(cluster)
    # Another's schema under the subject, and the topic's under another: neither is meant.
    written.register("trips-value", '"int"')
    written.register("trips2-value", own_text())
    fill(cluster)
    for _ in range(20):
        assert fetched(cluster).error_code == ErrorCode.REPLICA_NOT_AVAILABLE
        cluster.loop.run_for(100)
    lines = [each for each in caplog.messages if "trips-value does not have it" in each]
    assert len(lines) == 1
    own = written.register("trips-value", own_text())
    assert {each[0] for each in read_avro(answer_when_known(cluster))} == {own}


def test_a_new_version_is_awaited_under_its_own_id(cluster):
    written = WrittenSchemas(cluster)
    first = written.register("trips-value", own_text())
    fill(cluster)
    assert {each[0] for each in read_avro(answer_when_known(cluster))} == {first}
    evolved = SCHEMA.evolved(parse_ddl(f"{DDL}, more INT"))
    use(cluster, schema=evolved)
    assert fetched(cluster).error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    second = written.register("trips-value", own_text(evolved))
    found = read_avro(answer_when_known(cluster), evolved)
    assert {each[0] for each in found} == {second}
    assert [each[2]["more"] for each in found] == [None] * 3


def test_each_answer_is_in_the_format_of_its_moment(cluster):
    written = WrittenSchemas(cluster)
    own = written.register("trips-value", own_text())
    expected = fill(cluster)
    assert {each[0] for each in read_avro(answer_when_known(cluster))} == {own}
    before = conversions(cluster)
    for _ in range(2):
        use(cluster, foreign_format=ForeignFormat.JSON)
        assert [each[2] for each in rows_of(fetched(cluster))] == expected
        use(cluster, foreign_format=ForeignFormat.AVRO)
        assert [each[2] for each in read_avro(fetched(cluster))] == expected
    # Both are kept.
    assert conversions(cluster) - before == 1


def test_another_id_of_the_same_schema_is_another_conversion(cluster):
    written = WrittenSchemas(cluster)
    first = written.register("trips-value", own_text())
    expected = fill(cluster)
    assert {each[0] for each in read_avro(answer_when_known(cluster))} == {first}
    for permanent in (False, True):
        written.log.write(delete_subject(written.log.state, "trips-value", permanent=permanent))
    second = written.register("trips-value", own_text())
    assert second > first
    cluster.loop.run_for(2_000)
    found = read_avro(answer_when_known(cluster))
    assert [(each[0], each[2]) for each in found] == [(second, each) for each in expected]


def test_a_softly_deleted_schema_keeps_its_id(cluster):
    written = WrittenSchemas(cluster)
    own = written.register("trips-value", own_text())
    fill(cluster)
    written.log.write(delete_subject(written.log.state, "trips-value", permanent=False))
    written.flush()
    assert {each[0] for each in read_avro(answer_when_known(cluster))} == {own}


def test_rows_for_our_clients_and_followers_need_no_schema(cluster):
    fill(cluster)
    assert fetched(cluster, replica=1).records
    assert not schemas_of(cluster).is_loaded
