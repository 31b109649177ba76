"""A coordinator whose own copy of the log is damaged: repaired from a replica, or another leads."""

import errno
import logging

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.coordinators.state_load import StateLoad
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.broker.upkeep.scrubs import Scrubs
from storage_engine.core.errors import ErrorCode, LogStorageError
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.log.files.disk import storage_error
from storage_engine.log.files.segment_files import LoadJob
from storage_engine.protocol.messages import init_producer_id
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.tests.broker.groups.test_consumer_groups import A, GroupClient
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.transactions.test_batch_commits import (
    Task,
    code_of,
    commit,
    joined,
)

STATE = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)


cluster = cluster_fixture(
    "a",
    transaction_state_log_num_partitions="1",
    offsets_topic_num_partitions="1",
    auto_leader_rebalance_enable="false",
    log_scrub_interval_ms="0",
    min_insync_replicas="2",
)


def next_leader(cluster: SimulatedCluster, tp: TopicPartition) -> int:
    leader = cluster.state(tp).leader
    assigned = cluster[leader].replicas.get(tp).assigned_replicas
    return next(each for each in assigned if each != leader)


def rot(
    cluster: SimulatedCluster, broker: int, tp: TopicPartition, batch: int = 0, at: int = 80
) -> bytes:
    """One bit of that batch of the newest segment, at that byte; what the segment was."""
    path = max(cluster[broker].replicas.get(tp).log.directory.glob("*.log"))
    good = path.read_bytes()
    position = [each for each, _ in iter_headers(good)][batch] + at
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes([good[position] ^ 1]))
    return good


def lead_with_rot(
    cluster: SimulatedCluster, tp: TopicPartition, batch: int = 0, at: int = 80
) -> tuple[int, int, bytes]:
    """The broker that leads now, over a damaged log; that which led; the good bytes."""
    cluster.loop.run_for(2_000)
    old, new = cluster.state(tp).leader, next_leader(cluster, tp)
    good = rot(cluster, new, tp, batch, at)
    cluster[old].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.state(tp).leader not in (-1, old))
    assert cluster.state(tp).leader == new
    return new, old, good


def known_code(cluster: SimulatedCluster, transactional_id: str) -> ErrorCode:
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    answer = cluster.answer(
        cluster.ask(cluster.state(STATE).leader, init_producer_id.API, 4, request)
    )
    return ErrorCode.of(answer.error_code)


def producers(cluster: SimulatedCluster) -> list[SimulatedProducer]:
    made = [SimulatedProducer(cluster, f"p{number}") for number in range(5)]
    for each in made:
        each.init()
    return made


def test_a_flipped_bit_is_repaired_from_a_replica_and_all_is_known_again(cluster):
    made = producers(cluster)
    leader, _, good = lead_with_rot(cluster, STATE)
    cluster.loop.run_for(20_000)
    for producer in made:
        before = producer.producer_id
        producer.init()
        assert (producer.producer_id, producer.epoch) == (before, 1)
    assert cluster.state(STATE).leader == leader
    log = cluster[leader].replicas.get(STATE).log
    assert min(log.directory.glob("*.log")).read_bytes() == good


def test_committed_offsets_outlive_a_flipped_bit(cluster):
    client = GroupClient(cluster)
    for offset in range(5):
        client.commit(offset)
    leader, _, _ = lead_with_rot(cluster, OFFSETS)
    cluster.loop.run_for(20_000)
    assert client.offset() == 4
    assert cluster.state(OFFSETS).leader == leader


LENGTH = (8, 9, 11)
MAGIC = (16,)


@pytest.mark.parametrize("at", LENGTH + MAGIC)
@pytest.mark.parametrize("batch", [1, -1])
def test_a_log_does_not_end_at_a_batch_that_says_it_is_longer(cluster, batch, at):
    """Nor is one of another magic a foreign one: what is behind or in them was acknowledged."""
    client = GroupClient(cluster)
    for offset in (10, 20, 30):
        assert client.commit(offset) is ErrorCode.NONE
    leader, _, _ = lead_with_rot(cluster, OFFSETS, batch, at)
    cluster.loop.run_for(20_000)
    assert client.offset() == 30
    assert cluster.state(OFFSETS).leader == leader


@pytest.mark.parametrize("at", LENGTH + MAGIC)
def test_no_batch_of_a_sink_is_committed_twice_over_a_damaged_header(cluster, at):
    for batch in range(3):
        assert commit(cluster, batch, joined(cluster, batch).wrote(A)) is ErrorCode.NONE
    leader, _, _ = lead_with_rot(cluster, STATE, 1, at)
    cluster.loop.run_for(20_000)
    assert cluster.state(STATE).leader == leader
    for batch in range(3):
        assert code_of(Task(cluster, batch).join) is ErrorCode.ALREADY_COMMITTED


def test_another_replica_leads_when_the_damage_stays(cluster, monkeypatch, caplog):
    made = producers(cluster)
    leader, old, _ = lead_with_rot(cluster, STATE)
    monkeypatch.setattr(Scrubs, "report", lambda *_: None)
    cluster.loop.run_until(lambda: cluster.state(STATE).leader != leader, limit_ms=60_000)
    cluster.loop.run_for(2_000)
    assert cluster.state(STATE).leader not in (leader, old, -1)
    assert cluster[leader].replicas.get(STATE).role is Role.FAILED
    cluster[old].start()
    cluster.wait_in_sync(STATE, old, cluster.state(STATE).leader)
    for producer in made:
        before = producer.producer_id
        producer.init()
        assert (producer.producer_id, producer.epoch) == (before, 1)
    told = [each for each in caplog.messages if "another replica in sync is to lead" in each]
    assert len(told) == 1


def test_who_is_alone_in_sync_keeps_trying_and_says_so_once_a_minute(cluster, monkeypatch, caplog):
    producers(cluster)
    cluster.loop.run_for(2_000)
    new = next_leader(cluster, STATE)
    (third,) = {1, 2, 3} - {new, cluster.state(STATE).leader}
    cluster[third].kill(session_ends_at_once=True)
    cluster.loop.run_for(2_000)
    monkeypatch.setattr(Scrubs, "report", lambda *_: None)
    leader, old, good = lead_with_rot(cluster, STATE)
    cluster.loop.run_for(600_000)
    assert cluster.state(STATE).leader == leader
    told = [each for each in caplog.messages if "state not read" in each]
    assert 5 < len(told) <= 11
    path = max(cluster[leader].replicas.get(STATE).log.directory.glob("*.log"))
    path.write_bytes(good)
    cluster[old].start()
    cluster[third].start()
    cluster.wait_in_sync(STATE, 1, 2, 3)
    cluster.loop.run_for(61_000)
    assert known_code(cluster, "p0") is ErrorCode.NONE


@pytest.mark.parametrize(
    ("number", "failures", "met", "moves"),
    [
        (errno.EIO, 3, 1, True),
        (errno.EMFILE, 3, 3, False),
        # Once: as when compaction has replaced the segment.
        (errno.ENOENT, 1, 1, False),
        (errno.ENOENT, 3, 2, True),
    ],
)
def test_another_replica_leads_when_the_medium_fails_but_not_when_descriptors_lack(
    cluster, monkeypatch, number, failures, met, moves
):
    made = producers(cluster)
    cluster.loop.run_for(2_000)
    old, new = cluster.state(STATE).leader, next_leader(cluster, STATE)
    folder = cluster[new].replicas.get(STATE).log.directory
    run = LoadJob.run
    tries: list[LoadJob] = []

    def failing(self: LoadJob) -> LogStorageError | None:
        failure = run(self)
        if folder not in self._path.parents or len(tries) == failures:
            return failure
        tries.append(self)
        return storage_error("read", self._path, OSError(number, "on purpose"))

    monkeypatch.setattr(LoadJob, "run", failing)
    cluster[old].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.state(STATE).leader == new)
    cluster[old].start()
    cluster.loop.run_for(20_000)
    assert len(tries) == met
    assert (cluster.state(STATE).leader != new) == moves
    assert (cluster[new].replicas.get(STATE).role is Role.FAILED) == moves
    for producer in made:
        before = producer.producer_id
        producer.init()
        assert (producer.producer_id, producer.epoch) == (before, 1)


def test_an_error_in_reading_is_no_reason_to_give_leadership_away(cluster, monkeypatch, caplog):
    """It would be the same at the next leader, until none is left."""
    producers(cluster)
    caplog.set_level(logging.INFO)

    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(StateLoad, "_replay", fail)
        old = cluster.state(STATE).leader
        cluster[old].kill(session_ends_at_once=True)
        cluster.loop.run_until(lambda: cluster.state(STATE).leader not in (-1, old))
        leader = cluster.state(STATE).leader
        cluster.loop.run_for(60_000)
        assert cluster.state(STATE).leader == leader
    cluster.loop.run_for(61_000)
    assert known_code(cluster, "p0") is ErrorCode.NONE
    assert any("state is read after" in each for each in caplog.messages)
