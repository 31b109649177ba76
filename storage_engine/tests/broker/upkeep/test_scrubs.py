"""Damage in finished segments: found and repaired by real brokers over a simulated network."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.upkeep.scrubs import REPORT_PAUSE_MS, RETRY_MS
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.sampling import every_second

TP = TopicPartition("t", 0)
RECORDS = 60
SETTINGS = {
    "log_scrub_interval_ms": "20000",
    "log_index_interval_bytes": "200",
}


@pytest.fixture
def make(tmp_path) -> Iterator[Callable[..., SimulatedCluster]]:
    """A function that makes a cluster with a topic of several finished segments."""
    made: list[SimulatedCluster] = []

    def new(count: int = 3, *, topic: dict[str, str] | None = None, **settings: Any):
        copies = {"default_replication_factor": str(count)}
        cluster = SimulatedCluster(tmp_path, count, **{**SETTINGS, **copies, **settings})
        made.append(cluster)
        topic = {"segment_bytes": "1200", **(topic or {})}
        assert cluster.create_topic("t", **topic).error_code == 0
        for number in range(RECORDS):
            cluster.produced_when_there(TP, b"%04d" % number * 16)
        cluster.wait_in_sync(TP, *range(1, count + 1))
        # Everybody knows the high watermark, and finished segments are flushed.
        cluster.loop.run_for(3000)
        return cluster

    yield new
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make) -> SimulatedCluster:
    return make()


def log_of(cluster: SimulatedCluster, broker: int, tp: TopicPartition = TP):
    return cluster[broker].logs.logs[tp]


def segments(cluster: SimulatedCluster, broker: int, tp: TopicPartition = TP) -> list[Path]:
    return sorted(Path(log_of(cluster, broker, tp).directory).glob("*.log"))


def contents(cluster: SimulatedCluster, broker: int, tp: TopicPartition = TP) -> bytes:
    return b"".join(path.read_bytes() for path in segments(cluster, broker, tp))


def rot(path: Path, position: int = 100) -> None:
    """Other bytes, in place."""
    with path.open("r+b") as file:
        file.seek(position)
        was = file.read(3)
        file.seek(position)
        file.write(bytes(byte ^ 0x55 for byte in was))


def roles(cluster: SimulatedCluster) -> tuple[int, int]:
    """The leader, and a follower."""
    leader = cluster.state(TP).leader
    return leader, next(b for b in (1, 2, 3) if b != leader)


def fetch_code(cluster: SimulatedCluster, broker: int, offset: int) -> ErrorCode:
    answer = cluster.answer(cluster.fetch(broker, TP, offset))
    return ErrorCode.of(answer.partitions[0].error_code)


def test_a_rotten_segment_of_a_follower_is_repaired_from_the_leader(cluster):
    leader, follower = roles(cluster)
    good = contents(cluster, leader)
    assert contents(cluster, follower) == good
    rot(segments(cluster, follower)[1])
    rot(segments(cluster, follower)[3], 40)
    cluster.loop.run_until(lambda: contents(cluster, follower) == good, limit_ms=60_000)
    assert cluster.state(TP).leader == leader
    assert set(cluster.state(TP).isr) == {1, 2, 3}


def test_a_rotten_segment_of_the_leader_is_repaired_from_a_follower(cluster, caplog):
    leader, follower = roles(cluster)
    good = contents(cluster, follower)
    path = segments(cluster, leader)[1]
    rot(path)
    with caplog.at_level(logging.INFO):
        cluster.loop.run_until(lambda: contents(cluster, leader) == good, limit_ms=60_000)
    assert cluster.state(TP).leader == leader
    (line,) = [m for m in caplog.messages if m.startswith("damaged partition=t-0")]
    assert str(path) in line and "offsets=[" in line and "bytes=[0, " in line
    cluster.loop.run_for(100)
    assert log_of(cluster, leader).damaged == ()
    assert fetch_code(cluster, leader, int(path.stem)) is ErrorCode.NONE


def test_what_no_replica_can_give_is_refused_to_readers_until_one_can(cluster, caplog):
    leader, _ = roles(cluster)
    good = contents(cluster, leader)
    others = [b for b in (1, 2, 3) if b != leader]
    for other in others:
        cluster[other].kill()
    path = segments(cluster, leader)[1]
    first = int(path.stem)
    rot(path)
    with caplog.at_level(logging.ERROR):
        cluster.loop.run_until(lambda: bool(log_of(cluster, leader).damaged), limit_ms=60_000)
        cluster.loop.run_for(5000)
    assert any(m.startswith("not repaired partition=t-0") for m in caplog.messages)
    assert fetch_code(cluster, leader, first) is ErrorCode.CORRUPT_MESSAGE
    assert fetch_code(cluster, leader, first - 1) is ErrorCode.NONE
    assert fetch_code(cluster, leader, first + 1) is ErrorCode.NONE
    for other in others:
        cluster[other].start()
    cluster.loop.run_until(lambda: contents(cluster, leader) == good, limit_ms=120_000)
    cluster.loop.run_for(1000)
    assert fetch_code(cluster, leader, first) is ErrorCode.NONE


def test_a_single_replica_says_so_and_serves_the_rest(make, caplog):
    cluster = make(1)
    first = int(segments(cluster, 1)[1].stem)
    rot(segments(cluster, 1)[1])
    with caplog.at_level(logging.ERROR):
        cluster.loop.run_for(60_000)
    lines = [m for m in caplog.messages if "no other replica" in m]
    # Once a pass: not every second.
    assert 1 <= len(lines) <= 3
    assert fetch_code(cluster, 1, first) is ErrorCode.CORRUPT_MESSAGE
    assert fetch_code(cluster, 1, 0) is ErrorCode.NONE
    assert fetch_code(cluster, 1, first + 1) is ErrorCode.NONE


def test_a_follower_does_not_take_rot_from_its_leader_which_is_told_and_repairs_it(make, caplog):
    cluster = make(log_scrub_interval_ms="0")
    leader, follower = roles(cluster)
    good = contents(cluster, leader)
    rot(segments(cluster, leader)[1])
    # A follower that has lost everything fetches it all again.
    cluster[follower].stop()
    for path in Path(log_of(cluster, follower).directory).iterdir():
        path.unlink()
    with caplog.at_level(logging.ERROR):
        cluster[follower].start()
        cluster.loop.run_until(lambda: contents(cluster, leader) == good, limit_ms=60_000)
    assert any(m.startswith("refused bad records of t-0") for m in caplog.messages)
    cluster.wait_in_sync(TP, 1, 2, 3)
    assert contents(cluster, follower) == good


def test_rot_in_the_active_segment_of_the_leader_is_repaired_too(make):
    cluster = make(topic={"segment_bytes": "1000000"}, log_scrub_interval_ms="0")
    leader, follower = roles(cluster)
    good = contents(cluster, leader)
    assert len(segments(cluster, leader)) == 1
    rot(segments(cluster, leader)[0])
    cluster[follower].stop()
    for path in Path(log_of(cluster, follower).directory).iterdir():
        path.unlink()
    cluster[follower].start()
    cluster.loop.run_until(lambda: contents(cluster, leader) == good, limit_ms=60_000)
    cluster.wait_in_sync(TP, 1, 2, 3)
    assert contents(cluster, follower) == good


def test_a_segment_that_lost_its_end_gets_it_back(cluster):
    leader, follower = roles(cluster)
    good = contents(cluster, leader)
    cluster[follower].stop()
    path = segments(cluster, follower)[2]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    rot(segments(cluster, follower)[0])
    cluster[follower].start()
    cluster.loop.run_until(lambda: contents(cluster, follower) == good, limit_ms=60_000)
    cluster.wait_in_sync(TP, 1, 2, 3)


@pytest.mark.parametrize("after", every_second(range(0, 60, 5)))
def test_a_broker_killed_while_it_repairs_does_so_again(make, after):
    cluster = make(log_scrub_interval_ms="5000")
    leader, follower = roles(cluster)
    victim = (leader, follower)[after % 2]
    good = contents(cluster, victim)
    for path in segments(cluster, victim)[:4]:
        rot(path)
    cluster.loop.run_until(lambda: bool(log_of(cluster, victim).damaged), limit_ms=60_000)
    for _ in range(after):
        cluster.loop._run_one()
    cluster[victim].kill()
    cluster[victim].start()
    cluster.loop.run_until(lambda: contents(cluster, victim) == good, limit_ms=120_000)
    cluster.wait_in_sync(TP, 1, 2, 3)
    assert not list(Path(log_of(cluster, victim).directory).glob("*.cleaned"))


def test_damage_that_compaction_meets_is_repaired_and_compaction_goes_on(make):
    cluster = make(log_scrub_interval_ms="0", log_cleaner_backoff_ms="3600000")
    leader, follower = roles(cluster)
    good = contents(cluster, leader)
    rot(segments(cluster, follower)[1])
    cleaning = log_of(cluster, follower).cleaning
    cleaning.is_uncleanable = True
    cluster.loop.run_until(lambda: contents(cluster, follower) == good, limit_ms=60_000)
    cluster.loop.run_for(1000)
    assert not cleaning.is_uncleanable


def test_a_log_is_gone_through_once_in_an_interval(make, monkeypatch):
    from storage_engine.log.cleaning.segment_scrub import SegmentScrub

    steps: list[Path] = []
    step = SegmentScrub.step

    def counted(self: SegmentScrub) -> int:
        steps.append(self.path)
        return step(self)

    monkeypatch.setattr(SegmentScrub, "step", counted)
    cluster = make(1)
    cluster.loop.run_for(45_000)
    times = {path: steps.count(path) for path in steps}
    assert times and set(times.values()) <= {2, 3}
    before = len(steps)
    cluster[1].stop()
    cluster[1].start()
    cluster.loop.run_for(2000)
    assert len(steps) - before < len(times) + 1
    # After an unclean stop at once.
    cluster[1].kill()
    cluster[1].start()
    steps.clear()
    cluster.loop.run_for(15_000)
    assert set(steps) == set(times)


def scrubs_of(cluster, broker: int):
    return cluster[broker].parts.upkeep.maintenance._scrubs


def test_a_report_of_offsets_that_are_not_there_hides_no_other(make):
    cluster = make(log_scrub_interval_ms="0")
    leader, _ = roles(cluster)
    good = contents(cluster, leader)
    path = segments(cluster, leader)[1]
    rot(path)
    partition = cluster[leader].replicas.get(TP)
    scrubs = scrubs_of(cluster, leader)
    scrubs.report(partition, partition.log.log_end_offset)
    cluster.loop.run_for(REPORT_PAUSE_MS + 1000)
    scrubs.report(partition, int(path.stem))
    cluster.loop.run_until(lambda: contents(cluster, leader) == good, limit_ms=10_000)


def test_damage_that_stays_hides_no_later_damage(make):
    """A log with a range that nobody can repair is gone through as a whole all the same."""
    cluster = make(1)
    first, later = segments(cluster, 1)[1], segments(cluster, 1)[4]
    rot(first)
    cluster.loop.run_until(lambda: bool(log_of(cluster, 1).damaged))
    cluster.loop.run_for(2 * RETRY_MS)
    rot(later)
    cluster.loop.run_until(lambda: len(log_of(cluster, 1).damaged) == 2, limit_ms=60_000)
    assert fetch_code(cluster, 1, int(later.stem)) is ErrorCode.CORRUPT_MESSAGE
    assert fetch_code(cluster, 1, int(first.stem)) is ErrorCode.CORRUPT_MESSAGE


def test_a_report_that_can_not_be_repaired_keeps_the_retry_of_older_damage(make):
    cluster = make(log_scrub_interval_ms="0")
    leader, _ = roles(cluster)
    good = contents(cluster, leader)
    others = [b for b in (1, 2, 3) if b != leader]
    for other in others:
        cluster[other].kill()
    partition = cluster[leader].replicas.get(TP)
    for number in (1, 4):
        path = segments(cluster, leader)[number]
        rot(path)
        scrubs_of(cluster, leader).report(partition, int(path.stem))
        cluster.loop.run_for(REPORT_PAUSE_MS + 1000)
    assert len(log_of(cluster, leader).damaged) == 2
    for other in others:
        cluster[other].start()
    cluster.loop.run_until(lambda: contents(cluster, leader) == good, limit_ms=120_000)
