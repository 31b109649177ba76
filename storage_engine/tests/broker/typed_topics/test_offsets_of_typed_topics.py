"""Offsets in typed topics: by time, after records are deleted, and those of leader epochs."""

import pyarrow as pa

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.list_offsets import API as LIST_OFFSETS
from storage_engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from storage_engine.protocol.typed.frames import iter_frames
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.typed_topics.typed_support import (
    TRIPS,
    columns,
    create_typed,
    fetched,
    produced,
    topic_id_of,
    typed_batch,
)

MAX_TIMESTAMP = -3


cluster = cluster_fixture(brokers=1, prepare=create_typed, default_replication_factor="1")


def produce_at(cluster: SimulatedCluster, first: int, times: list[int]) -> None:
    batch = typed_batch(
        topic_id_of(cluster), first, len(times), timestamps=pa.array(times, pa.int64())
    )
    assert produced(cluster, batch).base_offset == first


def look_up(cluster: SimulatedCluster, timestamp: int, *, held: bool = False):
    request = ListOffsetsRequest([ListOffsetsPartition("trips", 0, timestamp)])
    if held:
        cluster[1].loop.held = []
    answers = cluster.ask(1, LIST_OFFSETS, 7, request)
    if held:
        cluster.loop.run_for(100)
        assert not answers
        cluster[1].loop.release()
    (answer,) = cluster.answer(answers).partitions
    assert answer.error_code == 0
    return answer.offset, answer.timestamp


def test_the_first_row_that_is_late_enough_is_found_beside_the_loop(cluster):
    produce_at(cluster, 0, [100, 300, 200])
    produce_at(cluster, 3, [400, 400])
    assert look_up(cluster, 50, held=True) == (0, 100)
    assert look_up(cluster, 150) == (1, 300)
    assert look_up(cluster, 301) == (3, 400)
    assert look_up(cluster, 401) == (-1, -1)


def test_the_latest_row_is_found(cluster):
    produce_at(cluster, 0, [100, 300, 200])
    assert look_up(cluster, MAX_TIMESTAMP) == (1, 300)


def test_a_damaged_batch_counts_as_a_whole(cluster, monkeypatch):
    produce_at(cluster, 0, [100, 300, 200])

    def damaged(*_positional, **_named):
        from storage_engine.core.errors import CorruptRecordError

        raise CorruptRecordError("damaged")

    monkeypatch.setattr("storage_engine.protocol.typed.stored_rows.row_times", damaged)
    assert look_up(cluster, 150) == (0, 300)


def test_a_log_may_begin_within_a_typed_batch(cluster):
    produce_at(cluster, 0, [100, 300, 200])
    produce_at(cluster, 3, [400, 400])
    partition = cluster[1].replicas.get(TRIPS)
    partition.log.retention.advance_log_start(2)
    assert fetched(cluster, 1, want=columns(1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    frames = list(iter_frames(fetched(cluster, 2, want=columns(1)).records))
    assert [frame.base_offset for frame in frames] == [0, 3]
    assert look_up(cluster, 250) == (3, 400)
    assert look_up(cluster, 150) == (2, 200)
