"""Fetches of bytes that are not in the page cache: a thread loads them, the loop goes on."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from simulation.world.network import CLIENT
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.broker.requests.cold_reads import LOADS_AT_ONCE, LOADS_EACH, MOST_LOADS
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.core.security.principal import Principal
from storage_engine.log.files.segment_files import COPY_MAX_BYTES
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchPartition, FetchRequest
from storage_engine.tests.broker.support import disk_of

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    """One broker with two partitions, in a log dir each."""
    settings = {"default_replication_factor": "1"}
    made = SimulatedCluster(
        tmp_path, 1, disk=lambda _b: SimulatedDisk(tmp_path), log_dirs=2, **settings
    )
    assert made.create_topic("t", partitions=2).error_code == 0
    for tp in (TP, OTHER):
        made.produced(tp, b"first")
    assert folder_of(made, TP).parent != folder_of(made, OTHER).parent
    yield made
    disk_of(made).broken.clear()
    made.close()


def folder_of(cluster: SimulatedCluster, tp: TopicPartition) -> Path:
    return cluster[1].logs.logs[tp].directory


def make_cold(cluster: SimulatedCluster) -> SimulatedDisk:
    disk = disk_of(cluster)
    disk.cold = {folder_of(cluster, TP)}
    return disk


def outcome(answer) -> tuple[ErrorCode, int]:
    """The error, and how many bytes came."""
    partition = answer.partitions[0]
    return ErrorCode.of(partition.error_code), len(partition.records or b"")


@pytest.mark.parametrize("payload_bytes", [100, COPY_MAX_BYTES + 1])
def test_a_cold_fetch_waits_for_its_load_and_others_do_not_wait_for_it(cluster, payload_bytes):
    cluster.produced(TP, bytes(payload_bytes))
    disk = make_cold(cluster)
    cluster[1].loop.held = []
    cold = cluster.fetch(1, TP, 1)
    cluster.loop.run_for(100)
    assert not cold
    warm = cluster.answer(cluster.fetch(1, OTHER, 0), limit_ms=5)
    assert outcome(warm)[0] is ErrorCode.NONE
    assert not cold
    cluster[1].loop.release()
    code, size = outcome(cluster.answer(cold))
    assert code is ErrorCode.NONE
    assert size > payload_bytes
    assert disk.loads == 1


def test_a_warm_fetch_loads_nothing(cluster):
    cluster.answer(cluster.fetch(1, TP, 0))
    assert disk_of(cluster).loads == 0
    assert cluster[1].parts.requests.cold_reads.loads == 0


def test_a_fetch_that_waited_for_data_loads_what_is_cold_too(cluster):
    disk = make_cold(cluster)
    waiting = cluster.fetch(1, TP, 1, wait_ms=10_000)
    cluster.loop.run_for(100)
    assert not waiting
    cluster.produced(TP, b"second")
    assert outcome(cluster.answer(waiting, limit_ms=100))[1] > 0
    assert disk.loads == 1


def test_only_so_many_loads_are_under_way_and_all_fetches_are_answered(cluster):
    make_cold(cluster)
    held: list[Callable[[], None]] = []
    cluster[1].loop.held = held
    fetches = [cluster.fetch(1, TP, 0) for _ in range(5)]
    cluster.loop.run_for(100)
    assert len(held) == LOADS_EACH
    cluster[1].loop.release()
    for answers in fetches:
        assert outcome(cluster.answer(answers))[1] > 0
    # The others found the bytes warm when their turn came.
    assert cluster[1].parts.requests.cold_reads.loads == LOADS_EACH


def test_another_principal_does_not_wait_for_the_loads_of_one(cluster):
    make_cold(cluster)
    held: list[Callable[[], None]] = []
    cluster[1].loop.held = held
    crowd = [cluster.fetch(1, TP, 0) for _ in range(20)]
    cluster.loop.run_for(100)
    cluster.network.principals[CLIENT] = Principal("other")
    other = cluster.fetch(1, TP, 0)
    cluster.loop.run_for(100)
    assert len(held) == LOADS_AT_ONCE == LOADS_EACH + 1
    work, cluster[1].loop.held = held[-1], None
    work()
    assert outcome(cluster.answer(other))[1] > 0
    cluster[1].loop.held = held[:-1]
    cluster[1].loop.release()
    for answers in crowd:
        assert outcome(cluster.answer(answers))[1] > 0


def test_what_is_evicted_again_and_again_is_sent_in_the_end(cluster):
    disk = make_cold(cluster)
    disk.stays_cold = True
    assert outcome(cluster.answer(cluster.fetch(1, TP, 0)))[1] > 0
    assert disk.loads == MOST_LOADS


def test_what_stays_cold_is_left_out_of_an_answer_that_has_other_bytes(cluster):
    disk = make_cold(cluster)
    disk.stays_cold = True
    wanted = [FetchPartition("t", tp.partition, 0, 1 << 20) for tp in (TP, OTHER)]
    request = FetchRequest(0, 1, 1 << 20, wanted)
    answer = cluster.answer(cluster.ask(1, FETCH, 11, request))
    assert [bool(partition.records) for partition in answer.partitions] == [False, True]
    assert not any(partition.error_code for partition in answer.partitions)


def test_what_is_left_out_for_its_search_was_cold_tells_its_offsets_all_the_same(cluster):
    """A follower takes them over: its high watermark must not fall back to its log start."""
    for _ in range(3):
        cluster.produced(TP, b"more")
    disk = make_cold(cluster)
    disk.stays_cold = True
    wanted = [FetchPartition("t", TP.partition, 2, 1 << 20), FetchPartition("t", 1, 0, 1 << 20)]
    answer = cluster.answer(cluster.ask(1, FETCH, 11, FetchRequest(0, 1, 1 << 20, wanted)))
    cold, warm = answer.partitions
    assert warm.records and not cold.records
    assert (cold.high_watermark, cold.last_stable_offset, cold.log_start_offset) == (4, 4, 0)


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_a_disk_that_fails_to_read_takes_its_log_dir_offline_and_no_other(cluster, error):
    disk = make_cold(cluster)
    cluster[1].loop.held = []
    cold = cluster.fetch(1, TP, 0)
    cluster.loop.run_for(100)
    disk.error = error
    disk.broken.add(folder_of(cluster, TP).parent)
    cluster[1].loop.release()
    assert outcome(cluster.answer(cold)) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert cluster[1].replicas.get(TP).role is Role.FAILED
    assert cluster[1].replicas.get(OTHER).role is Role.LEADER
    assert outcome(cluster.answer(cluster.fetch(1, OTHER, 0)))[1] > 0


def test_a_partition_that_ends_while_its_bytes_are_loaded_is_not_sent(cluster):
    make_cold(cluster)
    cluster[1].loop.held = []
    cold = cluster.fetch(1, TP, 0)
    cluster.loop.run_for(100)
    cluster[1].replicas.stop(TP, delete=True)
    cluster[1].loop.release()
    assert outcome(cluster.answer(cold)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)


def test_nothing_more_is_loaded_for_a_client_that_is_gone(cluster):
    make_cold(cluster)
    cluster[1].loop.held = []
    fetches = [cluster.fetch(1, TP, 0) for _ in range(LOADS_EACH + 3)]
    cluster.loop.run_for(100)
    cluster.network.reset(CLIENT, 1)
    cluster[1].loop.release()
    cluster.loop.run_for(100)
    assert all(isinstance(answer, TransportError) for (answer,) in fetches)
    assert cluster[1].parts.requests.cold_reads.loads == LOADS_EACH


def test_a_broker_killed_during_a_load_serves_the_bytes_after_its_restart(cluster):
    disk = make_cold(cluster)
    cluster[1].loop.held = []
    cold = cluster.fetch(1, TP, 0)
    cluster.loop.run_for(100)
    held = cluster[1].loop
    cluster[1].kill(session_ends_at_once=True)
    held.release()
    cluster.loop.run_for(100)
    assert all(not hasattr(answer, "partitions") for answer in cold)
    cluster[1].start()
    cluster.wait_in_sync(TP, 1)
    assert cluster.produced(TP, b"second") == 1
    assert outcome(cluster.answer(cluster.fetch(1, TP, 0)))[1] > 0
    assert disk.loads
