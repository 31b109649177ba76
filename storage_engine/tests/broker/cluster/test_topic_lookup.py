"""Whether a topic is gone: only what ZooKeeper itself says counts."""

import pytest

from storage_engine.broker.cluster.topic_lookup import FoundTopic, TopicLookup
from storage_engine.core.ports import ZkReply, ZkStatus
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode
from storage_engine.zookeeper.znodes.cluster_znodes import ClusterIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode


class Nodes:
    """A ZooKeeper that answers at once."""

    def __init__(self, **nodes: bytes) -> None:
        self.nodes = {ClusterIdZNode.PATH: ClusterIdZNode(cluster_id="c").encode(), **nodes}
        self.silent = ""
        """A path that nothing is heard of."""

    def get(self, path: str, on_reply, watch=None) -> None:
        if path == self.silent:
            on_reply(ZkReply(status=ZkStatus.UNKNOWN))
        elif path in self.nodes:
            on_reply(ZkReply(status=ZkStatus.OK, data=self.nodes[path]))
        else:
            on_reply(ZkReply(status=ZkStatus.NO_NODE))

    exists = get

    def told(self, topic: str) -> FoundTopic | None:
        told: list[FoundTopic | None] = []
        TopicLookup(self, "c").look_up(topic, told.append)
        return told[0]


TOPIC = b'{"version": 1, "partitions": {"0": [1], "2": [1]}}'


CHILD, PATH = DeleteTopicsZNode.topic_path("t"), TopicZNode.path("t")


JSON_OF_T = DeleteTopicsZNode(topics=("t",)).encode()


JSON_OF_U = DeleteTopicsZNode(topics=("u",)).encode()


@pytest.mark.parametrize(
    ("nodes", "there", "is_requested"),
    [
        ({}, set(), False),
        ({PATH: TOPIC}, {0, 2}, False),
        ({PATH: TOPIC, CHILD: b""}, {0, 2}, True),
        ({PATH: TOPIC, DeleteTopicsZNode.PATH: JSON_OF_T}, {0, 2}, True),
        ({PATH: TOPIC, DeleteTopicsZNode.PATH: JSON_OF_U}, {0, 2}, False),
        ({PATH: TOPIC, DeleteTopicsZNode.PATH: b"{"}, {0, 2}, False),
    ],
)
def test_a_topic_is_gone_only_if_zookeeper_itself_says_so(nodes, there, is_requested):
    assert Nodes(**nodes).told("t") == FoundTopic(frozenset(there), is_requested)


@pytest.mark.parametrize(
    "nodes",
    [
        {PATH: b"{"},
        {PATH: b"{", CHILD: b""},
        {ClusterIdZNode.PATH: ClusterIdZNode(cluster_id="another").encode()},
        {ClusterIdZNode.PATH: b"{"},
    ],
)
def test_nothing_is_concluded_from_a_node_that_can_not_be_believed(nodes):
    assert Nodes(**nodes).told("t") is None


@pytest.mark.parametrize("path", [ClusterIdZNode.PATH, PATH, CHILD, DeleteTopicsZNode.PATH])
def test_nothing_is_concluded_from_what_is_not_heard(path):
    zookeeper = Nodes(**{PATH: TOPIC, DeleteTopicsZNode.PATH: b""})
    zookeeper.silent = path
    assert zookeeper.told("t") is None
