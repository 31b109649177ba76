"""The failover goes on only when a client could see that the step before is done."""

import pytest

from examples.flights import failover
from examples.flights.failover import Failover, PartitionView
from examples.flights.loader import LoadedDay
from storage_engine.core.ids import TopicPartition

A, B, C = (TopicPartition("flights", number) for number in range(3))


class Cluster:
    """Records what was done to it."""

    def __init__(self):
        self.done = []

    def kill_broker(self, broker_id):
        self.done.append(("kill", broker_id))

    def start_broker(self, broker_id):
        self.done.append(("start", broker_id))
        return True


@pytest.fixture(autouse=True)
def no_time_away(monkeypatch):
    monkeypatch.setattr(failover, "SECONDS_AWAY", 0.0)


def view(leaders, in_sync=(1, 2, 3)):
    return {
        part: PartitionView(leader=leader, in_sync=in_sync)
        for part, leader in zip((A, B, C), leaders, strict=True)
    }


def test_the_broker_that_leads_most_is_killed():
    cluster = Cluster()
    timeline = Failover(cluster, lambda text: None)
    timeline.kill(view((2, 1, 2)))
    assert cluster.done == [("kill", 2)]
    assert timeline.led == [A, C]


def test_it_is_started_only_after_all_its_partitions_have_other_leaders():
    cluster = Cluster()
    timeline = Failover(cluster, lambda text: None)
    timeline.kill(view((2, 1, 2)))
    for leaders in ((2, 1, 2), (3, 1, -1), (3, 1, 2)):
        timeline.step(view(leaders))
        timeline.step(view(leaders))
    assert cluster.done == [("kill", 2)]
    timeline.step(view((3, 1, 1)))
    timeline.step(view((3, 1, 1)))
    assert cluster.done == [("kill", 2), ("start", 2)]


def test_it_is_over_when_the_broker_is_in_sync_everywhere():
    timeline = Failover(Cluster(), lambda text: None)
    timeline.kill(view((2, 1, 2)))
    for _ in range(3):
        timeline.step(view((3, 1, 1), in_sync=(1, 3)))
    assert not timeline.over
    timeline.step(view((3, 1, 1)))
    assert timeline.over


def test_the_producer_is_held_up_until_the_first_day_that_is_acknowledged_after_the_kill():
    days = [
        LoadedDay(records=1, sent_at=float(start), acknowledged_at=float(end))
        for start, end in ((1, 2), (2, 9), (9, 10))
    ]
    assert failover.first_acknowledged_after(days, 5.0) is days[1]
    assert failover.first_acknowledged_after(days, 11.0) is None
