"""A consumer's fetch that waits is read again only where what decides on its answer has changed
(R-NET2): each of these changes ends the wait, long before its time is over.
"""

from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import fetch_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrPartition
from storage_engine.tests.broker.support import cluster_fixture

TP = TopicPartition("t", 0)
PARTITIONS = 4
"""One of three brokers leads two."""
LONG_MS = 50_000
SOON_MS = 2_000


def fill(made: SimulatedCluster) -> None:
    assert made.create_topic(TP.topic, PARTITIONS).error_code == 0
    for number in range(PARTITIONS):
        tp = TopicPartition(TP.topic, number)
        assert made.produced_when_there(tp, b"first") == 0
        made.wait_in_sync(tp, 1, 2, 3)
    made.loop.run_for(1000)


cluster = cluster_fixture(prepare=fill, auto_leader_rebalance_enable="false")


def waiting(cluster: SimulatedCluster, *, with_another: bool) -> tuple[TopicPartition, list[Any]]:
    """A partition, and the answers to a fetch that waits at its end, for it alone or for another
    one, too."""
    by_leader: dict[BrokerId, list[int]] = {}
    for number in range(PARTITIONS):
        leader = cluster.state(TopicPartition(TP.topic, number)).leader
        by_leader.setdefault(leader, []).append(number)
    leader, numbers = max(by_leader.items(), key=lambda each: len(each[1]))
    request = fetch_request(TP.topic, TP.partition, 1, wait_ms=LONG_MS)
    (wanted,) = request.partitions
    epoch = cluster.state(TopicPartition(TP.topic, numbers[0])).leader_epoch
    named = [wanted._replace(partition=each, current_leader_epoch=epoch) for each in numbers[:2]]
    asked = request._replace(partitions=named if with_another else named[:1])
    answers = cluster.ask(leader, FETCH, 12, asked)
    cluster.loop.run_for(SOON_MS)
    assert not answers
    return TopicPartition(TP.topic, numbers[0]), answers


def code_soon(cluster: SimulatedCluster, answers: list[Any]) -> ErrorCode:
    """Of TP, in an answer that has come soon."""
    answer = cluster.answer(answers, limit_ms=SOON_MS)
    return ErrorCode.of(answer.partitions[0].error_code)


@pytest.mark.parametrize("with_another", [False, True])
def test_a_new_leader_epoch_is_told_to_a_consumer_that_names_the_old_one(cluster, with_another):
    tp, answers = waiting(cluster, with_another=with_another)
    broker = cluster[cluster.state(tp).leader]
    hosted = broker.replicas.get(tp)
    item = LeaderAndIsrPartition(
        topic=tp.topic,
        partition=tp.partition,
        controller_epoch=hosted.controller_epoch,
        leader=broker.id,
        leader_epoch=LeaderEpoch(hosted.leader_epoch + 1),
        isr=(1, 2, 3),
        partition_epoch=PartitionEpoch(1000),
        replicas=hosted.assigned_replicas,
        topic_id=hosted.topic_id,
    )
    assert broker.replicas.apply_leadership(item, {}) is ErrorCode.NONE
    assert code_soon(cluster, answers) is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("with_another", [False, True])
def test_a_consumer_hears_at_once_that_its_topic_is_gone(cluster, with_another):
    _tp, answers = waiting(cluster, with_another=with_another)
    cluster.delete_topic(TP.topic)
    assert code_soon(cluster, answers) in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )


@pytest.mark.parametrize("with_another", [False, True])
def test_a_consumer_hears_at_once_that_another_broker_leads(cluster, with_another):
    tp, answers = waiting(cluster, with_another=with_another)
    old = cluster.state(tp).leader
    target = [*sorted({1, 2, 3} - {old}), old]
    assert cluster.answer(cluster.reassign(tp, target)).error_code == 0
    cluster.answer(cluster.elect_preferred(tp))
    assert cluster.state(tp).leader != old
    assert code_soon(cluster, answers) in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    )


@pytest.mark.parametrize("with_another", [False, True])
def test_a_high_watermark_that_moves_without_an_append_ends_a_consumers_wait(cluster, with_another):
    tp, answers = waiting(cluster, with_another=with_another)
    leader = cluster.state(tp).leader
    for other in {1, 2, 3} - {leader}:
        cluster.network.cut(leader, other)
    cluster.produce(leader, tp, b"second", acks=1)
    cluster.loop.run_for(100)
    assert not answers, "the followers do not have it yet"
    cluster.network.heal()
    answer = cluster.answer(answers, limit_ms=SOON_MS)
    assert b"second" in bytes(answer.partitions[0].records)
