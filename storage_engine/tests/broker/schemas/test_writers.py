"""Producers' schemas are found by their ids, or refused once it is sure that nobody gave the id."""

from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.schemas import writers as writers_module
from storage_engine.broker.schemas.writers import Writers
from storage_engine.core.errors import ErrorCode, InvalidRecordError, KafkaError
from storage_engine.core.schemas.languages import Reference, SchemaType
from storage_engine.core.schemas.registry.changes import delete_subject
from storage_engine.core.schemas.registry.records import (
    KeyType,
    RecordKey,
    StoredSchema,
)
from storage_engine.core.schemas.texts import Schema
from storage_engine.tests.broker.schemas.schemas_support import (
    SCHEMAS,
    WrittenSchemas,
    batch_of,
    create_schemas,
    leader_of,
    schemas_of,
    text_of,
    write,
)
from storage_engine.tests.broker.support import cluster_fixture

cluster = cluster_fixture(brokers=1, prepare=create_schemas, default_replication_factor="1")

ALICE, BOB = ("User:alice", "10.0.0.1", 1), ("User:bob", "10.0.0.2", 2)


def writers_of(cluster: SimulatedCluster) -> Writers:
    return cluster[1].parts.schemas.writers


def found(cluster: SimulatedCluster, *ids: int, share: Any = ALICE) -> Any:
    answers: list[Any] = []
    writers_of(cluster).find(frozenset(ids), share, answers.append)
    return cluster.answer(answers)


def put(cluster: SimulatedCluster, schema_id: int, schema: Schema) -> None:
    """Write a schema as another registry may have it."""
    subject = f"s{schema_id}"
    stored = StoredSchema(subject=subject, version=1, id=schema_id, schema=schema, foreign={})
    write(cluster, batch_of([(RecordKey(KeyType.SCHEMA, subject, 1).encode(), stored.encode())]))


def root_name(answer: Any, schema_id: int) -> str:
    return str(answer[schema_id].root.full_name)


def test_ids_that_were_given_before_and_after_the_first_question_are_found(cluster):
    written = WrittenSchemas(cluster)
    ids = [written.register("a", text_of("A", a="int")), written.register("b", text_of("B"))]
    answer = found(cluster, *ids)
    assert [root_name(answer, each) for each in ids] == ["A", "B"]
    later = written.register("c", text_of("C", a="int"))
    assert root_name(found(cluster, later), later) == "C"
    assert set(writers_of(cluster).parsed) == {*ids, later}


def test_an_id_that_nobody_gave_is_refused_with_the_id(cluster):
    WrittenSchemas(cluster).register("a", text_of("A", a="int"))
    error = found(cluster, 1, 4711)
    assert isinstance(error, InvalidRecordError)
    assert "no schema in _schemas has the id 4711" in str(error)


def test_a_schema_of_another_language_or_without_its_reference_is_refused(cluster):
    written = WrittenSchemas(cluster)
    secret = '{"type":"record","name":"Secret","fields":[{"name":"x","type":"Missing"}]}'
    for number, schema in enumerate(
        (
            Schema(SchemaType.JSON, '{"title": "Secret"}'),
            Schema(SchemaType.AVRO, secret, (Reference("Missing", "gone", 1),)),
            Schema(SchemaType.AVRO, "{Secret"),
        ),
        start=50,
    ):
        put(cluster, number, schema)
        error = found(cluster, number)
        assert isinstance(error, InvalidRecordError)
        assert str(number) in str(error) and "Secret" not in str(error)
    assert written.register("a", text_of("A")) in found(cluster, 1)


def test_references_are_resolved(cluster):
    WrittenSchemas(cluster).register("inner", text_of("Inner", a="int"))
    text = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"Inner"}]}'
    put(cluster, 50, Schema(SchemaType.AVRO, text, (Reference("Inner", "inner", 1),)))
    assert "Inner" in found(cluster, 50)[50].names


def test_where_schemas_can_not_be_read_the_producer_is_to_try_again(cluster):
    schemas_of(cluster).topic = "nowhere"
    error = found(cluster, 1)
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.NOT_ENOUGH_REPLICAS and error.retriable
    assert "there is no such topic" in str(error)


def test_a_schema_that_was_deleted_for_good_is_not_used_any_more(cluster):
    written = WrittenSchemas(cluster)
    given = written.register("a", text_of("A", a="int"))
    assert given in found(cluster, given)
    for permanent in (False, True):
        written.log.write(delete_subject(written.log.state, "a", permanent=permanent))
        written.flush()
        cluster.loop.run_for(2_000)
        assert (given in writers_of(cluster).parsed) is not permanent
    assert isinstance(found(cluster, given), InvalidRecordError)


def test_ids_of_another_topic_of_the_name_are_other_schemas(cluster):
    given = WrittenSchemas(cluster).register("a", text_of("Old", a="int"))
    assert root_name(found(cluster, given), given) == "Old"
    generation = writers_of(cluster).generation
    cluster.answer(cluster.delete_topic(SCHEMAS.topic))
    cluster.loop.run_until(lambda: leader_of(cluster) is None)
    create_schemas(cluster)
    assert WrittenSchemas(cluster).register("a", text_of("New", a="int")) == given
    cluster.loop.run_for(2_000)
    assert root_name(found(cluster, given), given) == "New"
    assert writers_of(cluster).generation > generation


def test_ten_thousand_unknown_ids_cost_a_bounded_number_of_looks_and_delay_nobody(cluster):
    written = WrittenSchemas(cluster)
    given = written.register("a", text_of("A", a="int"))
    assert given in found(cluster, given)
    log = schemas_of(cluster)
    before, begun_ms = log.looks, cluster.loop.monotonic_ms()
    refused: list[Any] = []
    for number in range(10_000):
        writers_of(cluster).find(frozenset([1_000 + number]), ALICE, refused.append)
    at_once: list[Any] = []
    writers_of(cluster).find(frozenset([given]), BOB, at_once.append)
    assert given in at_once[0]
    cluster.loop.run_until(lambda: len(refused) == 10_000)
    assert all(isinstance(each, InvalidRecordError) for each in refused)
    assert log.looks - before <= 2
    # One after the other, as a producer does it that waits for its answers.
    begun_ms, before = cluster.loop.monotonic_ms(), log.looks
    for number in range(100):
        assert isinstance(found(cluster, 20_000 + number), InvalidRecordError)
    assert log.looks - before <= 2 + (cluster.loop.monotonic_ms() - begun_ms) // 100


def test_what_is_kept_parsed_is_bounded_and_found_again(cluster, monkeypatch):
    monkeypatch.setattr(writers_module, "MOST_PARSED", 3)
    written = WrittenSchemas(cluster)
    ids = [written.register(f"s{n}", text_of(f"R{n}", a="int")) for n in range(6)]
    for each in ids:
        assert each in found(cluster, each)
    assert list(writers_of(cluster).parsed) == ids[3:]
    assert set(found(cluster, *ids)) == set(ids)
    monkeypatch.setattr(writers_module, "MOST_CHARACTERS", 10)
    assert set(found(cluster, *ids)) == set(ids)
    assert len(writers_of(cluster).parsed) == 1


def test_a_state_that_is_too_large_refuses_at_once(cluster):
    schemas_of(cluster).is_too_large = True
    error = found(cluster, 1)
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.POLICY_VIOLATION and not error.retriable


@pytest.mark.parametrize("ids", [(), (1,)])
def test_what_is_parsed_never_changes_under_a_thread(cluster, ids):
    written = WrittenSchemas(cluster)
    for each in ids:
        assert written.register(f"s{each}", text_of("A")) == each
        found(cluster, each)
    handed = writers_of(cluster).parsed
    before = dict(handed)
    given = written.register("new", text_of("New", a="int"))
    assert given in found(cluster, given)
    assert dict(handed) == before
