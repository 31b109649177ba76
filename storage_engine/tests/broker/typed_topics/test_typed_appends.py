"""Typed batches from producers that know the schema: a leader's checks, by header and directory."""

from uuid import UUID

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.protocol.records.record_batch import HEADER_BYTES, read_header, seal
from storage_engine.protocol.typed.directory import encode_directory, read_directory
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.typed_topics.typed_support import (
    SCHEMA,
    TRIPS,
    create_typed,
    fetched,
    produced,
    reason,
    topic_id_of,
    typed_batch,
)

PLAIN = TopicPartition("plain", 0)


cluster = cluster_fixture(brokers=1, prepare=create_typed, default_replication_factor="1")


def resealed(batch: bytearray, **changes) -> bytearray:
    """The batch with other fields in its header."""
    changed = bytearray(batch)
    seal(changed, 0, read_header(batch)._replace(**changes))
    return changed


def with_directory(batch: bytearray, **changes) -> bytearray:
    """The batch with another directory, and the CRCs that fit it."""
    header = read_header(batch)
    old = read_directory(bytes(batch[HEADER_BYTES:]))
    named = {"topic_id": old.topic_id, "schema_version": old.schema_version, "rows": old.rows}
    entries = changes.pop("entries", lambda every: every)(list(old.entries))
    directory = encode_directory(**{**named, **changes}, entries=entries)
    columns = batch[HEADER_BYTES + old.size :]
    kept = sum(entry.stored_bytes for entry in entries)
    changed = bytearray(batch[:HEADER_BYTES]) + directory + columns[:kept]
    seal(changed, 0, header._replace(length=len(changed) - 12))
    return changed


def test_a_typed_batch_is_stored_as_it_came_and_followers_get_it_so(cluster):
    batch = typed_batch(topic_id_of(cluster), 0, 10)
    answer = produced(cluster, batch)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert produced(cluster, batch).base_offset == 10
    records = bytes(fetched(cluster, replica=1).records)
    assert records[16 : len(batch)] == batch[16:]
    assert len(records) == 2 * len(batch)


def test_a_topic_without_a_schema_refuses_a_typed_batch_and_says_why(cluster):
    assert cluster.create_topic("plain").error_code == 0
    cluster.produced_when_there(PLAIN, b"x")
    answer = produced(cluster, typed_batch(topic_id_of(cluster, PLAIN), 0, 3), tp=PLAIN)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "without a schema" in reason(answer)


def test_the_batch_of_another_topic_of_the_name_is_refused(cluster):
    answer = produced(cluster, typed_batch(UUID(int=7), 0, 3))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert str(UUID(int=7)) in reason(answer)


def test_a_version_that_this_broker_does_not_know_yet_can_be_sent_again(cluster):
    later = SCHEMA.evolved([*parse_ddl("id BIGINT NOT NULL, fare DOUBLE, tag STRING, more INT")])
    batch = typed_batch(topic_id_of(cluster), 0, 3, schema=later)
    code = ErrorCode.of(produced(cluster, batch).error_code)
    assert code is ErrorCode.UNKNOWN_SCHEMA_VERSION
    assert code.retriable


HOSTILE = {
    "rows": (lambda batch: with_directory(batch, rows=4), "4"),
    "codec": (lambda batch: resealed(batch, attributes=0x83), "compressed as a whole"),
    "count": (lambda batch: resealed(batch, records_count=2, last_offset_delta=1), "2 rows"),
    "delta": (lambda batch: resealed(batch, last_offset_delta=7), "last offset delta 7"),
    "control": (lambda batch: resealed(batch, attributes=0xA0), "control"),
    "id": (
        lambda batch: with_directory(
            batch, entries=lambda every: [*every[:-1], every[-1]._replace(column_id=99)]
        ),
        "id 99",
    ),
    "offsets": (
        lambda batch: with_directory(
            batch, entries=lambda every: [*every[:-1], every[-1]._replace(column_id=-1)]
        ),
        "offsets",
    ),
    "key is missing": (
        lambda batch: with_directory(batch, entries=lambda every: every[1:]),
        "'id', which is NOT NULL",
    ),
    "key has nulls": (
        lambda batch: with_directory(
            batch, entries=lambda every: [every[0]._replace(null_count=1), *every[1:]]
        ),
        "1 nulls in the column 'id'",
    ),
    "no directory": (lambda batch: resealed_section(batch, b"x" * 80), "directory"),
    "empty section": (lambda batch: resealed_section(batch, b""), "directory"),
}


def resealed_section(batch: bytearray, section: bytes) -> bytearray:
    changed = batch[:HEADER_BYTES] + section
    seal(changed, 0, read_header(batch)._replace(length=len(changed) - 12))
    return changed


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_typed_batch_is_refused_and_nothing_is_stored(cluster, what):
    change, words = HOSTILE[what]
    answer = produced(cluster, change(typed_batch(topic_id_of(cluster), 0, 3)))
    assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_RECORD, answer
    assert words in reason(answer)
    assert not fetched(cluster, replica=1).records


def test_columns_that_would_decompress_to_too_much_are_refused_before_they_do(cluster):
    def huge(every):
        return [every[0], every[1]._replace(raw_bytes=0x7FFFFFFF), every[2]]

    batch = with_directory(typed_batch(topic_id_of(cluster), 0, 3), entries=huge)
    assert produced(cluster, batch).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_above_the_limit_is_refused(cluster):
    create_typed(cluster, "small", max_message_bytes="300")
    small = TopicPartition("small", 0)
    batch = typed_batch(topic_id_of(cluster, small), 0, 100)
    assert produced(cluster, batch, tp=small).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_the_time_of_the_append_is_that_of_all_rows(cluster):
    create_typed(cluster, "stamped", message_timestamp_type="LogAppendTime")
    stamped = TopicPartition("stamped", 0)
    answer = produced(cluster, typed_batch(topic_id_of(cluster, stamped), 0, 3), tp=stamped)
    assert answer.log_append_time_ms > 0
    header = read_header(bytes(fetched(cluster, tp=stamped, replica=1).records))
    assert header.timestamp_type == 1
    assert header.max_timestamp == answer.log_append_time_ms


def test_many_typed_batches_of_one_request_are_checked_beside_the_loop(cluster):
    topic_id = topic_id_of(cluster)
    every = bytearray().join(typed_batch(topic_id, n, 1) for n in range(60))
    held = cluster[1].loop.held = []
    from storage_engine.tests.broker.typed_topics.typed_support import produce

    answers = produce(cluster, every)
    cluster.loop.run_for(100)
    assert not answers
    assert len(held) == 1
    cluster[1].loop.release()
    (answer,) = cluster.answer(answers).partitions
    assert (answer.error_code, answer.base_offset) == (0, 0)
    partition = cluster[1].replicas.get(TRIPS)
    assert partition.log.log_end_offset == 60
