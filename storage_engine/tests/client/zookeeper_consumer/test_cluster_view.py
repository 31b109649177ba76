"""The plan of a member is known only when everything that it follows from is (R-CLI3)."""

import pytest

from storage_engine.client.zookeeper_consumer.assignment import assign_topic
from storage_engine.client.zookeeper_consumer.brokers_view import RegisteredBrokers
from storage_engine.client.zookeeper_consumer.cluster_view import ClusterView
from storage_engine.client.zookeeper_consumer.node_view import NodeView
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.client.zookeeper_consumer.zookeeper_group_world import World
from storage_engine.zookeeper.consumer_znodes import ConsumerIdZNode


@pytest.fixture
def world():
    """Members a and b read t, c reads another topic."""
    made = World(1)
    made.server.make_parents(made.paths.id("a"))
    for name, streams in (("a", {"t": 1}), ("b", {"t": 2}), ("c", {"other": 1})):
        made.server.put(made.paths.id(name), ConsumerIdZNode(streams).encode())
    return made


@pytest.fixture
def view(world):
    nodes = NodeView(world.session(), world.loop, lambda: None)
    return ClusterView(nodes, world.paths, RegisteredBrokers(nodes, "PLAINTEXT"))


def test_the_plan_is_none_until_all_is_read_and_follows_the_members(world, view):
    def expected(streams):
        found = assign_topic("a", streams, world.leaders("t"))
        return {TopicPartition("t", number): stream for number, stream in found.items()}

    assert view.plan("a", {"t": 1}) is None
    assert world.settled(lambda: view.plan("a", {"t": 1})) == expected({"a": 1, "b": 2})
    changes = view.changes
    world.server.drop(world.paths.id("b"))
    assert world.settled(lambda: view.plan("a", {"t": 1})) == expected({"a": 1})
    assert view.changes > changes


@pytest.mark.parametrize("consumer", ["none", "c"])
def test_a_member_whose_znode_does_not_say_what_it_wants_has_no_plan(world, view, consumer):
    assert world.settled(lambda: view.plan(consumer, {"t": 1})) is None
    assert (view.plan(consumer, {}) is None) is (consumer == "none")


def test_a_member_with_a_znode_that_can_not_be_read_is_left_out(world, view):
    world.server.put(world.paths.id("b"), b"garbage")
    plan = world.settled(lambda: view.plan("a", {"t": 1}))
    assert len(plan) == world.partitions["t"]


def test_a_topic_that_is_not_there_has_no_partitions(world, view):
    world.server.put(world.paths.id("a"), ConsumerIdZNode({"none": 1}).encode())
    assert world.settled(lambda: view.plan("a", {"none": 1})) == {}
