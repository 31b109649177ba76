"""Leaders write ISRs to ZooKeeper and tell the controller what they have changed. Source: R-REP4,
R-CTL8, R-CTL10."""

from collections.abc import Iterator
from typing import Any

import pytest

from storage_engine.broker.replicas.isr_writer import IsrWriter
from storage_engine.broker.replicas.lease import LeaderLease
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import ZkReply, ZkStatus
from storage_engine.tests.broker.controller.reassigning import Moving
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.zookeeper.admin_znodes import IsrChangeZNode
from storage_engine.zookeeper.session import MAX_ZNODE_BYTES

TP = TopicPartition("t", 0)


cluster = cluster_fixture("t", has_record=True, replica_lag_time_max_ms="2000")


def test_the_parent_of_the_notifications_is_made_again_when_others_remove_it(cluster):
    """The controller would go on with ISRs that are none, and elect by them."""
    cluster.zookeeper.drop(IsrChangeZNode.PARENT)
    leader = cluster.state(TP).leader
    follower = next(b for b in cluster.brokers if b.id not in (leader, cluster.controller.id))
    follower.pause()
    cluster.loop.run_until(lambda: follower.id not in cluster.state(TP).isr)
    core = cluster.controller.parts.cluster.controller.acting.core
    cluster.loop.run_until(lambda: follower.id not in core.state(TP).isr, limit_ms=5_000)
    follower.resume()
    cluster.loop.run_until(lambda: follower.id in core.state(TP).isr, limit_ms=20_000)


class Recorder:
    """ZooKeeper and the clock of one IsrWriter: says yes, and at once."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def create(self, path: str, data: bytes, on_reply: Any, **_options: Any) -> None:
        assert path == IsrChangeZNode.PREFIX
        self.written.append(data)
        on_reply(ZkReply(status=ZkStatus.OK))

    def call_later(self, _delay_ms: int, callback: Any) -> None:
        self.due = callback


def test_a_notification_of_many_changes_is_split_so_that_zookeeper_takes_it():
    recorder: Any = Recorder()
    writer = IsrWriter(
        recorder,
        recorder,
        local=1,
        lease=LeaderLease(lambda: True),
    )
    changed = {TopicPartition(f"{n:06d}" + "x" * 243, 2**31 - 1) for n in range(10_000)}
    for tp in changed:
        writer._notify(tp)
    recorder.due()
    assert max(map(len, recorder.written)) < MAX_ZNODE_BYTES
    told = [tp for data in recorder.written for tp in IsrChangeZNode.decode("", data).partitions]
    assert len(told) == len(changed)
    assert set(told) == changed


@pytest.fixture
def moving(tmp_path) -> Iterator[Moving]:
    made = Moving(tmp_path, 4)
    yield made
    made.close()


def test_the_controller_hears_of_the_last_replica_in_sync_all_the_same(moving):
    """It waits for the new replicas to be in the ISR; the leader finds out by reading that they
    are, and has to say so."""
    assert moving.controller is not None
    leader, second, third = (b.id for b in moving.brokers if b is not moving.controller)
    moving.create((leader, second))
    moving.produced(TP, b"first")
    moving.wait_in_sync(TP, leader, second)
    target = (leader, second, third)
    moving.ask_by_node({TP: target})
    moving.loop.run_until(lambda: moving.assigned(TP) == target)
    moving[leader].session.lose_answers = 1
    moving.wait_in_sync(TP, *target)
    assert moving[leader].session.lose_answers == 0, "the answer that was lost is that of the ISR"
    moving.wait_done(target)
