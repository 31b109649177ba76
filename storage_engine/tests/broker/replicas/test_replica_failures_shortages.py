"""A shortage of descriptors or of room lasts for some seconds: clients are refused retriably, no
replica and no log dir goes offline, leadership is postponed, and all is served once the shortage is
over (R-CTL3, R-LOG8)."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.broker import unexpected
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.core.errors import ErrorCode, LogShortageError, LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture, code_of, disk_of

TP = TopicPartition("t", 0)
EVER = 1 << 40


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    made = SimulatedCluster(
        tmp_path,
        disk=lambda _b: SimulatedDisk(tmp_path),
        log_retention_check_interval_ms="1000",
        log_flush_interval_ms="500",
        log_flush_offset_checkpoint_interval_ms="1000",
        log_cleaner_backoff_ms="1000",
    )
    assert made.create_topic("t", segment_bytes="2000", retention_ms="-1").error_code == 0
    made.wait_in_sync(TP, 1, 2, 3)
    yield made
    for broker in made.brokers:
        disk_of(made, broker.id).short_at = range(0)
    made.close()


def shorten(cluster: SimulatedCluster, *brokers: int) -> None:
    for broker in brokers:
        disk_of(cluster, broker).short_at = range(EVER)


def relieve(cluster: SimulatedCluster, *brokers: int) -> None:
    for broker in brokers:
        disk_of(cluster, broker).short_at = range(0)


def check_sound(cluster: SimulatedCluster, *partitions: TopicPartition) -> None:
    for tp in partitions:
        cluster.wait_in_sync(tp, *(b.id for b in cluster.brokers if b.serving))
    for broker in cluster.brokers:
        if broker.serving:
            assert len(broker.logs.dirs.working_paths) == 1
            for tp in partitions:
                hosted = broker.replicas.get(tp)
                assert hosted is not None and hosted.role is not Role.FAILED


def test_a_roll_without_descriptors_is_refused_retriably_and_goes_well_later(cluster):
    for number in range(3):
        cluster.produced(TP, bytes(600) + b"%d" % number)
    leader = cluster.state(TP).leader
    shorten(cluster, 1, 2, 3)
    answer = cluster.answer(cluster.produce(leader, TP, bytes(1500)))
    assert code_of(answer) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(answer).retriable
    # Flushes, checkpoints, retention and compaction come up meanwhile.
    cluster.loop.run_for(15_000)
    assert cluster.state(TP).leader == leader
    relieve(cluster, 1, 2, 3)
    assert cluster.produced(TP, bytes(1500)) == 3
    check_sound(cluster, TP)


def test_a_topic_made_without_descriptors_is_served_once_they_are_back(cluster):
    tp = TopicPartition("made", 0)
    shorten(cluster, 1, 2, 3)
    cluster.create_topic("made")
    cluster.loop.run_for(3000)
    relieve(cluster, 1, 2, 3)
    assert cluster.produced(tp, b"record") == 0
    check_sound(cluster, TP, tp)


def test_a_topic_deleted_without_descriptors_leaves_no_file_and_can_be_made_anew(cluster, tmp_path):
    cluster.produced(TP, b"of the old topic")
    shorten(cluster, 1, 2, 3)
    cluster.delete_topic("t")
    cluster.loop.run_for(3000)
    relieve(cluster, 1, 2, 3)
    cluster.loop.run_for(5000)
    for broker in cluster.brokers:
        assert not [n for n in disk_of(cluster, broker.id).list_names(broker.folder) if "t-0" in n]
    assert cluster.create_topic("t").error_code == 0
    assert cluster.produced(TP, b"of the new topic") == 0
    check_sound(cluster, TP)


def test_a_replica_that_must_truncate_without_descriptors_does_so_later(cluster):
    """It led, wrote what nobody else has, and comes back as a follower."""
    for number in range(6):
        cluster.produced(TP, bytes(900) + b"%d" % number)
    old = cluster.state(TP).leader
    others = [b for b in (1, 2, 3) if b != old]
    for other in others:
        cluster[other].pause()
    for number in range(6):
        cluster.produce(old, TP, bytes(900) + b"lost %d" % number, acks=1)
    cluster.loop.run_for(100)
    assert cluster[old].replicas.get(TP).log.log_end_offset == 12
    cluster[old].kill(session_ends_at_once=True)
    for other in others:
        cluster[other].resume()
    cluster.loop.run_until(lambda: cluster.state(TP).leader in others)
    assert cluster.produced(TP, b"new") == 6
    cluster[old].start()
    # The log is open when its broker has joined; each further call of the truncation fails once.
    disk = disk_of(cluster, old)
    chance = random.Random(7)

    def upset() -> None:
        disk.short_at = range(disk.opens + chance.randint(1, 4), EVER)
        cluster.loop.call_later(700, calm)

    def calm() -> None:
        disk.short_at = range(0)
        cluster.loop.call_later(30, upset)

    upset()
    cluster.loop.run_for(20_000)
    disk.short_at = range(0)
    check_sound(cluster, TP)
    assert cluster.produced(TP, b"newer") == 7
    cluster.wait_in_sync(TP, 1, 2, 3)
    assert cluster[old].replicas.get(TP).log.log_end_offset == 8


@pytest.mark.parametrize("seed", range(3))
def test_shortages_at_random_lose_nothing_acknowledged(cluster, seed):
    """For any time at any broker, while records come, leaders change and old ones go."""
    chance = random.Random(seed)
    acknowledged: dict[int, bytes] = {}
    for number in range(40):
        broker = chance.randint(1, 3)
        disk = disk_of(cluster, broker)
        first = disk.opens + chance.randint(1, 12)
        disk.short_at = range(first, first + chance.choice([1, 2, 5, 40]))
        payload = bytes(chance.choice([10, 700])) + b"%d" % number
        acknowledged[cluster.produced(TP, payload)] = payload
        if number % 10 == 9:
            relieve(cluster, 1, 2, 3)
            cluster.wait_in_sync(TP, 1, 2, 3)
            old = cluster.state(TP).leader
            cluster[old].kill(session_ends_at_once=True)
            cluster.loop.run_until(lambda old=old: cluster.state(TP).leader not in (-1, old))
            disk_of(cluster, old).short_at = range(0)
            cluster[old].start()
        cluster.loop.run_for(chance.choice([10, 1000]))
    relieve(cluster, 1, 2, 3)
    check_sound(cluster, TP)
    leader = cluster[cluster.state(TP).leader].replicas.get(TP).log
    for offset, payload in acknowledged.items():
        found = leader.reads.read(offset, max_bytes=1)
        assert found is not None and payload in bytes(found.view())


with_record = cluster_fixture("t", has_record=True, simulated_disk=True)


def test_a_full_leader_refuses_retriably_leads_on_and_takes_records_again(with_record):
    leader = with_record.state(TP).leader
    folder = with_record[leader].folder
    disk_of(with_record, leader).free[folder] = 10 << 20
    with_record.loop.run_for(1100)
    answer = with_record.answer(with_record.produce(leader, TP, b"refused"))
    assert code_of(answer) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(answer).retriable
    assert "log.dir.min.free.bytes" in answer.partitions[0].error_message
    assert b"first" in bytes(
        with_record.answer(with_record.fetch(leader, TP, 0)).partitions[0].records
    )
    with_record.loop.run_for(20_000)
    assert with_record.state(TP).leader == leader
    disk_of(with_record, leader).free[folder] = 1 << 30
    assert with_record.produced(TP, b"second") == 1


def test_a_full_follower_pauses_leaves_the_isr_and_returns_when_there_is_room(with_record):
    leader = with_record.state(TP).leader
    follower = next(b for b in (1, 2, 3) if b != leader)
    folder = with_record[follower].folder
    disk_of(with_record, follower).free[folder] = 10 << 20
    with_record.loop.run_for(1100)
    answers = with_record.produce(leader, TP, b"second")
    with_record.wait_in_sync(TP, *({1, 2, 3} - {follower}))
    assert code_of(with_record.answer(answers)) is ErrorCode.NONE
    assert with_record[follower].replicas.get(TP).role is Role.FOLLOWER
    del disk_of(with_record, follower).free[folder]
    with_record.wait_in_sync(TP, 1, 2, 3)


@pytest.mark.parametrize("room", [0, 1, 70])
def test_a_full_disk_that_is_met_all_the_same_fails_nothing(with_record, room):
    """Somebody else took the last of the room between the look and the write."""
    leader = with_record.state(TP).leader
    disk_of(with_record, leader).room[with_record[leader].folder] = room
    answer = with_record.answer(with_record.produce(leader, TP, bytes(100)))
    assert code_of(answer) is ErrorCode.KAFKA_STORAGE_ERROR
    assert with_record[leader].replicas.get(TP).role is Role.LEADER
    with_record.loop.run_for(20_000)
    disk_of(with_record, leader).room.clear()
    assert with_record.produced(TP, b"second") == 1
    with_record.wait_in_sync(TP, 1, 2, 3)


def test_a_leader_may_be_elected_onto_a_full_disk(with_record):
    for broker in (1, 2, 3):
        disk_of(with_record, broker).room[with_record[broker].folder] = 0
    before = with_record.state(TP)
    with_record[before.leader].kill()
    with_record.loop.run_until(lambda: with_record.state(TP).leader not in (-1, before.leader))
    leader = with_record.state(TP).leader
    with_record.loop.run_for(100)
    answer = with_record.answer(with_record.produce(leader, TP, b"refused"))
    assert code_of(answer) is ErrorCode.KAFKA_STORAGE_ERROR
    for broker in (1, 2, 3):
        disk_of(with_record, broker).room.clear()
    assert with_record.produced(TP, b"second") == 1
    with_record[before.leader].start()
    with_record.wait_in_sync(TP, 1, 2, 3)


PARTITIONS = [TopicPartition("made", number) for number in range(4)]


class OurBugError(Exception):
    """Nothing that the program knows of."""


two_brokers = cluster_fixture(
    brokers=2, default_replication_factor="2", auto_leader_rebalance_enable="false"
)


def make_topic(two_brokers: SimulatedCluster) -> None:
    assert two_brokers.create_topic("made", partitions=len(PARTITIONS)).error_code == 0
    assert {two_brokers.state(tp).leader for tp in PARTITIONS} == {1, 2}


def test_another_broker_leads_what_could_not_be_opened_at_the_second_try(two_brokers, monkeypatch):
    first = two_brokers[1].logs
    get_or_create = first.get_or_create
    tries: dict[TopicPartition, int] = {}

    def refuse(tp: TopicPartition, *args: Any, **options: Any) -> Any:
        if tp not in PARTITIONS:
            return get_or_create(tp, *args, **options)
        tries[tp] = tries.get(tp, 0) + 1
        if tries[tp] == 1:
            raise LogShortageError("no descriptors")
        raise LogStorageError("not a directory")

    monkeypatch.setattr(first, "get_or_create", refuse)
    make_topic(two_brokers)
    two_brokers.loop.run_until(
        lambda: {two_brokers.state(tp).leader for tp in PARTITIONS} == {2}, limit_ms=10_000
    )
    for tp in PARTITIONS:
        assert two_brokers.produced(tp, b"record") == 0


def test_an_exception_in_one_order_keeps_no_other_from_being_carried_out(
    two_brokers, monkeypatch, caplog
):
    monkeypatch.setattr(unexpected, "is_fatal", False)
    replicas = two_brokers[1].replicas
    hosted = replicas._open
    tries: dict[TopicPartition, int] = {}

    def fail_once(tp: TopicPartition, item: Any) -> Any:
        if tp in PARTITIONS:
            tries[tp] = tries.get(tp, 0) + 1
            if tries[tp] == 1:
                raise LogShortageError("no descriptors")
            if tp == min(tries) and tries[tp] == 2:
                raise OurBugError("of the test")
        return hosted(tp, item)

    monkeypatch.setattr(replicas, "_open", fail_once)
    make_topic(two_brokers)
    two_brokers.loop.run_until(
        lambda: all(replicas.get(tp) is not None for tp in PARTITIONS), limit_ms=10_000
    )
    traced = [each for each in caplog.records if each.exc_info and each.exc_info[0] is OurBugError]
    assert len(traced) == 1
    for tp in PARTITIONS:
        leader = two_brokers.state(tp).leader
        assert replicas.get(tp).role is (Role.LEADER if leader == 1 else Role.FOLLOWER)
        # What is followed is fetched.
        assert two_brokers.produced(tp, b"record") == 0
        two_brokers.wait_in_sync(tp, 1, 2)
