"""A full log dir: typed and retriable errors, and service again when there is room."""

from collections.abc import Iterator

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from simulation.world.requests import produce_request
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.core.errors import ErrorCode, LogFullError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.upkeep import Compaction
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.tests.broker.replicas.test_producer_appends import batch_of
from storage_engine.tests.broker.settings.settings_requests import DONE, SET, TOPIC, alter
from storage_engine.tests.broker.support import cluster_fixture, code_of, disk_of
from storage_engine.tests.log.support import read_all

TP = TopicPartition("t", 0)
COMPACTED = [TopicPartition("one", 0), TopicPartition("two", 0)]


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


@pytest.fixture
def compacted(tmp_path) -> Iterator[SimulatedCluster]:
    """One broker with two logs of which much can be compacted, and a cleaner that has not looked
    yet."""
    made = SimulatedCluster(
        tmp_path,
        1,
        disk=lambda _b: SimulatedDisk(tmp_path),
        default_replication_factor="1",
        log_cleaner_backoff_ms="5000",
        log_flush_offset_checkpoint_interval_ms="1000000",
    )
    config = {"segment_bytes": "2000", "min_cleanable_dirty_ratio": "0"}
    for tp in COMPACTED:
        assert made.create_topic(tp.topic, **config).error_code == 0
        made.loop.run_until(lambda tp=tp: made[1].replicas.get(tp) is not None)
        for number in range(40 if tp is COMPACTED[0] else 80):
            fill(made, tp, number)
    for tp in COMPACTED:
        assert made[1].replicas.get(tp).log.segment_count > 3
        made[1].replicas.get(tp).log.flush()
        policy = ("cleanup.policy", SET, "compact")
        assert alter(made, 1, TOPIC, tp.topic, policy) == DONE
    yield made
    made.close()


def fill(cluster: SimulatedCluster, tp: TopicPartition, number: int) -> None:
    batch = batch_of(b"%d" % number * 50, codec="none")
    request = produce_request(*tp, batch, acks=1)
    answer = cluster.answer(cluster.ask(1, PRODUCE, 8, request))
    assert code_of(answer) is ErrorCode.NONE


def test_a_full_disk_takes_no_compacted_log_offline(compacted):
    disk_of(compacted, 1).room[compacted[1].folder] = 0
    ends = {tp: compacted[1].logs.logs[tp].log_end_offset for tp in COMPACTED}
    compacted.loop.run_for(30_000)
    for tp in COMPACTED:
        assert compacted[1].replicas.get(tp).role is Role.LEADER
        assert len(read_all(compacted[1].logs.logs[tp])) == ends[tp]
    disk_of(compacted, 1).room.clear()
    compacted.loop.run_for(30_000)
    for tp in COMPACTED:
        assert len(read_all(compacted[1].logs.logs[tp])) < ends[tp]


def test_a_log_whose_passes_can_not_begin_keeps_no_other_from_its_own(compacted, monkeypatch):
    begin = Compaction.begin
    refused: list[TopicPartition] = []

    def begin_one(compaction: Compaction, plan, **options):
        topic_partition = compaction._log.topic_partition
        if not refused:
            refused.append(topic_partition)
        if topic_partition == refused[0]:
            raise LogFullError("no room for it")
        return begin(compaction, plan, **options)

    monkeypatch.setattr(Compaction, "begin", begin_one)
    ends = {tp: compacted[1].logs.logs[tp].log_end_offset for tp in COMPACTED}
    compacted.loop.run_for(30_000)
    (other,) = set(COMPACTED) - set(refused)
    assert len(read_all(compacted[1].logs.logs[other])) < ends[other]
    # It is tried again when the others are done.
    monkeypatch.setattr(Compaction, "begin", begin)
    compacted.loop.run_for(30_000)
    assert len(read_all(compacted[1].logs.logs[refused[0]])) < ends[refused[0]]
