"""Brokers that are out of descriptors for some seconds: clients are refused retriably, no replica
and no log dir goes offline, and all is served once descriptors are back."""

import random
from collections.abc import Iterator

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import code_of, disk_of

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
