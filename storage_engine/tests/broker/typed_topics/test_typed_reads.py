"""Fetches that name columns: frames with some columns of batches, others skipped by a filter."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.requests.typed_reads import LookBudget
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition, topic_id_to_text
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.log.segments import projected_slice
from storage_engine.protocol.apis.fetch import API, BY_NAME, FetchPartition, FetchRequest
from storage_engine.protocol.typed.frames import PROJECTED, SKIPPED, WHOLE, iter_frames
from storage_engine.protocol.typed.projection import WANT_STORED, TypedWant
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.tests.broker.support import cluster_fixture, disk_of
from storage_engine.tests.broker.typed_topics.typed_support import (
    SCHEMA,
    TRIPS,
    columns,
    create_typed,
    fetch,
    fetched,
    produced,
    topic_id_of,
    typed_batch,
)
from storage_engine.tests.sampling import examples

ROWS = 1000
"""Of a batch: its columns are a few kilobytes."""


cluster = cluster_fixture(
    brokers=1, prepare=create_typed, simulated_disk=True, default_replication_factor="1"
)


def fill(cluster: SimulatedCluster, batches: int, rows: int = ROWS) -> None:
    topic_id = topic_id_of(cluster)
    for number in range(batches):
        answer = produced(cluster, typed_batch(topic_id, number * rows, rows, tag=str(number)))
        assert answer.error_code == 0


def rows_of(answer, want: TypedWant) -> dict[str, list]:
    names = [column.name for column in SCHEMA.latest.columns if column.column_id in want.column_ids]
    reading = plan(SCHEMA, names, ["_offset"], want.comparisons)
    found: dict[str, list] = {name: [] for name in reading.arrow_schema.names}
    for rows in iter_typed_decoded(answer.records, reading, framed=True, topic_schema=SCHEMA):
        for name, values in rows.batch.to_pydict().items():
            found[name] += values
    return found


def kinds(answer) -> list[int]:
    return [frame.kind for frame in iter_frames(answer.records)]


def test_only_the_named_columns_are_sent_and_all_rows_arrive(cluster):
    fill(cluster, 3)
    stored = fetched(cluster, want=TypedWant(WANT_STORED))
    want = columns(1)
    answer = fetched(cluster, want=want)
    assert kinds(answer) == [PROJECTED] * 3
    assert len(answer.records) < len(stored.records) / 2
    found = rows_of(answer, want)
    assert found["id"] == found["_offset"] == list(range(3 * ROWS))
    assert rows_of(fetched(cluster, ROWS, want=want), want)["id"] == list(range(ROWS, 3 * ROWS))


def test_a_reader_that_wants_stored_batches_gets_what_followers_get(cluster):
    fill(cluster, 2)
    stored = fetched(cluster, want=TypedWant(WANT_STORED))
    assert bytes(stored.records) == bytes(fetched(cluster, replica=1).records)


def test_batches_that_cannot_match_are_skipped_and_the_answer_says_where_to_read_on(cluster):
    fill(cluster, 5)
    want = columns(1, comparisons=[Comparison(1, Operator.GE, (3 * ROWS + 7,))])
    answer = fetched(cluster, want=want)
    assert kinds(answer) == [SKIPPED, PROJECTED, PROJECTED]
    first = next(iter_frames(answer.records))
    assert (first.base_offset, first.next_offset) == (0, 3 * ROWS)
    assert rows_of(answer, want)["id"] == list(range(3 * ROWS + 7, 5 * ROWS))


def test_a_filter_that_skips_all_is_answered_and_then_waits_for_more(cluster):
    fill(cluster, 3)
    want = columns(1, comparisons=[Comparison(1, Operator.LT, (0,))])
    answer = fetched(cluster, want=want, wait_ms=10_000)
    (frame,) = iter_frames(answer.records)
    assert (frame.kind, frame.next_offset) == (SKIPPED, 3 * ROWS)
    waiting = fetch(cluster, 3 * ROWS, want=want, wait_ms=10_000)
    cluster.loop.run_for(5_000)
    assert not waiting
    cluster.loop.run_for(6_000)
    assert not waiting[0].partitions[0].records


def test_a_fetch_that_waits_for_many_bytes_counts_those_that_are_sent(cluster):
    fill(cluster, 1)
    want = columns(1)
    size = len(fetched(cluster, want=want).records)
    waiting = fetch(cluster, want=want, wait_ms=60_000, min_bytes=size + 1)
    cluster.loop.run_for(1_000)
    assert not waiting
    fill(cluster, 1)
    assert len(cluster.answer(waiting, limit_ms=1_000).partitions[0].records) >= 2 * size


def test_the_limits_count_what_is_sent_and_one_batch_comes_in_any_case(cluster):
    fill(cluster, 4)
    want = columns(1)
    first, second, *_ = (
        len(each.data) for each in iter_frames(fetched(cluster, want=want).records)
    )
    for limit, expected in ((first + second, 2), (first + second - 1, 1)):
        answer = fetched(cluster, want=want, partition_max_bytes=limit)
        assert kinds(answer) == [PROJECTED] * expected
    assert kinds(fetched(cluster, want=want, max_bytes=1)) == [PROJECTED]


def test_a_read_looks_at_so_many_batches_and_no_more(cluster, monkeypatch):
    fill(cluster, 6, rows=2)
    monkeypatch.setattr("storage_engine.broker.requests.typed_reads.BATCHES_MAX", 4)
    want = columns(1, comparisons=[Comparison(1, Operator.LT, (0,))])
    # With less than it waits for: the reader is told how far it may skip all the same.
    answer = fetched(cluster, want=want, wait_ms=60_000, min_bytes=1 << 20)
    (frame,) = iter_frames(answer.records)
    assert (frame.base_offset, frame.next_offset) == (0, 6)
    values = tuple(range(300))
    want = columns(1, comparisons=[Comparison(2, Operator.IN, values)])
    assert len(kinds(fetched(cluster, want=want))) == 1


def test_long_directories_make_a_read_look_at_fewer_batches(cluster, monkeypatch):
    fill(cluster, 6, rows=2)
    monkeypatch.setattr(projected_slice, "HEADS_MAX_BYTES", 500)
    assert 1 < len(kinds(fetched(cluster, want=columns(1)))) < 6
    monkeypatch.setattr(projected_slice, "HEADS_MAX_BYTES", 1)
    assert len(kinds(fetched(cluster, want=columns(1), wait_ms=60_000, min_bytes=1 << 20))) == 1


def test_a_filter_of_many_values_makes_a_turn_look_at_fewer_batches():
    cheap, dear = (
        columns(1, comparisons=[Comparison(1, Operator.IN, tuple(range(n)))]) for n in (1, 1_000)
    )
    assert LookBudget().batches_max(cheap) > 60
    assert LookBudget().batches_max(dear) == 5
    used = LookBudget()
    used.spend(60, 64, columns(1))
    assert used.batches_max(columns(1)) == 4
    assert used.batches_max(dear) == 0


def test_control_batches_come_whole(cluster):
    partition = cluster[1].replicas.get(TRIPS)
    fill(cluster, 1)
    partition.append_marker(7, 0, TransactionMarker(commits=True, coordinator_epoch=0))
    cluster.loop.run_for(100)
    assert kinds(fetched(cluster, want=columns(1))) == [PROJECTED, WHOLE]


def test_an_unknown_column_is_left_out_and_a_value_of_another_kind_skips_nothing(cluster):
    fill(cluster, 1)
    want = TypedWant(1, (1, 77), (Comparison(1, Operator.EQ, ("text",)),))
    answer = fetched(cluster, want=want)
    assert (answer.error_code, kinds(answer)) == (0, [PROJECTED])


def test_cold_directories_and_columns_are_loaded_beside_the_loop(cluster):
    fill(cluster, 3)
    disk = disk_of(cluster)
    disk.cold = {cluster[1].logs.logs[TRIPS].directory}
    cluster[1].loop.held = []
    waiting = fetch(cluster, want=columns(1))
    cluster.loop.run_for(100)
    assert not waiting
    cluster[1].loop.release()
    want = columns(1)
    answer = cluster.answer(waiting).partitions[0]
    assert rows_of(answer, want)["id"][:ROWS] == list(range(ROWS))
    assert disk.loads


def test_what_is_evicted_again_and_again_is_projected_in_the_end(cluster):
    fill(cluster, 3)
    disk = disk_of(cluster)
    disk.cold = {cluster[1].logs.logs[TRIPS].directory}
    disk.stays_cold = True
    answer = fetched(cluster, want=columns(1))
    assert rows_of(answer, columns(1))["id"][:ROWS] == list(range(ROWS))


def test_long_directories_are_read_whole(cluster, monkeypatch):
    monkeypatch.setattr(projected_slice, "HEAD_READ_BYTES", 110)
    fill(cluster, 2)
    assert rows_of(fetched(cluster, want=columns(3)), columns(3))["tag"][ROWS] == "1"


def test_a_damaged_directory_is_an_error_and_is_reported_for_repair(cluster, monkeypatch):
    fill(cluster, 2, rows=2)
    reported = []
    reader = cluster[1].parts.requests.reader
    monkeypatch.setattr(reader, "_on_damage", lambda *named: reported.append(named[:2]))
    partition = cluster[1].replicas.get(TRIPS)
    segment = partition.log.segments.active
    second = next(p for p, h in segment.scan() if h.base_offset == 2)
    damage(cluster, second + 61 + 20)
    answer = fetched(cluster, want=columns(1))
    assert kinds(answer) == [PROJECTED]
    assert not reported
    answer = fetched(cluster, 2, want=columns(1), wait_ms=10_000)
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert reported == [(partition, 2)]


def damage(cluster: SimulatedCluster, position: int) -> None:
    """Change a byte of the partition's only segment."""
    log = cluster[1].logs.logs[TRIPS]
    disk = disk_of(cluster)
    descriptor = disk.open_existing(log.segments.active.file.path)
    byte = disk.pread(descriptor, 1, position)[0]
    disk.pwrite(descriptor, bytes((byte ^ 0x55,)), position)
    disk.close(descriptor)


def test_a_session_remembers_what_is_wanted_and_notices_that_it_changes(cluster):
    fill(cluster, 1)
    text = topic_id_to_text(topic_id_of(cluster))

    def ask(session: int, epoch: int, offset: int | None, want: TypedWant | None = None):
        named = [] if offset is None else [FetchPartition(text, 0, offset, 1 << 20, want=want)]
        request = FetchRequest(0, 1, 1 << 20, named, session_id=session, session_epoch=epoch)
        return cluster.answer(cluster.ask(1, API, 13, request))

    first = ask(0, 0, 0, columns(1))
    session = first.session_id
    assert session
    assert rows_of(first.partitions[0], columns(1))["id"] == list(range(ROWS))
    # Not named again: the same answer, of the same columns.
    again = ask(session, 1, None)
    assert bytes(again.partitions[0].records) == bytes(first.partitions[0].records)
    other = ask(session, 2, 0, columns(3))
    assert rows_of(other.partitions[0], columns(3))["tag"] == ["0"] * ROWS
    stored = ask(session, 3, 0, TypedWant(WANT_STORED))
    assert bytes(stored.partitions[0].records) == bytes(fetched(cluster, replica=1).records)


def test_typed_and_other_topics_are_fetched_together(cluster):
    fill(cluster, 1)
    plain = TopicPartition("plain", 0)
    assert cluster.create_topic("plain").error_code == 0
    cluster.produced_when_there(plain, b"x")
    named = [
        FetchPartition("trips", 0, 0, 1 << 20, want=columns(1)),
        FetchPartition("plain", 0, 0, 1 << 20),
        FetchPartition("plain", 0, 0, 1 << 20, want=columns(1)),
    ]
    request = FetchRequest(0, 1, 1 << 20, named[:2])
    typed, untyped = cluster.answer(cluster.ask(1, BY_NAME, 12, request)).partitions
    assert kinds(typed) == [PROJECTED]
    assert bytes(untyped.records) == bytes(fetched(cluster, tp=plain, replica=1).records)
    request = FetchRequest(0, 1, 1 << 20, named[2:])
    (framed,) = cluster.answer(cluster.ask(1, BY_NAME, 12, request)).partitions
    assert kinds(framed) == [WHOLE]


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Iterator[SimulatedCluster]:
    """Batches of many sizes, and markers among them: their ids are their offsets."""
    made = SimulatedCluster(tmp_path_factory.mktemp("filled"), 1, default_replication_factor="1")
    create_typed(made, segment_bytes="40000")
    partition = made[1].replicas.get(TRIPS)
    for number, rows in enumerate((1, 700, 3, 2000, 40, 1, 1, 1500, 9, 300)):
        first = partition.log.log_end_offset
        answer = produced(made, typed_batch(topic_id_of(made), first, rows, tag=str(number)))
        assert answer.base_offset == first
        if number % 3 == 2:
            marker = TransactionMarker(commits=True, coordinator_epoch=0)
            partition.append_marker(7, 0, marker)
    made.loop.run_for(100)
    yield made
    made.close()


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.integers(0, 4_400),
    limit=st.one_of(st.integers(1, 400), st.integers(1, 40_000)),
    most=st.integers(1, 8),
    ids=st.sets(st.sampled_from([1, 2, 3]), min_size=1),
    bound=st.one_of(st.none(), st.integers(-10, 5_000)),
    operator=st.sampled_from([Operator.GE, Operator.LT, Operator.EQ, Operator.NE]),
)
def test_however_small_its_answers_a_reader_gets_each_row_that_matches_once(
    filled, start, limit, most, ids, bound, operator
):
    comparisons = [] if bound is None else [Comparison(1, operator, (bound,))]
    want = columns(*sorted({1, *ids}), comparisons=comparisons)
    end = filled[1].replicas.get(TRIPS).high_watermark
    reading = plan(SCHEMA, ["id"], ["_offset"], comparisons)
    found = []
    offset = start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("storage_engine.broker.requests.typed_reads.BATCHES_MAX", most)
        while offset < end:
            answer = fetched(filled, offset, want=want, partition_max_bytes=limit)
            decoded = iter_typed_decoded(
                answer.records, reading, start_offset=offset, framed=True, topic_schema=SCHEMA
            )
            for rows in decoded:
                found += rows.batch.column("id").to_pylist()
                assert rows.next_offset > offset
                offset = rows.next_offset
    compare = {
        Operator.GE: lambda n: n >= bound,
        Operator.LT: lambda n: n < bound,
        Operator.EQ: lambda n: n == bound,
        Operator.NE: lambda n: n != bound,
    }[operator]
    everything = every_id(filled)
    assert found == [n for n in everything if n >= start and (bound is None or compare(n))]


def every_id(cluster: SimulatedCluster) -> list[int]:
    """As the log has them, by the decoder of whole batches."""
    log = cluster[1].replicas.get(TRIPS).log
    found: list[int] = []
    offset = 0
    while (piece := log.reads.read(offset, max_bytes=1 << 20)) is not None:
        reading = plan(SCHEMA, ["id"])
        for rows in iter_typed_decoded(
            piece.read_bytes(), reading, framed=False, topic_schema=SCHEMA
        ):
            found += rows.batch.column("id").to_pylist()
        offset = piece.end_offset
    return found
