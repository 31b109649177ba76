"""Other programs remove the states of partitions that are in use, and put old ones back: nothing
acknowledged goes, over failovers. Nor where they write high epochs: a partition is led all the
same, or waits until its state is mended, or it is deleted. Source: R-CTL1, R-CTL2, R-CTL5, R-CTL6,
R-CTL10."""

import pytest

from simulation.world.zookeeper_session import SimulatedSession
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.controller.foreign_topics import (
    PATH,
    RECORDS,
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
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode
from storage_engine.zookeeper.znodes.topic_znodes import (
    PartitionStateZNode,
    PartitionsZNode,
    TopicZNode,
)

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


HIGHEST = 2**31 - 2


OTHER = TopicPartition("other", 0)


def exhaust(cluster):
    """The next controller finds the epoch, and that it has been restarted who led: another is to
    be elected, here and in another topic."""
    assert cluster.create_topic("other").error_code == 0
    assert cluster.produced(OTHER, b"first") == 0
    cluster.wait_in_sync(OTHER, 1, 2, 3)
    old = cluster.controller
    old.kill(session_ends_at_once=True)
    put(cluster, STATE, fields(cluster, STATE) | {"leader_epoch": HIGHEST, "leader": old.id})
    cluster.loop.run_until(lambda: cluster.controller not in (None, old))
    old.start()
    cluster.loop.run_for(5000)
    assert fields(cluster, STATE)["leader_epoch"] == HIGHEST
    assert cluster.produced(OTHER, b"second") == 1


def test_a_topic_with_the_highest_leader_epoch_is_deleted(topic):
    exhaust(topic)
    (deleted,) = topic.answer(topic.delete_topic("t")).responses
    assert deleted.error_code == 0
    assert PATH not in topic.zookeeper.nodes


def test_a_partition_is_led_once_its_epoch_is_mended(topic):
    """Under the same controller. (Replicas that were told of the highest one begin anew.)"""
    mended = fields(topic, STATE)["leader_epoch"] + 5
    exhaust(topic)
    controller = topic.controller
    put(topic, STATE, fields(topic, STATE) | {"leader_epoch": mended})
    topic.loop.run_until(lambda: fields(topic, STATE)["leader_epoch"] > mended, limit_ms=10_000)
    for broker in topic.brokers:
        if broker is not controller:
            broker.kill(session_ends_at_once=True)
            broker.start()
    topic.loop.run_for(5000)
    assert topic.controller is controller
    controller.kill(session_ends_at_once=True)
    controller.start()
    assert topic.produced(TP, b"next") == RECORDS
    topic.wait_in_sync(TP, 1, 2, 3)


@pytest.mark.parametrize("epoch", [2**21 - 1, 3_000_000])
def test_a_topic_made_between_two_controllers_of_a_high_epoch_is_led(cluster, epoch):
    old = cluster.controller
    old.kill(session_ends_at_once=True)
    cluster.zookeeper.put(ControllerEpochZNode.PATH, str(epoch).encode())
    cluster.zookeeper.put(TopicZNode.path("t"), b'{"version":1,"partitions":{"0":[1,2,3]}}')
    cluster.loop.run_until(lambda: cluster.controller not in (None, old))
    old.start()
    assert cluster.produced_when_there(TP, b"first") == 0
    next_controller(cluster)
    assert cluster.produced(TP, b"second") == 1
    cluster.wait_in_sync(TP, 1, 2, 3)


def test_a_state_removed_twice_while_nobody_is_controller_costs_no_record(topic):
    leader_epoch = topic.state(TP).leader_epoch
    for number, epoch in ((RECORDS, 3_000_000), (RECORDS + 1, None)):
        topic.zookeeper.drop(STATE)
        next_controller(topic, epoch=epoch)
        topic.wait_in_sync(TP, 1, 2, 3)
        assert topic.state(TP).leader_epoch > leader_epoch
        leader_epoch = topic.state(TP).leader_epoch
        assert topic.produced(TP, b"another") == number
    topic.wait_in_sync(TP, 1, 2, 3)
    for broker in topic.brokers:
        assert broker.logs.logs[TP].log_end_offset == RECORDS + 2
