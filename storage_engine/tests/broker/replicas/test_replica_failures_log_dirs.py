"""A log dir that fails takes its replicas offline and no others; other brokers lead them
(KIP-112)."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.core.errors import ErrorCode, LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import disk_of, log_dir_of

PARTITIONS = [TopicPartition("t", p) for p in range(4)]


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    """Four partitions of three replicas in two log dirs per broker, two in each."""
    made = SimulatedCluster(tmp_path, disk=lambda _b: SimulatedDisk(tmp_path), log_dirs=2)
    assert made.create_topic("t", partitions=4).error_code == 0
    for tp in PARTITIONS:
        made.produced(tp, b"first")
        made.wait_in_sync(tp, 1, 2, 3)
    yield made
    for broker in made.brokers:
        disk_of(made, broker.id).broken.clear()
    made.close()


def in_log_dir(cluster: SimulatedCluster, broker: int, log_dir: Path) -> list[TopicPartition]:
    return [tp for tp in PARTITIONS if log_dir_of(cluster, broker, tp) == log_dir]


def break_log_dir(cluster: SimulatedCluster, broker: int) -> tuple[list[TopicPartition], Path]:
    """Break the log dir of a partition that the broker leads, which notices by an append. Returns
    the partitions in it, and the log dir."""
    led = next(tp for tp in PARTITIONS if cluster.state(tp).leader == broker)
    log_dir = log_dir_of(cluster, broker, led)
    disk_of(cluster, broker).broken.add(log_dir)
    answer = cluster.answer(cluster.produce(broker, led, b"refused"))
    assert ErrorCode.of(answer.partitions[0].error_code) is ErrorCode.KAFKA_STORAGE_ERROR
    return in_log_dir(cluster, broker, log_dir), log_dir


def test_other_brokers_lead_what_was_in_the_log_dir_and_nothing_else_moves(cluster):
    before = {tp: cluster.state(tp) for tp in PARTITIONS}
    failed, _ = break_log_dir(cluster, 1)
    assert 0 < len(failed) < len(PARTITIONS)
    for tp in failed:
        cluster.wait_in_sync(tp, 2, 3, limit_ms=2000)
        assert cluster.state(tp).leader in (2, 3)
        assert cluster.produced(tp, b"second") == 1
    for tp in set(PARTITIONS) - set(failed):
        assert cluster.state(tp) == before[tp]
        assert cluster[1].replicas.get(tp).role is not Role.FAILED
        assert cluster.produced(tp, b"second") == 1


def test_the_failed_replicas_are_told_to_clients_as_offline(cluster):
    failed, _ = break_log_dir(cluster, 1)
    cluster.loop.run_for(2000)
    for broker in cluster.brokers:
        for tp in PARTITIONS:
            info = broker.metadata.partitions("t")[tp.partition]
            assert tuple(info.offline_replicas) == ((1,) if tp in failed else ())


def test_after_the_repair_and_a_restart_the_replicas_return(cluster):
    failed, log_dir = break_log_dir(cluster, 1)
    for tp in failed:
        cluster.wait_in_sync(tp, 2, 3)
        cluster.produced(tp, b"second")
    cluster[1].kill()
    disk_of(cluster, 1).broken.clear()
    cluster[1].start()
    for tp in failed:
        cluster.wait_in_sync(tp, 1, 2, 3)
        assert log_dir_of(cluster, 1, tp) == log_dir
        assert cluster[1].logs.logs[tp].log_end_offset == 2


def test_a_broker_starts_without_the_log_dir_that_fails_and_makes_no_empty_replicas(cluster):
    failed, log_dir = break_log_dir(cluster, 1)
    cluster[1].kill()
    cluster[1].start()
    assert cluster[1].logs.dirs.working_paths == [
        path for path in cluster[1].config.log_dirs if path != log_dir
    ]
    for tp in set(PARTITIONS) - set(failed):
        cluster.wait_in_sync(tp, 1, 2, 3)
    cluster.loop.run_for(20_000)
    for tp in failed:
        assert set(cluster.state(tp).isr) == {2, 3}
        assert tp not in cluster[1].logs.logs


def test_the_only_replica_in_sync_is_not_replaced_by_an_empty_one(cluster):
    """All others were away: without its log dir the partition has no leader, and loses nothing."""
    cluster[2].kill()
    cluster[3].kill()
    for tp in PARTITIONS:
        cluster.wait_in_sync(tp, 1)
        cluster.produced(tp, b"only here")
    failed, _ = break_log_dir(cluster, 1)
    cluster[2].start()
    cluster[3].start()
    cluster[1].kill()
    cluster[1].start()
    cluster.loop.run_for(20_000)
    for tp in failed:
        assert (cluster.state(tp).leader, set(cluster.state(tp).isr)) == (-1, {1})
    cluster[1].kill()
    disk_of(cluster, 1).broken.clear()
    cluster[1].start()
    for tp in failed:
        cluster.wait_in_sync(tp, 1, 2, 3)
        assert cluster.produced(tp, b"third") == 2


def test_a_new_controller_learns_what_failed(cluster):
    controller = cluster.controller
    assert controller is not None
    broken, other = (b for b in (1, 2, 3) if b != controller.id)
    failed, _ = break_log_dir(cluster, broken)
    for tp in failed:
        cluster.wait_in_sync(tp, controller.id, other)
    controller.kill()
    for tp in failed:
        cluster.wait_in_sync(tp, other)
        assert cluster.state(tp).leader == other
        assert cluster.produced(tp, b"second") == 1


def test_a_failed_fsync_is_never_tried_again(cluster):
    """ENOSPC at fsync means lost pages, not a lack of room: the log dir is out."""
    disk = disk_of(cluster, 2)
    led = next(tp for tp in PARTITIONS if cluster.state(tp).leader == 2)
    log_dir = log_dir_of(cluster, 2, led)
    disk.error = errno.ENOSPC
    disk.broken_syncs.add(log_dir)
    partition = cluster[2].replicas.get(led)
    cluster[2].replicas.durable_acks.flush(partition)
    failed = in_log_dir(cluster, 2, log_dir)
    for tp in failed:
        cluster.wait_in_sync(tp, 1, 3, limit_ms=2000)
    assert [path.parent for path in disk.refused_syncs] == [partition.log.directory]
    # Longer than any interval of flushes and checkpoints.
    cluster.loop.run_for(150_000)
    cluster[2].replicas.durable_acks.flush(partition)
    cluster.loop.run_for(1_000)
    assert len(disk.refused_syncs) == 1


def test_what_a_failed_fsync_has_lost_is_written_anew_after_a_restart(cluster):
    """The record is acknowledged, the replica whose fsync failed is restarted and becomes the only
    one in sync: it has the record, also when its machine has lost its power."""
    disk = disk_of(cluster, 2)
    tp = next(tp for tp in PARTITIONS if cluster.state(tp).leader == 1)
    disk.broken_syncs.add(log_dir_of(cluster, 2, tp))
    cluster[2].replicas.durable_acks.flush(cluster[2].replicas.get(tp))
    assert cluster.produced(tp, b"second") == 1
    cluster.wait_in_sync(tp, 1, 3)
    disk.broken_syncs.clear()
    cluster[2].kill(session_ends_at_once=True)
    cluster[2].start()
    cluster.wait_in_sync(tp, 1, 2, 3)
    cluster[2].logs.logs[tp].flush()
    for other in (1, 3):
        cluster[other].kill()
    cluster.wait_in_sync(tp, 2)
    cluster[2].lose_machine()
    disk.lose_power()
    cluster[2].start()
    cluster.loop.run_until(lambda: cluster.state(tp).leader == 2)
    assert cluster[2].logs.logs[tp].log_end_offset == 2


def test_a_damaged_file_takes_only_its_own_partition_offline(cluster):
    led = next(tp for tp in PARTITIONS if cluster.state(tp).leader == 1)
    replicas = cluster[1].replicas
    replicas.get(led).fail(LogStorageError("the file is too short"))
    cluster.loop.run_for(2000)
    assert cluster.state(led).leader != 1
    for tp in PARTITIONS:
        assert (replicas.get(tp).role is Role.FAILED) == (tp == led)


def test_a_topic_is_deleted_once_its_failed_replica_is_back(cluster):
    failed, log_dir = break_log_dir(cluster, 1)
    cluster.loop.run_for(2000)
    cluster.delete_topic("t", timeout_ms=100)
    cluster.loop.run_for(20_000)
    assert cluster.zookeeper.data("/brokers/topics/t") is not None
    cluster[1].kill()
    disk_of(cluster, 1).broken.clear()
    cluster[1].start()
    cluster.loop.run_until(lambda: cluster.zookeeper.data("/brokers/topics/t") is None)
    for tp in failed:
        assert not (log_dir / str(tp)).exists()


def test_new_topics_go_to_the_log_dirs_that_work(cluster):
    _, log_dir = break_log_dir(cluster, 1)
    cluster.loop.run_for(2000)
    cluster.create_topic("new")
    new = TopicPartition("new", 0)
    cluster.produced(new, b"first")
    cluster.wait_in_sync(new, 1, 2, 3)
    assert log_dir_of(cluster, 1, new) != log_dir


def test_a_notice_that_zookeeper_did_not_answer_is_repeated(cluster):
    cluster[1].session.lose_answers = 2
    failed, _ = break_log_dir(cluster, 1)
    for tp in failed:
        cluster.wait_in_sync(tp, 2, 3)
