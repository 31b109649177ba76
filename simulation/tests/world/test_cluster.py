"""A simulated cluster as tests and workloads use it."""

import errno

import pytest

from storage_engine.core.ids import TopicPartition

TP = TopicPartition("t", 0)


def test_what_is_produced_with_retries_is_acknowledged_by_the_next_leader(cluster):
    leader = cluster.state(TP).leader
    cluster[leader].kill(session_ends_at_once=True)
    assert cluster.produced(TP, b"second") == 1
    assert cluster.state(TP).leader != leader
    (answer,) = cluster.answer(cluster.fetch(cluster.state(TP).leader, TP, 1)).partitions
    assert b"second" in bytes(answer.records)


def test_another_controller_is_found_after_the_first_is_gone(cluster):
    first = cluster.controller
    assert first is not None
    first.kill(session_ends_at_once=True)
    nobody = cluster.controller
    assert nobody is None
    assert cluster.create_topic("another", 2).error_code == 0
    second = cluster.controller
    assert second is not None and second is not first
    assert cluster.topic_id("another") != cluster.topic_id("t")


def test_waiting_for_what_does_not_come_ends_at_the_limit(cluster):
    for broker in (1, 2, 3):
        cluster[broker].pause()
    with pytest.raises(AssertionError):
        cluster.answer(cluster.produce(cluster.state(TP).leader, TP, b"x"), limit_ms=1_000)


def test_files_of_failed_folders_can_be_read_within_the_block_alone(cluster):
    disk = cluster[1].disk
    (folder,) = cluster[1].config.log_dirs
    disk.broken = {folder}
    with cluster.seen_whole():
        assert disk.list_names(folder)
    with pytest.raises(OSError) as caught:
        disk.list_names(folder)
    assert caught.value.errno == errno.EIO
