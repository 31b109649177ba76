"""Records of Avro from producers that know no typed batches: what waits for schemas, and how it
ends."""

import json
from dataclasses import replace
from typing import Any

import pytest

from storage_engine.broker.schemas import schemas_log
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.foreign_format import ForeignFormat
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.tests.broker.schemas.schemas_support import (
    SCHEMAS,
    WrittenSchemas,
    create_schemas,
    leader_of,
    schemas_of,
)
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.typed_topics.avro_support import (
    AVRO,
    WRITER,
    avro_batch,
    create_avro,
    framed,
    row,
    rows,
    stored_rows,
)
from storage_engine.tests.broker.typed_topics.test_json_appends import json_batch
from storage_engine.tests.broker.typed_topics.typed_support import (
    DDL,
    SCHEMA,
    TRIPS,
    create_typed,
    fetched,
    produce,
    produced,
    reason,
    topic_id_of,
    typed_batch,
)

cluster = cluster_fixture(brokers=1, prepare=create_avro, default_replication_factor="1")

TEXT = json.dumps(WRITER)
UNKNOWN = 4711


@pytest.fixture
def known(cluster) -> int:
    """The id of a producer's schema, under a subject that is not the topic's."""
    return WrittenSchemas(cluster).register("rides", TEXT)


def test_the_first_batch_of_a_schema_and_the_next_ones_become_columns(cluster, known):
    batch = rows(known, *range(50), compression="gzip", producer_id=7, producer_epoch=0,
                 base_sequence=0)  # fmt: skip
    assert produced(cluster, batch).base_offset == 0
    looks = schemas_of(cluster).looks
    later = rows(known, 50, 51, producer_id=7, producer_epoch=0, base_sequence=50)
    assert produced(cluster, later).base_offset == 50
    assert schemas_of(cluster).looks == looks
    again = produced(cluster, batch)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert stored_rows(cluster) == [row(each) for each in range(52)]


def test_an_unknown_id_is_refused_with_its_number_and_nothing_is_stored(cluster, known):
    answer = produced(cluster, rows(UNKNOWN, 1))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert str(UNKNOWN) in reason(answer)
    mixed = avro_batch([framed(known, row(1)), framed(UNKNOWN, row(2))])
    assert produced(cluster, mixed).error_code == ErrorCode.INVALID_RECORD
    assert produced(cluster, rows(known, 3)).error_code == 0
    assert stored_rows(cluster) == [row(3)]


def test_what_is_not_framed_is_refused_and_asks_for_no_schema(cluster):
    for value in (b"", b"\0", b"\1\0\0\0\1x", json.dumps(row(1)).encode()):
        answer = produced(cluster, avro_batch([value]))
        assert answer.error_code == ErrorCode.INVALID_RECORD, value
    assert schemas_of(cluster).looks == 0


def test_where_schemas_can_not_be_read_the_error_is_one_that_clients_retry(cluster, known):
    schemas_of(cluster).topic = "nowhere"
    begun_ms = cluster.loop.monotonic_ms()
    answer = produced(cluster, rows(known, 1))
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.loop.monotonic_ms() - begun_ms <= schemas_log.ANSWER_WAIT_MS + 100
    assert stored_rows(cluster) == []


def test_a_batch_that_is_refused_for_now_is_awaited_by_those_behind_it(cluster, known):
    log = schemas_of(cluster)
    log.topic = "nowhere"
    first = rows(known, 1, producer_id=7, producer_epoch=0, base_sequence=0)
    second = rows(known, 2, producer_id=7, producer_epoch=0, base_sequence=1)
    assert produced(cluster, first).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    log.topic = SCHEMAS.topic
    cluster.loop.run_for(1_000)
    assert produced(cluster, second).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produced(cluster, first).base_offset == 0
    assert produced(cluster, second).base_offset == 1


def test_those_who_wait_for_schemas_delay_no_other_partition(cluster, known):
    create_typed(cluster, "other", **AVRO)
    other = TopicPartition("other", 0)
    assert produced(cluster, rows(known, 1), tp=other).error_code == 0
    cluster.loop.run_for(schemas_log.GAP_MS)
    waiting = [produce(cluster, rows(UNKNOWN + each, 1)) for each in range(200)]
    begun_ms = cluster.loop.monotonic_ms()
    for number in range(20):
        assert produced(cluster, rows(known, number), tp=other).error_code == 0
    assert cluster.loop.monotonic_ms() - begun_ms < schemas_log.ANSWER_WAIT_MS
    looks = schemas_of(cluster).looks
    codes = {cluster.answer(each).partitions[0].error_code for each in waiting}
    assert codes == {ErrorCode.INVALID_RECORD}
    assert schemas_of(cluster).looks - looks <= 3


def test_a_schema_that_is_registered_meanwhile_is_found(cluster):
    written = WrittenSchemas(cluster)
    answers = produce(cluster, rows(1, 5))
    assert written.register("late", TEXT) == 1
    answer = cluster.answer(answers).partitions[0]
    if answer.error_code:
        # The look at the end came first.
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert produced(cluster, rows(1, 5)).error_code == 0
    assert stored_rows(cluster) == [row(5)]


def test_another_format_meanwhile_has_the_batch_prepared_anew(cluster, known):
    assert produced(cluster, rows(known, 1)).error_code == 0
    cluster[1].loop.held = []
    answers = produce(cluster, json_batch(row(2)), acks=1)
    cluster.loop.run_for(100)
    partition: Any = cluster[1].replicas.get(TRIPS)
    config = replace(partition.log.config, foreign_format=ForeignFormat.JSON)
    partition.log.update_config(config)
    cluster[1].loop.release()
    assert cluster.answer(answers).partitions[0].error_code == 0
    assert stored_rows(cluster) == [row(1), row(2)]
    assert produced(cluster, rows(known, 3)).error_code == ErrorCode.INVALID_RECORD


def test_ids_of_another_topic_of_schemas_meanwhile_are_found_anew(cluster, known):
    """The batch was prepared by a schema that its id does not stand for any more."""
    assert produced(cluster, rows(known, 1)).error_code == 0
    held = cluster[1].loop.held = []
    answers = produce(cluster, rows(known, 2), acks=1)
    cluster.loop.run_for(100)
    assert held
    log = schemas_of(cluster)
    log._begin_anew("the test says so")
    log._topic_id = None
    cluster[1].loop.release()
    answer = cluster.answer(answers).partitions[0]
    assert answer.error_code == 0
    assert stored_rows(cluster) == [row(1), row(2)]
    assert log.is_loaded and log.generation == 1


def test_a_key_without_a_value_is_a_tombstone_and_needs_no_schema(cluster):
    assert produced(cluster, avro_batch([None], keys=[b"7"])).error_code == 0
    records = bytes(fetched(cluster, replica=1).records)
    reading = plan(SCHEMA, ["id"], ["_deleted"])
    (found,) = iter_typed_decoded(records, reading, framed=False, topic_schema=SCHEMA)
    assert found.batch.to_pylist() == [{"id": 7, "_deleted": True}]
    assert schemas_of(cluster).looks == 0


def test_columns_of_our_clients_are_appended_at_once(cluster, known):
    topic_id = topic_id_of(cluster)
    assert produced(cluster, typed_batch(topic_id, 0, 2)).base_offset == 0
    assert produced(cluster, rows(known, 2)).base_offset == 2
    held = cluster[1].loop.held = []
    answers = [
        produce(cluster, rows(known, 3), acks=1),
        produce(cluster, typed_batch(topic_id, 4, 1), acks=1),
    ]
    cluster.loop.run_for(100)
    assert len(held) == 1
    cluster[1].loop.release()
    assert [cluster.answer(each).partitions[0].base_offset for each in answers] == [3, 4]


def test_old_and_new_schemas_go_on_when_the_topic_gets_a_column(cluster, known):
    evolved = SCHEMA.evolved(parse_ddl(f"{DDL}, more INT"))
    partition: Any = cluster[1].replicas.get(TRIPS)
    partition.log.update_config(replace(partition.log.config, schema=evolved))
    wider = {**WRITER, "fields": [*WRITER["fields"], {"name": "more", "type": "int"}]}
    written = WrittenSchemas(cluster)
    written.log.register("rides", TEXT)
    written._written = len(written.log.records)
    new = written.register("wider", json.dumps(wider))
    mixed = [framed(known, row(1)), framed(new, {**row(2), "more": 5}, wider)]
    assert produced(cluster, avro_batch(mixed)).error_code == 0
    assert [each["more"] for each in stored_rows(cluster, schema=evolved)] == [None, 5]


def test_a_topic_of_schemas_that_comes_later_is_used(cluster, known):
    assert produced(cluster, rows(known, 1)).error_code == 0
    cluster.answer(cluster.delete_topic(SCHEMAS.topic))
    cluster.loop.run_until(lambda: leader_of(cluster) is None)
    # What is known stays so while there is no topic.
    assert produced(cluster, rows(known, 2)).error_code == 0
    create_schemas(cluster)
    assert WrittenSchemas(cluster).register("again", TEXT) == known
    cluster.loop.run_for(2_000)
    assert produced(cluster, rows(known, 3)).error_code == 0
    assert stored_rows(cluster) == [row(1), row(2), row(3)]
