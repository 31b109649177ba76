"""Brokers that have forgotten producers keep the order of those that begin (R-CLI7): a batch that
was refused and will be sent again is never passed by what was sent behind it.
"""

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import make_batch, produce_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.produce import API as PRODUCE

TP = TopicPartition("t", 0)
OLD = 2000
"""The id of a producer that has expired."""

OUT_OF_ORDER = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
REFUSED = (ErrorCode.NOT_ENOUGH_REPLICAS, -1)


class LongLived:
    """Three replicas of a partition, each of which has forgotten a producer."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        cluster.create_topic("t", min_insync_replicas="2")
        cluster.produced(TP, b"first")
        cluster.wait_in_sync(TP, 1, 2, 3)
        assert self.send(OLD, 0) == (ErrorCode.NONE, 1)
        cluster.loop.run_for(1000)
        for broker in cluster.brokers:
            log = broker.replicas.get(TP).log
            assert log.expire_producers(10**15) == 1

    @property
    def leader(self) -> int:
        return self.cluster.state(TP).leader

    @property
    def producers(self):
        return self.cluster[self.leader].replicas.get(TP).log.producer_state

    def send(self, producer_id: int, sequence: int, *, to: int = 0) -> tuple[ErrorCode, int]:
        batch = make_batch(producer=(producer_id, 0, sequence))
        request = produce_request("t", 0, batch, acks=-1)
        answer = self.cluster.answer(self.cluster.ask(to or self.leader, PRODUCE, 8, request))
        row = answer.partitions[0]
        return ErrorCode.of(row.error_code), row.base_offset

    def lose_followers(self) -> list[int]:
        leader = self.leader
        others = [id_ for id_ in (1, 2, 3) if id_ != leader]
        for other in others:
            self.cluster[other].kill(session_ends_at_once=True)
        self.cluster.wait_in_sync(TP, leader)
        self.cluster.loop.run_for(500)
        return others

    def bring_back(self, follower: int) -> None:
        self.cluster[follower].start()
        self.cluster.wait_in_sync(TP, self.leader, follower)
        self.cluster.loop.run_for(500)


@pytest.fixture
def partition(cluster) -> LongLived:
    return LongLived(cluster)


@pytest.mark.parametrize("producer_id", [OLD + 1, OLD - 1], ids=["newer id", "older id"])
def test_a_batch_that_was_refused_is_not_passed_by_the_next_one(partition, producer_id):
    """Brokers hand out ids from blocks of their own, so that of a new producer may be lower than
    that of one long forgotten."""
    others = partition.lose_followers()
    assert partition.send(producer_id, 0) == REFUSED
    partition.bring_back(others[0])
    assert partition.send(producer_id, 1) == OUT_OF_ORDER
    assert partition.send(producer_id, 0) == (ErrorCode.NONE, 2)
    assert partition.send(producer_id, 1) == (ErrorCode.NONE, 3)


def test_a_forgotten_producer_comes_back_in_order_after_a_refusal(partition):
    others = partition.lose_followers()
    assert [partition.send(OLD, 1), partition.send(OLD, 2)] == [REFUSED, REFUSED]
    partition.bring_back(others[0])
    assert partition.send(OLD, 3) == OUT_OF_ORDER
    assert [partition.send(OLD, each)[1] for each in (1, 2, 3)] == [2, 3, 4]


def test_what_a_follower_refused_it_does_not_take_in_another_order_as_the_leader(partition):
    before = partition.leader
    heir = next(id_ for id_ in partition.cluster.state(TP).isr if id_ != before)
    others = [id_ for id_ in (1, 2, 3) if id_ not in (before, heir)]
    for other in others:
        partition.cluster[other].kill(session_ends_at_once=True)
    partition.cluster.wait_in_sync(TP, before, heir)
    assert partition.send(OLD - 1, 0, to=heir) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    partition.cluster[before].kill(session_ends_at_once=True)
    partition.cluster.loop.run_until(lambda: partition.leader == heir)
    partition.bring_back(others[0])
    assert partition.send(OLD - 1, 1) == OUT_OF_ORDER
    assert [partition.send(OLD - 1, each)[1] for each in (0, 1)] == [2, 3]


def test_a_new_leader_is_as_strict_with_new_producers_as_the_old_one(partition):
    before = partition.leader
    partition.cluster[before].kill(session_ends_at_once=True)
    partition.cluster.loop.run_until(lambda: partition.leader not in (-1, before))
    partition.cluster.loop.run_for(500)
    assert partition.producers.forgotten_to == OLD
    assert partition.send(OLD + 1, 1) == REFUSED
    assert partition.send(OLD, 1) == (ErrorCode.NONE, 2)
