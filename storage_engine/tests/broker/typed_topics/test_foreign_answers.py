"""Clients that know no typed batches get records of JSON, checked again after the wait for them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.network import CLIENT
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.broker.requests import foreign_answers
from storage_engine.core.errors import CorruptRecordError, ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.core.security.principal import Principal
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.protocol.apis.fetch import (
    BY_NAME,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)
from storage_engine.protocol.records.record_batch import crc_matches, iter_headers
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.broker.support import cluster_fixture, disk_of
from storage_engine.tests.broker.typed_topics.typed_support import (
    DDL,
    SCHEMA,
    TRIPS,
    create_typed,
    fetch,
    fetched,
    produced,
    topic_id_of,
    typed_batch,
)

ROWS = 100


cluster = cluster_fixture(
    brokers=1, prepare=create_typed, simulated_disk=True, default_replication_factor="1"
)


def fill(cluster: SimulatedCluster, batches: int, rows: int = ROWS, **named) -> None:
    topic_id = topic_id_of(cluster)
    for number in range(batches):
        answer = produced(cluster, typed_batch(topic_id, number * rows, rows, **named))
        assert answer.error_code == 0


def rows_of(answer) -> list[tuple[int, bytes | None, Any]]:
    """Offset, key and value of each record, after a check of each batch's CRC."""
    records = memoryview(bytes(answer.records))
    for position, header in iter_headers(records):
        assert crc_matches(records, position, header.size_in_bytes)
    decoded = decode_batches(records)
    return [
        (offset, key, None if value is None else json.loads(value))
        for offset, key, value in zip(
            decoded.offsets.to_pylist(),
            decoded.keys.to_pylist(),
            decoded.values.to_pylist(),
            strict=True,
        )
    ]


def row(number: int, **more) -> tuple[int, bytes, dict]:
    return (
        number,
        str(number).encode(),
        {"id": number, "fare": number / 2, "tag": "a", **more},
    )


def conversions(cluster: SimulatedCluster) -> int:
    return cluster[1].parts.requests.foreign_answers.conversions


def hold(cluster: SimulatedCluster) -> list[Callable[[], None]]:
    held: list[Callable[[], None]] = []
    cluster[1].loop.held = held
    return held


def test_rows_come_as_records_of_json_at_the_same_offsets(cluster):
    fill(cluster, 3)
    assert rows_of(fetched(cluster)) == [row(n) for n in range(3 * ROWS)]
    assert rows_of(fetched(cluster, 2 * ROWS + 5)) == [row(n) for n in range(2 * ROWS, 3 * ROWS)]


def test_what_was_converted_for_one_client_is_there_for_the_next(cluster):
    fill(cluster, 3)
    first = fetched(cluster)
    assert conversions(cluster) == 3
    held = hold(cluster)
    assert bytes(fetched(cluster).records) == bytes(first.records)
    assert not held
    fill(cluster, 1)
    waiting = fetch(cluster)
    cluster.loop.run_for(100)
    assert not waiting
    cluster[1].loop.release()
    assert len(rows_of(cluster.answer(waiting).partitions[0])) == 4 * ROWS
    assert conversions(cluster) == 4


def test_the_cache_has_a_limit(cluster, monkeypatch):
    fill(cluster, 3)
    size = len(fetched(cluster, max_bytes=1).records)
    monkeypatch.setattr(foreign_answers, "CACHED_MAX_BYTES", int(2.5 * size))
    monkeypatch.setattr(foreign_answers, "CACHED_BATCH_MAX_BYTES", 2 * size)
    fetched(cluster)
    cache = cluster[1].parts.requests.foreign_answers._cache
    assert len(cache._kept) == 2
    # What slow clients hold is counted until they let it go.
    assert cache.held_bytes == sum(map(len, cache._kept.values())) == cache._kept_bytes


def test_a_new_version_of_the_schema_is_shown_in_old_rows_too(cluster):
    fill(cluster, 1)
    fetched(cluster)
    evolved = SCHEMA.evolved(parse_ddl(f"{DDL}, more INT"))
    partition = cluster[1].replicas.get(TRIPS)
    from dataclasses import replace

    partition.log.update_config(replace(partition.log.config, schema=evolved))
    assert rows_of(fetched(cluster)) == [row(n, more=None) for n in range(ROWS)]
    later = typed_batch(topic_id_of(cluster), ROWS, 1, schema=evolved)
    assert produced(cluster, later).error_code == 0
    assert rows_of(fetched(cluster, ROWS)) == [row(ROWS, more=None)]


def test_limits_count_json_and_one_batch_comes_in_any_case(cluster):
    fill(cluster, 5)
    records = bytes(fetched(cluster).records)
    third = [position for position, _ in iter_headers(records)][3]
    assert len(rows_of(fetched(cluster, max_bytes=1))) == ROWS
    for limit, expected in ((third, 3), (third - 1, 2)):
        assert len(rows_of(fetched(cluster, partition_max_bytes=limit))) == expected * ROWS
        assert len(rows_of(fetched(cluster, max_bytes=limit))) == expected * ROWS


def test_batches_are_converted_until_the_limit_is_reached_and_no_further(cluster):
    fill(cluster, 5)
    size = len(fetched(cluster, max_bytes=1).records)
    assert conversions(cluster) == 1
    fetched(cluster, partition_max_bytes=2 * size)
    assert conversions(cluster) <= 3


def test_a_fetch_that_waits_is_answered_when_rows_come(cluster):
    waiting = fetch(cluster, wait_ms=10_000)
    cluster.loop.run_for(1_000)
    assert not waiting
    fill(cluster, 1)
    assert len(rows_of(cluster.answer(waiting, limit_ms=500).partitions[0])) == ROWS


def test_when_slow_clients_hold_too_much_an_answer_has_one_batch(cluster, monkeypatch):
    fill(cluster, 4)
    monkeypatch.setattr(foreign_answers, "CACHED_MAX_BYTES", 0)
    cache = cluster[1].parts.requests.foreign_answers._cache
    assert len(rows_of(fetched(cluster))) == 4 * ROWS
    assert cache.held_bytes == 0
    cache.held_bytes = foreign_answers.HELD_MAX_BYTES + 1
    assert len(rows_of(fetched(cluster))) == ROWS
    assert conversions(cluster) == 5


def test_clients_that_take_nothing_hold_one_copy_of_a_batch_and_a_limited_number_of_batches(
    cluster, monkeypatch
):
    fill(cluster, 12)
    monkeypatch.setattr(foreign_answers, "CACHED_BATCH_MAX_BYTES", 0)
    requests = cluster[1].parts.requests
    cache = requests.foreign_answers._cache

    def read(number: int) -> FetchPartitionResponse:
        """What a fetch is answered with, before it is sent."""
        request = FetchRequest(0, 1, 1, [FetchPartition(TRIPS.topic, 0, number * ROWS, 1 << 20)])
        answers: list[Any] = []
        found = requests.reader.read(request)
        requests.foreign_answers.answer(
            request, found, ("User:a", "host", 1), answers.append, lambda: False
        )
        cluster.loop.run_until(lambda: bool(answers))
        return answers.pop().partitions[0]

    held = [read(0) for _ in range(5)]
    size = cache.held_bytes
    assert size == len(held[0].records) and conversions(cluster) == 1
    monkeypatch.setattr(foreign_answers, "HELD_HARD_MAX_BYTES", 4 * size)
    held += [read(number) for number in range(1, 12)]
    assert 4 * size < cache.held_bytes < 6 * size
    codes = [each.error_code for each in held]
    assert set(codes) == {0, ErrorCode.REPLICA_NOT_AVAILABLE} and codes[-1]
    # What was converted already is served; and all, when they let go of it.
    assert read(0).records
    held.clear()
    assert cache.held_bytes == 0
    assert read(11).records


def test_a_slow_conversion_holds_up_nobody_else(cluster):
    fill(cluster, 2)
    other = TopicPartition("plain", 0)
    assert cluster.create_topic("plain").error_code == 0
    cluster.produced_when_there(other, b"x")
    fetched(cluster, max_bytes=1)
    held = hold(cluster)
    slow = [fetch(cluster, ROWS) for _ in range(5)]
    cluster.loop.run_for(100)
    assert len(held) == foreign_answers.CONVERTED_EACH
    assert not any(slow)
    for replica in (-1, 1):
        assert fetched(cluster, tp=other, replica=replica).records
        assert fetched(cluster, replica=1).records
    assert produced(cluster, typed_batch(topic_id_of(cluster), 9, 1), acks=1).error_code == 0
    cluster[1].loop.release()
    for answers in slow:
        assert rows_of(cluster.answer(answers).partitions[0])[:ROWS] == [
            row(n) for n in range(ROWS, 2 * ROWS)
        ]


def test_another_principal_does_not_wait_for_the_conversions_of_one(cluster):
    fill(cluster, 3)
    held = hold(cluster)
    crowd = [fetch(cluster, ROWS) for _ in range(10)]
    cluster.loop.run_for(100)
    cluster.network.principals[CLIENT] = Principal("other")
    other = fetch(cluster, 2 * ROWS)
    cluster.loop.run_for(100)
    assert len(held) == foreign_answers.CONVERTED_AT_ONCE
    work, cluster[1].loop.held = held[-1], None
    work()
    assert rows_of(cluster.answer(other).partitions[0])[0] == row(2 * ROWS)
    assert not any(crowd)
    cluster[1].loop.held = held[:-1]
    cluster[1].loop.release()
    for answers in crowd:
        assert rows_of(cluster.answer(answers).partitions[0])[0] == row(ROWS)


def test_a_client_that_is_gone_is_not_converted_for(cluster):
    fill(cluster, 2)
    hold(cluster)
    for _ in range(foreign_answers.CONVERTED_EACH + 2):
        fetch(cluster)
    cluster.loop.run_for(100)
    cluster.network.reset(CLIENT, 1)
    cluster[1].loop.release()
    cluster.loop.run_for(1_000)
    # Those of the fetches that were under way.
    assert conversions(cluster) == 2 * foreign_answers.CONVERTED_EACH
    assert rows_of(fetched(cluster))[0] == row(0)


def test_leadership_lost_while_a_conversion_waits_is_noticed(cluster):
    fill(cluster, 1)
    hold(cluster)
    waiting = fetch(cluster)
    cluster.loop.run_for(100)
    partition = cluster[1].replicas.get(TRIPS)
    partition.become_follower(2)
    assert partition.role is Role.FOLLOWER
    cluster[1].loop.release()
    answer = cluster.answer(waiting).partitions[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not answer.records


def test_records_that_are_cut_while_a_conversion_waits_are_not_sent(cluster):
    fill(cluster, 2)
    hold(cluster)
    waiting = fetch(cluster)
    cluster.loop.run_for(100)
    partition = cluster[1].replicas.get(TRIPS)
    partition.log.truncation.truncate_to(ROWS)
    batch = typed_batch(topic_id_of(cluster), 7 * ROWS, ROWS)
    assert produced(cluster, batch, acks=1).base_offset == ROWS
    cluster[1].loop.release()
    rows = rows_of(cluster.answer(waiting).partitions[0])
    assert rows[:ROWS] == [row(n) for n in range(ROWS)]
    assert [value["id"] for _, _, value in rows[ROWS:]] in ([], list(range(7 * ROWS, 8 * ROWS)))
    later = rows_of(fetched(cluster, ROWS))
    assert [value["id"] for _, _, value in later] == list(range(7 * ROWS, 8 * ROWS))


def test_a_batch_that_cannot_be_decoded_is_an_error_and_is_reported_for_repair(
    cluster, monkeypatch
):
    fill(cluster, 2)
    reported = []
    reader = cluster[1].parts.requests.reader
    monkeypatch.setattr(reader, "_on_damage", lambda *named: reported.append(named[:2]))
    partition = cluster[1].replicas.get(TRIPS)
    second = next(p for p, h in partition.log.segments.active.scan() if h.base_offset == ROWS)
    damage(cluster, second + 900)
    assert len(rows_of(fetched(cluster))) == ROWS
    assert not reported
    answer = fetched(cluster, ROWS, wait_ms=60_000)
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert reported == [(partition, ROWS)]


def damage(cluster: SimulatedCluster, position: int, bits: int = 0x55) -> None:
    log = cluster[1].logs.logs[TRIPS]
    disk = disk_of(cluster)
    descriptor = disk.open_existing(log.segments.active.file.path)
    byte = disk.pread(descriptor, 1, position)[0]
    disk.pwrite(descriptor, bytes((byte ^ bits,)), position)
    disk.close(descriptor)


@pytest.mark.parametrize("error", [CorruptRecordError("bad"), RuntimeError("a bug")])
def test_no_error_of_a_conversion_leaves_a_client_waiting(cluster, monkeypatch, error):
    from storage_engine.broker import unexpected

    monkeypatch.setattr(unexpected, "is_fatal", False)

    def fails(*_positional, **_named):
        raise error

    monkeypatch.setattr("storage_engine.protocol.typed.json_rows.as_json_batches", fails)
    fill(cluster, 1)
    answer = fetched(cluster, wait_ms=60_000)
    expected = (
        ErrorCode.CORRUPT_MESSAGE
        if isinstance(error, CorruptRecordError)
        else ErrorCode.UNKNOWN_SERVER_ERROR
    )
    assert answer.error_code == expected


def test_control_batches_stay_and_the_aborted_are_named_as_ever(cluster):
    partition = cluster[1].replicas.get(TRIPS)
    topic_id = topic_id_of(cluster)
    for sequence, commits in ((0, True), (ROWS, False)):
        batch = typed_batch(
            topic_id,
            sequence,
            ROWS,
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        outcome = partition.append(memoryview(batch), acks=-1, in_transaction=True)
        assert outcome.base_offset >= 0
        partition.append_marker(7, 0, TransactionMarker(commits=commits, coordinator_epoch=0))
    cluster.loop.run_for(100)
    stored = fetched(cluster, replica=1)
    plain = fetched(cluster, isolation=1)
    assert plain.aborted_transactions == [(7, ROWS + 1)]
    assert plain.last_stable_offset == 2 * ROWS + 2
    facts = [
        [
            (each.base_offset, each.next_offset, each.producer_id, each.producer_epoch,
             each.base_sequence, each.is_transactional, each.is_control,
             each.partition_leader_epoch)
            for _, each in iter_headers(bytes(answer.records))
        ]
        for answer in (stored, plain)
    ]  # fmt: skip
    assert facts[0] == facts[1]
    assert len(facts[0]) == 4
    # Of an answer that ends sooner, those of later offsets are none of its business.
    assert fetched(cluster, isolation=1, max_bytes=1).aborted_transactions == []


def test_typed_and_other_topics_are_answered_together(cluster):
    fill(cluster, 1)
    plain = TopicPartition("plain", 0)
    assert cluster.create_topic("plain").error_code == 0
    cluster.produced_when_there(plain, b"x")
    create_typed(cluster, "more")
    more = TopicPartition("more", 0)
    assert produced(cluster, typed_batch(topic_id_of(cluster, more), 0, 5), tp=more).error_code == 0
    wanted = [FetchPartition(name, 0, 0, 1 << 20) for name in ("trips", "plain", "more")]
    answer = cluster.answer(cluster.ask(1, BY_NAME, 12, FetchRequest(0, 1, 1 << 20, wanted)))
    trips, other, rest = answer.partitions
    assert rows_of(trips) == [row(n) for n in range(ROWS)]
    assert bytes(other.records) == bytes(fetched(cluster, tp=plain, replica=1).records)
    assert rows_of(rest) == [row(n) for n in range(5)]


def test_a_fetch_of_many_partitions_gets_json_of_some_and_later_of_all(cluster):
    names = [f"wide{n}" for n in range(25)]
    for name in names:
        create_typed(cluster, name)
        tp = TopicPartition(name, 0)
        assert produced(cluster, typed_batch(topic_id_of(cluster, tp), 0, 2), tp=tp).error_code == 0
    left = set(names)
    for _ in range(3):
        wanted = [FetchPartition(name, 0, 0, 1 << 20) for name in sorted(left)]
        answer = cluster.answer(cluster.ask(1, BY_NAME, 12, FetchRequest(0, 1, 1 << 20, wanted)))
        for each in answer.partitions:
            assert each.error_code == 0
            if each.records:
                assert rows_of(each) == [row(0), row(1)]
                left.discard(each.topic)
        if not left:
            break
    assert not left


def test_cold_batches_are_loaded_and_then_converted(cluster):
    fill(cluster, 2)
    disk = disk_of(cluster)
    disk.cold = {cluster[1].logs.logs[TRIPS].directory}
    assert rows_of(fetched(cluster)) == [row(n) for n in range(2 * ROWS)]
    assert disk.loads


def test_a_batch_larger_than_the_limit_comes_also_beside_a_topic_that_always_has_records(cluster):
    """As in Kafka, the first partition of a request that has records gives at least one batch."""
    fill(cluster, 2)
    plain = TopicPartition("plain", 0)
    assert cluster.create_topic("plain").error_code == 0
    cluster.produced_when_there(plain, b"x")

    def asked(*names: str):
        wanted = [FetchPartition(name, 0, 0, 100) for name in names]
        request = FetchRequest(0, 1, 1 << 20, wanted)
        return cluster.answer(cluster.ask(1, BY_NAME, 12, request)).partitions

    trips, other = asked("trips", "plain")
    assert rows_of(trips) == [row(n) for n in range(ROWS)]
    assert other.records
    other, trips = asked("plain", "trips")
    assert other.records and not trips.records


@pytest.mark.parametrize("bit", [0x20, 0x80])
def test_a_batch_whose_header_calls_it_something_else_is_damage_and_no_marker(cluster, bit):
    fill(cluster, 2)
    partition = cluster[1].replicas.get(TRIPS)
    second = next(p for p, h in partition.log.segments.active.scan() if h.base_offset == ROWS)
    damage(cluster, second + 22, bit)
    assert len(rows_of(fetched(cluster))) == ROWS
    assert fetched(cluster, ROWS).error_code == ErrorCode.CORRUPT_MESSAGE
