"""Other programs remove the states of partitions that are in use, and put old ones back: nothing
acknowledged goes, over failovers. Source: R-CTL5, R-CTL10."""

import pytest

from simulation.world.zookeeper_session import SimulatedSession
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.controller.foreign_topics import (
    STATE,
    TP,
    cluster,
    fields,
    holds_everything,
    is_led_by,
    lead_elsewhere_than_controller,
    next_controller,
    next_leader,
    put,
    remove,
    topic,
)
from storage_engine.zookeeper.admin_znodes import IsrChangeZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

__all__ = ["cluster", "topic"]


@pytest.mark.parametrize("failover", [False, True])
def test_a_partition_whose_node_is_there_before_its_state_is_led(topic, failover):
    path = PartitionStateZNode.partition_path("tool", 0)
    topic.zookeeper.make_parents(path)
    topic.zookeeper.put(path, b"")
    if failover:
        topic.controller.kill(session_ends_at_once=True)
    put(topic, TopicZNode.path("tool"), {"version": 1, "partitions": {"0": [1, 2, 3]}})
    assert topic.produced_when_there(TopicPartition("tool", 0), b"first") == 0


def test_a_partition_whose_state_was_removed_gets_another_leader(topic):
    lead_elsewhere_than_controller(topic)
    topic.zookeeper.drop(STATE)
    next_leader(topic)
    holds_everything(topic)


def test_a_leader_has_a_state_that_was_removed_made_again(topic):
    """It finds that out when a follower dies; until the new state is there acks=all waits."""
    lead_elsewhere_than_controller(topic)
    topic.zookeeper.drop(STATE)
    leader = topic[next(b.id for b in topic.brokers if is_led_by(b))]
    follower = next(b for b in topic.brokers if b not in (leader, topic.controller))
    follower.kill(session_ends_at_once=True)
    topic.loop.run_until(lambda: STATE in topic.zookeeper.nodes)
    topic.wait_in_sync(TP, *sorted({1, 2, 3} - {follower.id}))
    follower.start()
    topic.wait_in_sync(TP, 1, 2, 3)
    holds_everything(topic)


@pytest.mark.parametrize("failover", [False, True])
@pytest.mark.parametrize("dead", ["leader", "follower"])
def test_a_state_that_was_put_back_is_written_on(topic, failover, dead):
    """Its node has lower versions than the one that leader and controller know."""
    lead_elsewhere_than_controller(topic)
    leader = topic[topic.state(TP).leader]
    follower = next(b for b in topic.brokers if b not in (leader, topic.controller))
    old = topic.zookeeper.data(STATE)
    topic.zookeeper.drop(STATE)
    follower.pause()
    topic.loop.run_for(2600)
    if STATE in topic.zookeeper.nodes:
        topic.zookeeper.drop(STATE)
    topic.zookeeper.put(STATE, old)
    follower.resume()
    topic.loop.run_for(3000)
    if failover:
        next_controller(topic)
    lead_elsewhere_than_controller(topic)
    leader = next(b for b in topic.brokers if is_led_by(b))
    victim = leader if dead == "leader" else follower
    victim.kill(session_ends_at_once=True)
    topic.wait_in_sync(TP, *sorted({1, 2, 3} - {victim.id}), limit_ms=60_000)
    victim.start()
    topic.wait_in_sync(TP, 1, 2, 3)
    holds_everything(topic)


@pytest.mark.parametrize("removed", [STATE, PartitionStateZNode.partition_path("t", 0)])
def test_the_next_controller_makes_a_state_that_was_removed(topic, removed):
    """Above the leader epochs that its replicas have in their logs."""
    next_leader(topic)
    topic.wait_in_sync(TP, 1, 2, 3)
    old = topic.controller
    old.kill(session_ends_at_once=True)
    remove(topic, removed)
    old.start()
    topic.loop.run_until(lambda: STATE in topic.zookeeper.nodes)
    topic.wait_in_sync(TP, 1, 2, 3)
    holds_everything(topic)


@pytest.mark.parametrize("dead", ["leader", "follower"])
def test_a_state_with_a_controller_epoch_of_nobody_is_taken(topic, dead):
    """No controller had that epoch, so none has followed."""
    lead_elsewhere_than_controller(topic)
    put(topic, STATE, fields(topic, STATE) | {"controller_epoch": 1000})
    leader = topic[topic.state(TP).leader]
    follower = next(b for b in topic.brokers if b not in (leader, topic.controller))
    victim = leader if dead == "leader" else follower
    victim.kill(session_ends_at_once=True)
    topic.wait_in_sync(TP, *sorted({1, 2, 3} - {victim.id}), limit_ms=60_000)
    victim.start()
    topic.wait_in_sync(TP, 1, 2, 3)
    holds_everything(topic)


def test_a_state_that_can_not_be_read_is_read_once_in_a_while(topic, monkeypatch):
    """However often it is told of, and whether its topic is known or not."""
    reads: list[str] = []
    get = SimulatedSession.get

    def counting(session, path, *arguments):
        if path == state:
            reads.append(path)
        return get(session, path, *arguments)

    assert topic.create_topic("other").error_code == 0
    for name in ("other", "ghost"):
        state = PartitionStateZNode.path(name, 0)
        topic.zookeeper.make_parents(state)
        good = topic.zookeeper.data(state)
        topic.zookeeper.put(state, b"garbage")
        for number in range(30):
            change = f"{IsrChangeZNode.PREFIX}9{number:03d}"
            partition = {"topic": name, "partition": 0}
            put(topic, change, {"version": 1, "partitions": [partition]})
            topic.loop.run_for(100)
        monkeypatch.setattr(SimulatedSession, "get", counting)
        topic.loop.run_for(60_000)
        monkeypatch.undo()
        assert len(reads) <= 13
        reads.clear()
        if good is not None:
            topic.zookeeper.put(state, good)
            next_leader_of = TopicPartition(name, 0)
            topic[topic.state(next_leader_of).leader].kill(session_ends_at_once=True)
            assert topic.produced(next_leader_of, b"first") == 0
            for broker in topic.brokers:
                if not broker.up:
                    broker.start()
            topic.loop.run_for(3000)
    holds_everything(topic)
