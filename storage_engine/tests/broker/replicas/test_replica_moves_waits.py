"""Coordinators, produces and fetches wait on a replica while it moves to another log dir, and an
answer of ZooKeeper comes (KIP-113)."""

from collections.abc import Callable, Iterator

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from simulation.world.requests import fetch_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.messages import offset_commit
from storage_engine.tests.broker.groups.test_consumer_groups import GroupClient
from storage_engine.tests.broker.replicas.test_replica_moves import ask
from storage_engine.tests.broker.support import disk_of, log_dir_of

TP = TopicPartition("t", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
AT_ONCE_MS = 50
"""A few hops of the simulated network."""


@pytest.fixture
def make(tmp_path) -> Iterator[Callable[..., SimulatedCluster]]:
    made: list[SimulatedCluster] = []

    def new(**topic: str) -> SimulatedCluster:
        cluster = SimulatedCluster(
            tmp_path,
            2,
            log_dirs=2,
            disk=lambda _b: SimulatedDisk(tmp_path),
            default_replication_factor="2",
            offsets_topic_num_partitions="1",
            offsets_topic_replication_factor="2",
            auto_leader_rebalance_enable="false",
        )
        made.append(cluster)
        assert cluster.create_topic("t", **topic).error_code == 0
        cluster.produced_when_there(TP, b"first")
        cluster.wait_in_sync(TP, 1, 2)
        return cluster

    yield new
    for cluster in made:
        cluster.close()


def move(cluster: SimulatedCluster, broker: int, tp: TopicPartition) -> None:
    here = log_dir_of(cluster, broker, tp)
    target = next(path for path in cluster[broker].config.log_dirs if path != here)
    assert ask(cluster, broker, target, tp) == [ErrorCode.NONE]
    cluster.loop.run_until(lambda: log_dir_of(cluster, broker, tp) == target, limit_ms=5_000)


def lead(cluster: SimulatedCluster, tp: TopicPartition, broker: int) -> None:
    cluster.wait_in_sync(tp, 1, 2)
    cluster.answer(cluster.reassign(tp, [broker, 3 - broker]))
    cluster.loop.run_for(500)
    cluster.answer(cluster.elect_preferred(tp))
    cluster.loop.run_until(lambda: cluster.state(tp).leader == broker)
    cluster.loop.run_for(500)


def commit_code(cluster: SimulatedCluster, broker: int, client: GroupClient) -> ErrorCode:
    """The answer of that broker, whichever broker coordinates the group."""
    request = client.commit_request(99, topic="t")
    answer = cluster.answer(cluster.ask(broker, offset_commit.API, 8, request))
    return ErrorCode.of(answer.topics[0].partitions[0].error_code)


def test_a_coordinator_whose_log_has_moved_ends_when_another_broker_leads(make):
    cluster = make()
    client = GroupClient(cluster)
    assert client.commit(1, topic="t") is ErrorCode.NONE
    old, new = 1, 2
    lead(cluster, OFFSETS, old)
    # It takes no order between the move and the one that lets another lead.
    cluster.answer(cluster.reassign(OFFSETS, [new, old]))
    cluster.loop.run_for(500)
    assert cluster.state(OFFSETS).leader == old
    move(cluster, old, OFFSETS)
    assert client.commit(2, topic="t") is ErrorCode.NONE
    cluster.answer(cluster.elect_preferred(OFFSETS))
    cluster.loop.run_until(lambda: cluster.state(OFFSETS).leader == new)
    cluster.loop.run_for(500)
    assert list(cluster[old].parts.coordinators.groups) == []
    assert commit_code(cluster, old, client) is ErrorCode.NOT_COORDINATOR
    assert client.offset() == 2
    assert client.commit(3, topic="t") is ErrorCode.NONE
    lead(cluster, OFFSETS, old)
    assert client.offset() == 3


@pytest.mark.parametrize("meanwhile", ["has ended by itself", "is loading"])
def test_a_coordinator_reads_the_log_where_it_lies_now(make, meanwhile):
    cluster = make()
    client = GroupClient(cluster)
    assert client.commit(1, topic="t") is ErrorCode.NONE
    leader = cluster[cluster.state(OFFSETS).leader]
    (runner,) = leader.parts.coordinators.groups._runners.values()
    runner._end_by_itself()
    if meanwhile == "is loading":
        leader.loop.held = []
        cluster.loop.run_for(1_100)
        assert leader.loop.held, "the next one loads"
    move(cluster, leader.id, OFFSETS)
    if meanwhile == "is loading":
        leader.loop.release()
    cluster.loop.run_for(2_000)
    assert cluster.state(OFFSETS).leader == leader.id
    assert client.offset() == 1
    assert client.commit(2, topic="t") is ErrorCode.NONE


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_that_waits_for_a_flush_is_answered_by_the_move(make, acks):
    """The copy is on the medium with the log's place."""
    cluster = make(flush_before_ack="true")
    leader = cluster.state(TP).leader
    cluster[leader].loop.held = []
    # The first is being flushed, the second waits for the next round.
    answers = [cluster.produce(leader, TP, b"second", acks=acks)]
    cluster.loop.run_for(200)
    answers.append(cluster.produce(leader, TP, b"third", acks=acks))
    cluster.loop.run_for(200)
    assert cluster[leader].loop.held and answers == [[], []]
    move(cluster, leader, TP)
    cluster.loop.run_for(AT_ONCE_MS)
    codes = [ErrorCode.of(row.error_code) for each in answers for a in each for row in a.partitions]
    assert codes == [ErrorCode.NONE] * 2
    log = cluster[leader].logs.logs[TP]
    assert log.is_durable and log.recovery_point == 3
    # The flush of the log before ends as well, and the next ones are served.
    cluster[leader].loop.release()
    assert cluster.produced(TP, b"fourth") == 3
    assert cluster[leader].logs.dirs.working_paths == list(cluster[leader].config.log_dirs)


def test_a_flush_that_fails_where_the_log_lay_before_takes_nothing_offline(make):
    cluster = make(flush_before_ack="true")
    leader = cluster.state(TP).leader
    source, disk = log_dir_of(cluster, leader, TP), disk_of(cluster, leader)
    cluster[leader].loop.held = []
    cluster.produce(leader, TP, b"second", acks=1)
    cluster.loop.run_for(200)
    move(cluster, leader, TP)
    disk.broken_syncs.add(source)
    cluster[leader].loop.release()
    cluster.loop.run_for(AT_ONCE_MS)
    assert disk.refused_syncs
    disk.broken_syncs.clear()
    assert cluster.produced(TP, b"third") == 2 and cluster.state(TP).leader == leader


def test_a_produce_that_waits_for_followers_hears_that_another_broker_leads(make):
    """Its leader has moved to another log dir since."""
    cluster = make()
    leader = cluster.state(TP).leader
    waits = cluster[leader].replicas.get(TP).produce_waiters
    cluster[3 - leader].parts.replicas.fetchers.close()
    answers = cluster.produce(leader, TP, b"second")
    cluster.loop.run_until(lambda: len(waits) == 1)
    move(cluster, leader, TP)
    assert not answers
    moved = cluster[leader].replicas.get(TP)
    cluster[leader].replicas.stop(TP, delete=False)
    assert moved.leader is None
    cluster.loop.run_for(AT_ONCE_MS)
    (answer,) = answers
    assert ErrorCode.of(answer.partitions[0].error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("count", [1, 2])
def test_a_followers_fetch_that_waits_is_answered_from_the_log_in_its_new_place(make, count):
    """A broker that is no replica sends the fetch, so that the real followers are not disturbed."""
    cluster = make()
    other = TopicPartition("other", 0)
    assert cluster.create_topic("other").error_code == 0
    cluster.produced_when_there(other, b"first")
    cluster.wait_in_sync(other, 1, 2)
    lead(cluster, other, cluster.state(TP).leader)
    leader = cluster.state(TP).leader
    requests = [fetch_request(*tp, 1, wait_ms=20_000) for tp in (TP, other)[:count]]
    partitions = [
        each.partitions[0]._replace(current_leader_epoch=cluster.state(tp).leader_epoch)
        for tp, each in zip((TP, other), requests, strict=False)
    ]
    request = requests[0]._replace(replica_id=9, partitions=partitions)
    answers = cluster.ask(leader, FETCH, 11, request)
    cluster.loop.run_for(100)
    move(cluster, leader, TP)
    assert not answers
    cluster.produced(TP, b"second")
    cluster.loop.run_for(AT_ONCE_MS)
    assert answers and b"second" in bytes(answers[0].partitions[0].records)


def test_a_high_watermark_that_an_answer_of_zookeeper_advances_wakes_readers_after_a_move(make):
    cluster = make()
    leader = cluster.state(TP).leader
    end = cluster[leader].logs.logs[TP].log_end_offset
    cluster[3 - leader].parts.replicas.fetchers.close()
    reader = cluster.fetch(leader, TP, end, wait_ms=59_000)
    cluster.produce(leader, TP, b"second")
    cluster[leader].session.lose_answers = 1
    cluster.loop.run_until(lambda: cluster.state(TP).isr == (leader,), limit_ms=50_000)
    # What became of the write is read after a pause.
    move(cluster, leader, TP)
    assert cluster[leader].session.lose_answers == 0 and not reader
    cluster.loop.run_for(1_000)
    assert reader and b"second" in bytes(reader[0].partitions[0].records)
