"""AlterReplicaLogDirs: replicas move between the log dirs of a broker while they are used
(KIP-113)."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from simulation.world.requests import make_batch, produce_request
from storage_engine.broker.replicas import replica_moves
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.core.errors import ErrorCode, LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.messages import alter_replica_log_dirs, describe_log_dirs
from storage_engine.tests.broker.settings.settings_requests import BROKER, DONE, SET, alter
from storage_engine.tests.broker.support import disk_of, log_dir_of
from storage_engine.tests.log.support import read_all
from storage_engine.tests.sampling import every_second

TP = TopicPartition("t", 0)
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Iterator[SimulatedCluster]:
    monkeypatch.setattr(replica_moves, "PIECE_BYTES", 2000)
    made = SimulatedCluster(
        tmp_path,
        2,
        log_dirs=2,
        disk=lambda _b: SimulatedDisk(tmp_path),
        default_replication_factor="2",
    )
    assert made.create_topic("t", segment_bytes="4000").error_code == 0
    made.produced_when_there(TP, b"first")
    made.wait_in_sync(TP, 1, 2)
    yield made
    for broker in (1, 2):
        disk_of(made, broker).broken.clear()
    made.close()


def other(cluster, broker: int) -> Path:
    here = log_dir_of(cluster, broker, TP)
    return next(path for path in cluster[broker].config.log_dirs if path != here)


def ask(cluster, broker: int, path: Path, *partitions: TopicPartition) -> list[ErrorCode]:
    row = alter_replica_log_dirs.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topics = [
        row.AlterReplicaLogDirTopic(name=tp.topic, partitions=[tp.partition]) for tp in partitions
    ]
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        dirs=[row(path=str(path), topics=topics)]
    )
    answer = cluster.answer(cluster.ask(broker, alter_replica_log_dirs.API, 2, request))
    return [ErrorCode.of(item.error_code) for topic in answer.results for item in topic.partitions]


def described(cluster, broker: int) -> dict[tuple[Path, bool], tuple[int, int]]:
    """(log dir, is future) -> (size, lag) of the replica."""
    request = describe_log_dirs.DescribeLogDirsRequest(topics=None)
    answer = cluster.answer(cluster.ask(broker, describe_log_dirs.API, 2, request))
    return {
        (Path(log_dir.log_dir), row.is_future_key): (row.partition_size, row.offset_lag)
        for log_dir in answer.results
        for topic in log_dir.topics
        for row in topic.partitions
    }


def fill(cluster, count: int) -> None:
    for number in range(count):
        cluster.produced(TP, b"%d" % number * 100)


def slow(cluster, broker: int, rate: int = 2000) -> None:
    assert alter(cluster, broker, BROKER, str(broker), (RATE, SET, str(rate))) == DONE
    cluster.loop.run_for(100)


def moved(cluster, broker: int, path: Path) -> None:
    cluster.loop.run_until(lambda: log_dir_of(cluster, broker, TP) == path, limit_ms=300_000)


def names(cluster, broker: int) -> list[str]:
    disk = disk_of(cluster, broker)
    return [
        name
        for log_dir in cluster[broker].config.log_dirs
        for name in disk.list_names(log_dir)
        if name.startswith("t-0")
    ]


def same_everywhere(cluster) -> list[int]:
    """Base offsets on all brokers, which must agree."""
    cluster.wait_in_sync(TP, 1, 2, limit_ms=120_000)
    ends = {b.logs.logs[TP].log_end_offset for b in cluster.brokers}
    cluster.loop.run_until(
        lambda: len({b.logs.logs[TP].log_end_offset for b in cluster.brokers}) == 1
    )
    assert ends
    first, second = (
        [header._replace(partition_leader_epoch=0) for header in read_all(b.logs.logs[TP])]
        for b in cluster.brokers
    )
    assert first == second
    return [header.base_offset for header in first]


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_replica_moves_under_load_and_has_every_record(cluster, role):
    fill(cluster, 30)
    leader = cluster.state(TP).leader
    broker = leader if role == "leader" else 3 - leader
    target = other(cluster, broker)
    slow(cluster, broker)
    assert ask(cluster, broker, target, TP) == [ErrorCode.NONE]
    cluster.loop.run_for(1500)
    lag = described(cluster, broker)[target, True][1]
    assert lag > 0 and log_dir_of(cluster, broker, TP) != target
    slow(cluster, broker, 1 << 40)
    last = 30
    while log_dir_of(cluster, broker, TP) != target:
        last = cluster.produced(TP, b"under way")
    assert described(cluster, broker).keys() == {(target, False)}
    assert names(cluster, broker) == ["t-0"]
    began_ms = cluster.loop.now_ms
    after = cluster.produced(TP, b"after")
    # The follower goes on fetching: nobody waits until it counts as lagging.
    assert cluster.loop.now_ms - began_ms < 1000
    assert after == last + 1 and cluster.state(TP).leader == leader
    assert same_everywhere(cluster) == list(range(after + 1))


@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("after_ms", every_second([0, 1, 2, 3, 5, 8, 13, 21]))
def test_a_broker_killed_while_a_replica_moves_goes_on_with_it(cluster, role, after_ms):
    fill(cluster, 30)
    leader = cluster.state(TP).leader
    broker = leader if role == "leader" else 3 - leader
    target = other(cluster, broker)
    assert ask(cluster, broker, target, TP) == [ErrorCode.NONE]
    pending = [cluster.produce(leader, TP, b"%d" % n) for n in range(5)]
    cluster.loop.run_for(after_ms)
    cluster[broker].kill(session_ends_at_once=True)
    disk_of(cluster, broker).kill_process()
    cluster[broker].start()
    told = [
        row.base_offset
        for each in pending
        if each and hasattr(each[0], "partitions")
        for row in each[0].partitions
        if not row.error_code
    ]
    last = cluster.produced(TP, b"after")
    cluster.wait_in_sync(TP, 1, 2, limit_ms=120_000)
    moved(cluster, broker, target)
    assert all(offset < last for offset in told) and len(set(told)) == len(told)
    assert same_everywhere(cluster) == list(range(last + 1))
    assert names(cluster, broker) == ["t-0"]


def test_a_produce_that_waits_for_the_followers_is_answered_across_the_move(cluster):
    broker = cluster.state(TP).leader
    cluster[3 - broker].parts.replicas.fetchers.close()
    request = produce_request(*TP, make_batch(producer=(7, 0, 0)), acks=-1)
    waiting = cluster.ask(broker, PRODUCE, 8, request)
    target = other(cluster, broker)
    cluster.loop.run_for(5)
    assert ask(cluster, broker, target, TP) == [ErrorCode.NONE]
    moved(cluster, broker, target)
    assert not waiting
    cluster.loop.run_until(lambda: bool(waiting), limit_ms=120_000)
    assert waiting[0].partitions[0].error_code == 0
    again = cluster.answer(cluster.ask(broker, PRODUCE, 8, request))
    assert again.partitions[0].base_offset == waiting[0].partitions[0].base_offset


def test_asking_for_the_present_log_dir_takes_the_move_back(cluster):
    fill(cluster, 30)
    here, target = log_dir_of(cluster, 1, TP), other(cluster, 1)
    slow(cluster, 1)
    assert ask(cluster, 1, target, TP) == [ErrorCode.NONE]
    cluster.loop.run_for(1000)
    assert ask(cluster, 1, here, TP) == [ErrorCode.NONE]
    cluster.loop.run_for(60_000)
    assert log_dir_of(cluster, 1, TP) == here and names(cluster, 1) == ["t-0"]


def test_what_can_not_be_moved_is_told(cluster, tmp_path):
    assert ask(cluster, 1, tmp_path / "nowhere", TP) == [ErrorCode.LOG_DIR_NOT_FOUND]
    row = alter_replica_log_dirs.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = row.AlterReplicaLogDirTopic(name="t", partitions=[0, 0])
    twice = alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        dirs=[row(path=str(other(cluster, 1)), topics=[topic])]
    )
    answer = cluster.answer(cluster.ask(1, alter_replica_log_dirs.API, 1, twice))
    assert [i.error_code for i in answer.results[0].partitions] == [42]


def test_a_replica_that_is_made_later_is_made_where_it_is_wanted(cluster):
    wanted = TopicPartition("later", 0)
    for path in cluster[1].config.log_dirs:
        assert ask(cluster, 1, path, wanted) == [ErrorCode.REPLICA_NOT_AVAILABLE]
        assert cluster.create_topic("later").error_code == 0
        cluster.loop.run_until(lambda: wanted in cluster[1].logs.logs)
        assert cluster[1].logs.logs[wanted].directory.parent == path
        cluster.answer(cluster.delete_topic("later"))
        cluster.loop.run_until(lambda: wanted not in cluster[1].logs.logs)


def test_a_topic_deleted_while_it_moves_leaves_nothing(cluster):
    fill(cluster, 30)
    slow(cluster, 1)
    assert ask(cluster, 1, other(cluster, 1), TP) == [ErrorCode.NONE]
    cluster.loop.run_for(1000)
    cluster.answer(cluster.delete_topic("t"))
    cluster.loop.run_for(10_000)
    assert names(cluster, 1) == [] and not cluster[1].logs.moves.under_way


@pytest.mark.parametrize("where", ["source", "target"])
def test_a_log_dir_that_fails_meanwhile_takes_nothing_else_with_it(cluster, where):
    fill(cluster, 30)
    broker = cluster.state(TP).leader
    source, target = log_dir_of(cluster, broker, TP), other(cluster, broker)
    slow(cluster, broker)
    assert ask(cluster, broker, target, TP) == [ErrorCode.NONE]
    cluster.loop.run_for(1500)
    disk_of(cluster, broker).broken.add(source if where == "source" else target)
    cluster.loop.run_for(30_000)
    if where == "target":
        assert cluster[broker].logs.dirs.working_paths == [source]
        assert cluster.state(TP).leader == broker
    last = cluster.produced(TP, b"after")
    assert last == 31 and not cluster[broker].logs.moves.under_way
    # After the repair the move goes on.
    disk_of(cluster, broker).broken.clear()
    cluster[broker].kill(session_ends_at_once=True)
    disk_of(cluster, broker).kill_process()
    cluster[broker].start()
    cluster.wait_in_sync(TP, 1, 2, limit_ms=120_000)
    moved(cluster, broker, target)
    assert same_everywhere(cluster) == list(range(last + 1))


def refused(code: int) -> Callable[..., None]:
    def load(*_: object) -> None:
        raise OSError(code, "refused")

    return load


@pytest.fixture
def turns(monkeypatch) -> list[int]:
    """One for each turn of a move; the test ends when they are too many."""
    made: list[int] = []
    turn = replica_moves.ReplicaMoves._turn

    def counted(self) -> None:
        made.append(1)
        assert len(made) < 200, "the moves keep the loop busy"
        turn(self)

    monkeypatch.setattr(replica_moves.ReplicaMoves, "_turn", counted)
    return made


@pytest.mark.parametrize("where", ["page cache", "disk", "somewhere else"])
def test_a_replica_that_fails_alone_ends_its_move(cluster, turns, monkeypatch, where):
    fill(cluster, 30)
    broker = 3 - cluster.state(TP).leader
    source, target = log_dir_of(cluster, broker, TP), other(cluster, broker)
    slow(cluster, broker)
    assert ask(cluster, broker, target, TP) == [ErrorCode.NONE]
    cluster.loop.run_for(1500)
    disk = disk_of(cluster, broker)
    disk.error = errno.ENOENT
    if where == "disk":
        disk.cold.add(source)
        monkeypatch.setattr(disk, "load", refused(errno.ENOENT))
    elif where == "page cache":
        disk.broken.add(source / "t-0")
    else:
        replicas = cluster[broker].replicas
        replicas.fail_alone(replicas.get(TP), LogStorageError("it can't be written"))
        slow(cluster, broker, 1 << 40)
    cluster.loop.run_for(20_000)
    del turns[:]
    assert not cluster[broker].logs.moves.under_way
    assert log_dir_of(cluster, broker, TP) == source
    assert cluster[broker].replicas.get(TP).role is Role.FAILED
    assert cluster[broker].logs.dirs.working_paths == list(cluster[broker].config.log_dirs)
    cluster.loop.run_for(30_000)
    assert not turns


@pytest.mark.parametrize("where", ["page cache", "disk"])
def test_a_move_waits_for_descriptors_without_keeping_the_loop_busy(
    cluster, turns, monkeypatch, where
):
    fill(cluster, 30)
    broker = 3 - cluster.state(TP).leader
    source, target = log_dir_of(cluster, broker, TP), other(cluster, broker)
    slow(cluster, broker)
    assert ask(cluster, broker, target, TP) == [ErrorCode.NONE]
    cluster.loop.run_for(1500)
    disk = disk_of(cluster, broker)
    if where == "disk":
        disk.cold.add(source)
        monkeypatch.setattr(disk, "load", refused(errno.EMFILE))
    else:
        # As it is until the log is opened again.
        cluster[broker].logs.logs[TP].segments.is_cut_short = True
        disk.short_at = range(1 << 40)
    del turns[:]
    cluster.loop.run_for(25_000)
    assert len(turns) < 10 and TP in cluster[broker].logs.moves.under_way
    if where == "disk":
        monkeypatch.setattr(disk, "load", lambda *_: disk.cold.clear())
    disk.short_at = range(0)
    slow(cluster, broker, 1 << 40)
    moved(cluster, broker, target)
    assert same_everywhere(cluster) == list(range(31))


@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("calls", every_second(range(0, 40, 3)))
def test_a_shortage_while_the_log_dirs_are_renamed_takes_nothing_offline(
    cluster, turns, monkeypatch, role, calls
):
    fill(cluster, 10)
    leader = cluster.state(TP).leader
    broker = leader if role == "leader" else 3 - leader
    target, disk = other(cluster, broker), disk_of(cluster, broker)
    moves = cluster[broker].logs.moves
    take_over = moves.take_over
    tries: list[int] = []

    def shortened(*arguments: object) -> object:
        if not tries:
            first = disk.opens + 1 + calls
            disk.short_at = range(first, 1 << 40)
            # What a broker does each second, and its checkpoints, come up meanwhile.
            cluster.loop.call_later(4000, lambda: setattr(disk, "short_at", range(0)))
        tries.append(1)
        return take_over(*arguments)

    monkeypatch.setattr(moves, "take_over", shortened)
    assert ask(cluster, broker, target, TP) == [ErrorCode.NONE]
    cluster.loop.run_until(lambda: bool(tries))
    cluster.loop.run_for(3000)
    assert len(turns) < 30
    moved(cluster, broker, target)
    cluster.loop.run_for(5000)
    assert cluster[broker].replicas.get(TP).role is not Role.FAILED
    assert len(cluster[broker].logs.dirs.working_paths) == 2
    assert cluster.produced(TP, b"after") == 11
    assert same_everywhere(cluster) == list(range(12))
    assert names(cluster, broker) == ["t-0"]
    cluster[broker].kill(session_ends_at_once=True)
    disk.kill_process()
    cluster[broker].start()
    assert cluster.produced(TP, b"after the kill") == 12
    cluster.wait_in_sync(TP, 1, 2, limit_ms=120_000)
    assert log_dir_of(cluster, broker, TP) == target
    assert same_everywhere(cluster) == list(range(13))


def test_a_copy_that_is_begun_anew_waits_for_descriptors(cluster):
    fill(cluster, 30)
    broker = 3 - cluster.state(TP).leader
    target = other(cluster, broker)
    slow(cluster, broker)
    assert ask(cluster, broker, target, TP) == [ErrorCode.NONE]
    cluster.loop.run_for(1500)
    future = cluster[broker].logs.moves.under_way[TP]
    future.cuts.begun_anew = True
    disk_of(cluster, broker).short_at = range(1 << 40)
    cluster.loop.run_for(15_000)
    assert cluster[broker].logs.moves.under_way == {TP: future}
    disk_of(cluster, broker).short_at = range(0)
    slow(cluster, broker, 1 << 40)
    moved(cluster, broker, target)
    assert same_everywhere(cluster) == list(range(31))
    cluster.loop.run_for(1000)
    assert names(cluster, broker) == ["t-0"]


def test_work_that_fails_after_its_move_was_cancelled_leaves_a_newer_one_alone(cluster):
    fill(cluster, 30)
    here, target = log_dir_of(cluster, 1, TP), other(cluster, 1)
    slow(cluster, 1)
    moves = cluster[1].parts.replicas.moves
    assert ask(cluster, 1, target, TP) == [ErrorCode.NONE]
    (first,) = moves._moves
    assert ask(cluster, 1, here, TP) == [ErrorCode.NONE]
    assert ask(cluster, 1, target, TP) == [ErrorCode.NONE]
    newer = cluster[1].logs.moves.under_way[TP]
    moves._failed(first, LogStorageError("the log can't be read"))
    assert cluster[1].logs.moves.under_way == {TP: newer}
    slow(cluster, 1, 1 << 40)
    moved(cluster, 1, target)


def test_a_copy_that_can_not_be_flushed_fails_the_log_dir_that_it_is_in(cluster):
    broker = cluster.state(TP).leader
    source, target = log_dir_of(cluster, broker, TP), other(cluster, broker)
    disk_of(cluster, broker).broken_syncs.add(target)
    assert ask(cluster, broker, target, TP) == [ErrorCode.NONE]
    cluster.loop.run_for(5000)
    assert disk_of(cluster, broker).refused_syncs
    assert cluster[broker].logs.dirs.working_paths == [source]
    assert not cluster[broker].logs.moves.under_way
    assert cluster.produced(TP, b"after") == 1 and cluster.state(TP).leader == broker
    disk_of(cluster, broker).broken_syncs.clear()


def test_a_replica_without_records_at_its_end_moves(cluster):
    ends = set()
    for broker in (1, 2):
        replica_log = cluster[broker].logs.logs[TP]
        # As a cut leaves it whose offset a pass of compaction has taken, with those before.
        replica_log.follower_appends.end_at(replica_log.log_end_offset + 5)
        ends.add(replica_log.log_end_offset)
    assert ends == {6}
    broker = cluster.state(TP).leader
    target = other(cluster, broker)
    assert ask(cluster, broker, target, TP) == [ErrorCode.NONE]
    moved(cluster, broker, target)
    assert cluster.produced(TP, b"after") == 6
    assert same_everywhere(cluster) == [0, 6]


def test_leadership_that_changes_while_replicas_move_loses_nothing(cluster):
    fill(cluster, 30)
    for broker in (1, 2):
        slow(cluster, broker, 3000)
        assert ask(cluster, broker, other(cluster, broker), TP) == [ErrorCode.NONE]
    targets = {broker: other(cluster, broker) for broker in (1, 2)}
    last = 0
    for preferred in ([1, 2], [2, 1], [1, 2]):
        cluster.answer(cluster.reassign(TP, preferred))
        cluster.loop.run_for(500)
        cluster.answer(cluster.elect_preferred(TP))
        last = cluster.produced(TP, b"meanwhile")
    for broker, target in targets.items():
        moved(cluster, broker, target)
    last = cluster.produced(TP, b"after")
    assert same_everywhere(cluster) == list(range(last + 1))
