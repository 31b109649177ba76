"""Other programs write into /controller and /controller_epoch: a controller is elected, and leads.
Source: R-CTL1, R-CTL10."""

import pytest

from storage_engine.tests.broker.controller.foreign_znodes import (
    TP,
    all_are_known,
    cluster,
    next_controller,
    serves_what_is_sound,
)
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode, ControllerZNode

__all__ = ["cluster"]


def test_a_controller_whose_node_others_change_sets_it_right(cluster):
    cluster.zookeeper.put(ControllerZNode.PATH, b"garbage")
    cluster.loop.run_for(100)
    data = cluster.zookeeper.data(ControllerZNode.PATH)
    assert ControllerZNode.decode(data).broker_id == cluster.controller.id
    # One that starts now asks ZooKeeper who the controller is.
    follower = next(broker for broker in cluster.brokers if broker is not cluster.controller)
    follower.kill(session_ends_at_once=True)
    follower.start()
    serves_what_is_sound(cluster, "after")


@pytest.mark.parametrize("below", ["", "/x", "/x/y"])
def test_a_controllers_node_that_is_no_sessions_ends_no_elections(cluster, below):
    old = cluster.controller
    old.kill(session_ends_at_once=True)
    path = f"{ControllerZNode.PATH}{below}"
    cluster.zookeeper.make_parents(path)
    cluster.zookeeper.put(path, b"garbage")
    cluster.loop.run_until(lambda: cluster.controller not in (None, old), limit_ms=10_000)
    old.start()
    serves_what_is_sound(cluster, "after")


@pytest.mark.parametrize("epoch", [b"", b"3000000000", b"9" * 5000, b"one"])
def test_an_epoch_that_can_not_be_read_elects_nobody_and_stops_no_leader(cluster, epoch):
    cluster.zookeeper.put(ControllerEpochZNode.PATH, epoch)
    assert cluster.produced(TP, b"goes on") == 1
    cluster.loop.run_for(10_000)
    assert cluster.produced(TP, b"still") == 2
    cluster.zookeeper.put(ControllerEpochZNode.PATH, b"50")
    serves_what_is_sound(cluster, "after")


@pytest.mark.parametrize("epoch", [b"0", b"100", b"150", None])
def test_an_epoch_that_others_touched_is_passed_at_once(cluster, epoch):
    """Set to the number that it has, lowered by much, or removed: no broker refuses the orders of
    the next controller for longer than an election takes."""
    for number in range(10):
        assert cluster.create_topic(f"t{number}").error_code == 0
    cluster.zookeeper.put(ControllerEpochZNode.PATH, b"149")
    next_controller(cluster)
    all_are_known(cluster)
    if epoch is None:
        cluster.zookeeper.drop(ControllerEpochZNode.PATH)
    else:
        cluster.zookeeper.put(ControllerEpochZNode.PATH, epoch)
    cluster.loop.run_for(100)
    cluster.create_topic("next")
    cluster.loop.run_until(
        lambda: all("next" in broker.metadata for broker in cluster.brokers),
        limit_ms=10_000,
    )
    assert int(cluster.zookeeper.data(ControllerEpochZNode.PATH)) == 151
    serves_what_is_sound(cluster, "after")
