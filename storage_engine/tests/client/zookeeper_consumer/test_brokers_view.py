"""Brokers and partitions as a group in ZooKeeper sees them, from znodes or from the brokers."""

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.client.loop import ClientLoop
from storage_engine.client.zookeeper_consumer.assignment import LedPartition
from storage_engine.client.zookeeper_consumer.brokers_view import AskedBrokers, RegisteredBrokers
from storage_engine.client.zookeeper_consumer.node_view import NodeView
from storage_engine.core.ids import NO_LEADER
from storage_engine.tests.client.zookeeper_consumer.zookeeper_group_world import World
from storage_engine.tests.net.serving import eventually
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def registered(world):
    nodes = NodeView(world.session(), world.loop, lambda: None)
    return RegisteredBrokers(nodes, "PLAINTEXT")


def test_only_znodes_that_a_session_holds_are_live_brokers(world, registered):
    world.server.put(BrokerIdZNode.path(9), BrokerIdZNode(broker_id=9, host="x", port=9).encode())
    assert registered.addresses() is None
    assert world.settled(registered.addresses) == "h:1,h:2,h:3"


def test_names_that_no_topic_can_have_are_none(world, registered):
    world.server.put(TopicZNode.path("a b"), b"")
    assert world.settled(registered.topics) == ("t",)


def test_partitions_have_their_leaders_and_a_topic_that_is_not_there_has_none(world, registered):
    assert registered.partitions("t") is None
    assert world.settled(lambda: registered.partitions("t")) == world.leaders("t")
    assert world.settled(lambda: registered.partitions("none")) == []


def test_brokers_that_are_asked_tell_partitions_without_leaders_and_what_is_new(fake):
    fake.add_topic("t", [1, 2])
    asked = AskedBrokers(Cluster(fake.bootstrap_servers), pause_ms=10)
    loop = ClientLoop("test")
    loop.start()
    try:
        assert (asked.topics(), asked.changes) == (("t",), 0)
        assert asked.partitions("t") == [LedPartition(NO_LEADER, 0), LedPartition(NO_LEADER, 1)]
        assert asked.addresses() == ",".join(sorted(fake.bootstrap_servers.split(",")))
        news = []
        asked.begin(loop, lambda: news.append(asked.topics()))
        # Leaders are no news: members learn of them at different times.
        fake.move_leader("t", 0, 3)
        before = fake.count("Metadata")
        eventually(lambda: fake.count("Metadata") > before + 3)
        assert news == []
        fake.add_topic("u", [1])
        eventually(lambda: bool(news))
        assert set(news[0]) == {"t", "u"} and asked.changes == 1
    finally:
        asked.close()
        loop.stop()
        loop.join(30_000)
