"""A topic's node that could not be read when its controller began, and was mended later.
Source: R-CTL2, R-CTL10."""

import pytest

from storage_engine.tests.broker.controller.foreign_topics import (
    PATH,
    TP,
    cluster,
    holds_everything,
    next_leader,
    remove,
    topic,
)
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, PartitionsZNode

__all__ = ["cluster", "topic"]

STATE = PartitionStateZNode.path("t", 0)


@pytest.mark.parametrize("removed", [STATE, PartitionsZNode.path("t")])
def test_a_state_that_was_removed_meanwhile_is_made_above_its_logs(topic, removed):
    """With a lower leader epoch the same ones would be given out a second time."""
    for _ in range(3):
        next_leader(topic)
    topic.wait_in_sync(TP, 1, 2, 3)
    leader_epoch = topic.state(TP).leader_epoch
    good = topic.zookeeper.data(PATH)
    old = topic.controller
    old.kill(session_ends_at_once=True)
    topic.zookeeper.put(PATH, b"garbage")
    remove(topic, removed)
    topic.loop.run_until(lambda: topic.controller not in (None, old))
    old.start()
    topic.loop.run_for(3000)
    topic.zookeeper.put(PATH, good)
    topic.loop.run_until(lambda: STATE in topic.zookeeper.nodes)
    assert topic.state(TP).leader_epoch > leader_epoch
    topic.wait_in_sync(TP, 1, 2, 3)
    holds_everything(topic)
