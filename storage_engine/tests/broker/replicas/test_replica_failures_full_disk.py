"""A full log dir: typed and retriable errors, and service again when there is room."""

import pytest

from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture, code_of, disk_of

TP = TopicPartition("t", 0)


cluster = cluster_fixture("t", has_record=True, simulated_disk=True)


def test_a_full_leader_refuses_retriably_leads_on_and_takes_records_again(cluster):
    leader = cluster.state(TP).leader
    folder = cluster[leader].folder
    disk_of(cluster, leader).free[folder] = 10 << 20
    cluster.loop.run_for(1100)
    answer = cluster.answer(cluster.produce(leader, TP, b"refused"))
    assert code_of(answer) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(answer).retriable
    assert "log.dir.min.free.bytes" in answer.partitions[0].error_message
    assert b"first" in bytes(cluster.answer(cluster.fetch(leader, TP, 0)).partitions[0].records)
    cluster.loop.run_for(20_000)
    assert cluster.state(TP).leader == leader
    disk_of(cluster, leader).free[folder] = 1 << 30
    assert cluster.produced(TP, b"second") == 1


def test_a_full_follower_pauses_leaves_the_isr_and_returns_when_there_is_room(cluster):
    leader = cluster.state(TP).leader
    follower = next(b for b in (1, 2, 3) if b != leader)
    folder = cluster[follower].folder
    disk_of(cluster, follower).free[folder] = 10 << 20
    cluster.loop.run_for(1100)
    answers = cluster.produce(leader, TP, b"second")
    cluster.wait_in_sync(TP, *({1, 2, 3} - {follower}))
    assert code_of(cluster.answer(answers)) is ErrorCode.NONE
    assert cluster[follower].replicas.get(TP).role is Role.FOLLOWER
    del disk_of(cluster, follower).free[folder]
    cluster.wait_in_sync(TP, 1, 2, 3)


@pytest.mark.parametrize("room", [0, 1, 70])
def test_a_full_disk_that_is_met_all_the_same_fails_nothing(cluster, room):
    """Somebody else took the last of the room between the look and the write."""
    leader = cluster.state(TP).leader
    disk_of(cluster, leader).room[cluster[leader].folder] = room
    answer = cluster.answer(cluster.produce(leader, TP, bytes(100)))
    assert code_of(answer) is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster[leader].replicas.get(TP).role is Role.LEADER
    cluster.loop.run_for(20_000)
    disk_of(cluster, leader).room.clear()
    assert cluster.produced(TP, b"second") == 1
    cluster.wait_in_sync(TP, 1, 2, 3)


def test_a_leader_may_be_elected_onto_a_full_disk(cluster):
    for broker in (1, 2, 3):
        disk_of(cluster, broker).room[cluster[broker].folder] = 0
    before = cluster.state(TP)
    cluster[before.leader].kill()
    cluster.loop.run_until(lambda: cluster.state(TP).leader not in (-1, before.leader))
    leader = cluster.state(TP).leader
    cluster.loop.run_for(100)
    answer = cluster.answer(cluster.produce(leader, TP, b"refused"))
    assert code_of(answer) is ErrorCode.KAFKA_STORAGE_ERROR
    for broker in (1, 2, 3):
        disk_of(cluster, broker).room.clear()
    assert cluster.produced(TP, b"second") == 1
    cluster[before.leader].start()
    cluster.wait_in_sync(TP, 1, 2, 3)
