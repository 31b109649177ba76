"""The reader of `_schemas` gets what is committed, whatever happens to the topic and its leader."""

from typing import Any
from uuid import UUID

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.schemas import schemas_log
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.core.schemas.registry.changes import delete_subject
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    read_header,
    seal,
)
from storage_engine.tests.broker.schemas.schemas_support import (
    SCHEMAS,
    WrittenSchemas,
    batch_of,
    create_schemas,
    leader_of,
    read_to_end,
    schemas_of,
    text_of,
    write,
)
from storage_engine.tests.broker.support import cluster_fixture

cluster = cluster_fixture(brokers=3, prepare=create_schemas, default_replication_factor="3")


def texts(cluster: SimulatedCluster, broker: int, schema_id: int) -> list[str]:
    return [each.schema.text for each in schemas_of(cluster, broker).state.with_id(schema_id)]


def test_every_broker_reads_what_was_registered_before_it_was_asked(cluster):
    written = WrittenSchemas(cluster)
    ids = [written.register(f"s{n}", text_of(f"R{n}", a="int")) for n in range(300)]
    for broker in (1, 2, 3):
        assert read_to_end(cluster, broker)
        assert texts(cluster, broker, ids[299]) == [text_of("R299", a="int")]
    later = written.register("later", text_of("L", b="string"))
    assert read_to_end(cluster, 2)
    assert texts(cluster, 2, later) == [text_of("L", b="string")]


def test_a_broker_that_nobody_asks_reads_nothing(cluster):
    WrittenSchemas(cluster).register("s", text_of("R", a="int"))
    cluster.loop.run_for(60_000)
    assert not schemas_of(cluster).is_loaded
    assert read_to_end(cluster)
    schemas_of(cluster)._fetch = lambda leader: pytest.fail("it is not used")  # type: ignore[method-assign]
    schemas_of(cluster)._used_ms -= schemas_log.UNUSED_MS + 1
    cluster.loop.run_for(60_000)


def test_changes_are_followed_without_a_question(cluster):
    written = WrittenSchemas(cluster)
    assert read_to_end(cluster)
    found = written.register("s", text_of("R", a="int"))
    cluster.loop.run_for(schemas_log.PAUSE_MS + 200)
    assert texts(cluster, 1, found) == [text_of("R", a="int")]


def test_a_deletion_for_good_takes_the_id_away(cluster):
    written = WrittenSchemas(cluster)
    found = written.register("s", text_of("R", a="int"))
    assert read_to_end(cluster)
    for permanent in (False, True):
        written.log.write(delete_subject(written.log.state, "s", permanent=permanent))
        written.flush()
        assert read_to_end(cluster)
        assert bool(texts(cluster, 1, found)) is not permanent


def test_a_killed_leader_is_replaced_and_nothing_is_missed(cluster):
    written = WrittenSchemas(cluster)
    first = written.register("a", text_of("A", a="int"))
    assert read_to_end(cluster)
    reader = next(n for n in (1, 2, 3) if n != leader_of(cluster))
    cluster[leader_of(cluster)].kill()
    cluster.loop.run_until(lambda: leader_of(cluster) is not None)
    second = written.register("b", text_of("B", a="int"))
    results: list[bool] = []
    while not results or not results[-1]:
        results.append(read_to_end(cluster, reader))
        assert len(results) < 20
    assert texts(cluster, reader, first) and texts(cluster, reader, second)


def test_another_topic_of_the_name_is_read_from_its_beginning(cluster):
    written = WrittenSchemas(cluster)
    for number in range(3):
        written.register(f"s{number}", text_of(f"Old{number}", a="int"))
    assert read_to_end(cluster)
    generation = schemas_of(cluster).generation
    cluster.answer(cluster.delete_topic(SCHEMAS.topic))
    cluster.loop.run_until(lambda: leader_of(cluster) is None)
    create_schemas(cluster)
    anew = WrittenSchemas(cluster)
    found = [anew.register(f"n{n}", text_of(f"New{n}", a="int")) for n in range(5)]
    cluster.loop.run_for(2_000)
    assert read_to_end(cluster)
    assert texts(cluster, 1, found[0]) == [text_of("New0", a="int")]
    assert schemas_of(cluster).state.subjects() == [f"n{n}" for n in range(5)]
    assert schemas_of(cluster).generation > generation


def test_records_of_another_topic_of_the_name_are_not_taken_before_metadata_tells_of_it(cluster):
    written = WrittenSchemas(cluster)
    for number in range(3):
        written.register(f"s{number}", text_of(f"Old{number}", a="int"))
    assert read_to_end(cluster)
    schemas = schemas_of(cluster)
    metadata = schemas._metadata
    old_id = metadata.topic_id(SCHEMAS.topic)
    cluster.answer(cluster.delete_topic(SCHEMAS.topic))
    cluster.loop.run_until(lambda: leader_of(cluster) is None)
    schemas._metadata = OldId(metadata, old_id)  # type: ignore[assignment]
    create_schemas(cluster)
    anew = WrittenSchemas(cluster)
    for number in range(5):
        anew.register(f"n{number}", text_of(f"New{number}", a="int"))
    assert not read_to_end(cluster)
    assert schemas.state.subjects() == ["s0", "s1", "s2"]
    schemas._metadata = metadata
    assert read_to_end(cluster)
    assert schemas.state.subjects() == [f"n{n}" for n in range(5)]


class OldId:
    """Metadata that knows of everything but a topic's new id."""

    def __init__(self, metadata: MetadataCache, topic_id: UUID | None) -> None:
        self._metadata = metadata
        self._topic_id = topic_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metadata, name)

    def topic_id(self, topic: str) -> UUID | None:
        return self._topic_id


def test_damaged_records_and_batches_are_skipped_and_counted(cluster):
    written = WrittenSchemas(cluster)
    first = written.register("a", text_of("A", a="int"))
    write(cluster, batch_of([(b"{", b"{"), (b'{"keytype":"CONFIG","subject":"\\ud800"}', b"{}")]))
    # A batch whose CRC is right, and whose records are not.
    batch = bytearray(batch_of([(b"k", b"v" * 40)]))
    batch[HEADER_BYTES + 8 :] = b"\xff" * (len(batch) - HEADER_BYTES - 8)
    seal(batch, 0, read_header(batch))
    log = cluster[leader_of(cluster)].replicas.get(SCHEMAS).log
    log.leader_appends.append(memoryview(batch), leader_epoch=0, now_ms=1000, is_checked=True)
    cluster[leader_of(cluster)].replicas.get(SCHEMAS).mark()
    last = written.register("z", text_of("Z", a="int"))
    assert read_to_end(cluster)
    assert texts(cluster, 1, first) and texts(cluster, 1, last)
    assert schemas_of(cluster).state.skipped == 3


def test_questions_of_many_share_a_look_and_looks_have_a_least_distance(cluster):
    WrittenSchemas(cluster).register("s", text_of("R", a="int"))
    assert read_to_end(cluster)
    log = schemas_of(cluster)
    before, begun_ms = log.looks, cluster.loop.monotonic_ms()
    answers: list[bool] = []
    for _ in range(10_000):
        log.when_read(answers.append)
    cluster.loop.run_until(lambda: len(answers) == 10_000)
    assert all(answers) and log.looks - before <= 2
    for _ in range(20):
        assert read_to_end(cluster)
    passed_ms = cluster.loop.monotonic_ms() - begun_ms
    assert log.looks - before <= 2 + passed_ms // schemas_log.GAP_MS


def test_a_question_ends_in_time_where_nothing_can_be_read(cluster):
    log = schemas_of(cluster)
    log.topic = "nowhere"
    begun_ms = cluster.loop.monotonic_ms()
    assert read_to_end(cluster) is False
    assert cluster.loop.monotonic_ms() - begun_ms <= schemas_log.ANSWER_WAIT_MS + 100
    assert log.problem == "there is no such topic"


def test_a_state_that_is_too_large_is_given_up_with_its_memory(cluster, monkeypatch):
    monkeypatch.setattr(schemas_log, "MOST_BYTES", 20_000)
    written = WrittenSchemas(cluster)
    for number in range(30):
        written.register(f"s{number}", text_of(f"R{number}", a="int"))
    assert read_to_end(cluster) is False
    log = schemas_of(cluster)
    assert log.is_too_large and not log.is_loaded and log.state.memory_bytes == 0
    cluster.answer(cluster.delete_topic(SCHEMAS.topic))
    cluster.loop.run_until(lambda: leader_of(cluster) is None)
    create_schemas(cluster)
    WrittenSchemas(cluster).register("s", text_of("R", a="int"))
    cluster.loop.run_for(3_000)
    assert read_to_end(cluster) and not log.is_too_large


def test_what_is_not_committed_is_not_read(cluster):
    """A transaction that is open hides what follows; one that is aborted is left out."""
    written = WrittenSchemas(cluster)
    first = written.register("a", text_of("A", a="int"))
    partition: Any = cluster[leader_of(cluster)].replicas.get(SCHEMAS)
    written.log.register("ghost", text_of("Ghost", a="int"))
    batch = bytearray(batch_of(written.log.records[-2:]))
    header = read_header(batch)
    header = header._replace(
        producer_id=7, producer_epoch=0, base_sequence=0,
        attributes=header.attributes | TRANSACTIONAL_BIT,
    )  # fmt: skip
    seal(batch, 0, header)
    outcome = partition.append(memoryview(batch), acks=-1, in_transaction=True, is_checked=True)
    assert outcome.base_offset > 0, outcome
    cluster.loop.run_until(lambda: partition.high_watermark == outcome.next_offset)
    assert read_to_end(cluster)
    assert schemas_of(cluster)._position == outcome.base_offset
    partition.append_marker(7, 0, TransactionMarker(commits=False, coordinator_epoch=0))
    cluster.loop.run_until(lambda: partition.last_stable_offset > outcome.next_offset)
    assert read_to_end(cluster)
    assert schemas_of(cluster)._position > outcome.next_offset
    assert texts(cluster, 1, first)
    assert schemas_of(cluster).state.subjects() == ["a"]
