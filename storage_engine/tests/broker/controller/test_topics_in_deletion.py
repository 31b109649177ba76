"""A topic is deleted while a broker with one of its replicas is dead: its node stays in ZooKeeper
until that broker is back, and what was written to it in a transaction holds up nobody."""

from types import SimpleNamespace
from typing import Any

import pytest

from storage_engine.broker.cluster.topic_admin import FoundTopic, TopicLookup
from storage_engine.broker.transactions.marker_sender import MarkerSender
from storage_engine.broker.transactions.marker_writes import (
    response_of_codes,
    targets_of_request,
)
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerEpoch, BrokerId, TopicPartition
from storage_engine.core.ports import ZkReply, ZkStatus
from storage_engine.core.transactions.transaction_events import SendMarkers
from storage_engine.core.transactions.transaction_state import TransactionState
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.transactions.test_batch_commits import commit, joined
from storage_engine.tests.broker.transactions.test_transactions import log_of, producer, settle
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode
from storage_engine.zookeeper.znodes.cluster_znodes import ClusterIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


cluster = cluster_fixture("a", "b", transaction_state_log_num_partitions="3")


def kill_a_replica(cluster, coordinator: int) -> int:
    """Of a broker that has nothing to do with the transaction but that replica."""
    dead = next(b for b in (1, 2, 3) if b not in (coordinator, cluster.controller.id))
    cluster[dead].kill(session_ends_at_once=True)
    cluster.loop.run_for(3_000)
    return dead


def delete(cluster, topic: str) -> None:
    cluster.delete_topic(topic)
    cluster.loop.run_for(2_000)
    nodes: list[ZkReply] = []
    cluster.controller.parts.ports.metadata_store.get(TopicZNode.path(topic), nodes.append)
    cluster.loop.run_until(lambda: bool(nodes))
    assert nodes[0].ok, "it waits for the dead broker"


def test_a_transaction_ends_though_a_broker_with_a_replica_of_its_topic_is_dead(cluster):
    first = producer(cluster)
    first.add(A, B)
    first.write(A, b"1")
    first.write(B, b"1")
    dead = kill_a_replica(cluster, first.coordinator())
    delete(cluster, "b")
    first.end(commits=True)
    cluster.loop.run_for(3_000)
    coordinator = cluster[first.coordinator()].parts.coordinators.transactions.coordinator_of("p")
    assert coordinator.producers.get("p").state is TransactionState.COMPLETE_COMMIT
    settle(cluster, A)
    cluster[dead].start()
    cluster.loop.run_for(30_000)
    assert cluster.create_topic("b").error_code == 0
    second = producer(cluster, "q")
    second.add(B)
    second.write(B, b"2")
    second.end(commits=True)
    settle(cluster, B)
    assert log_of(cluster, B).log.log_end_offset == 2


def test_a_sinks_query_goes_on_though_a_broker_with_a_replica_is_dead(cluster):
    task = joined(cluster, 0).wrote(A, B)
    kill_a_replica(cluster, task.coordinator())
    delete(cluster, "b")
    assert commit(cluster, 0, task) is ErrorCode.NONE
    settle(cluster, A)
    cluster.loop.run_for(1_000)
    assert commit(cluster, 1, joined(cluster, 1).wrote(A)) is ErrorCode.NONE


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


class View(dict[str, dict[int, Any]]):
    """What the controller has told this broker: partitions by topic, none with a leader."""

    is_initialized = True
    partitions = dict.get

    def __init__(self, **topics: dict[int, Any]) -> None:
        super().__init__(topics)
        self.brokers: dict[int, Any] = {}


def dropped(zookeeper: Nodes, view: View) -> set[TopicPartition]:
    """Partitions 0, 1 and 2 of the topic that count as written without a marker."""
    dropped: set[TopicPartition] = set()
    asked: list[tuple[Any, ...]] = []
    sender: Any = MarkerSender(
        coordinator_epoch=1,
        broker_id=1,
        metadata=view,
        topics=SimpleNamespace(look_up=lambda *question: asked.append(question)),
        transport=None,
        scheduler=SimpleNamespace(call_soon=lambda act: act(), call_later=lambda *_: None),
        writes=None,
        on_written=lambda _id, _epoch, partitions: dropped.update(partitions),
    )
    marked = frozenset(TopicPartition("t", number) for number in range(3))
    sender.send(SendMarkers(producer_id=7, producer_epoch=0, commits=True, partitions=marked))
    for question in asked:
        TopicLookup(zookeeper, "c").look_up(*question)
    return dropped


REQUESTS = [{CHILD: b""}, {DeleteTopicsZNode.PATH: JSON_OF_T}]


@pytest.mark.parametrize("request_nodes", [{}, *REQUESTS])
def test_a_partition_of_a_topic_that_the_controller_tells_of_is_gone_only_by_the_node(
    request_nodes,
):
    """The controller refuses the request, and this broker has not heard of all partitions yet."""
    view = View(t={0: SimpleNamespace(leader=1)})
    zookeeper = Nodes(**{PATH: TOPIC, **request_nodes})
    assert dropped(zookeeper, view) == {TopicPartition("t", 1)}


@pytest.mark.parametrize("request_nodes", REQUESTS)
def test_all_partitions_of_a_topic_in_deletion_are_gone_once_the_controller_tells_of_none(
    request_nodes,
):
    zookeeper = Nodes(**{PATH: TOPIC, **request_nodes})
    assert len(dropped(zookeeper, View())) == 3


class Ends:
    """The ends of transactions of one producer under one epoch, in a topic whose partition 0 is led
    by broker 2 and whose partition 1 by nobody."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.looked_up: list[Any] = []
        self.retries: list[Any] = []
        self.written: list[frozenset[TopicPartition]] = []
        self.view = View()
        leader = BrokerInfo(broker_id=BrokerId(2), host="h", port=1, epoch=BrokerEpoch(1))
        self.view.brokers = {2: leader}
        self.make_topic()
        sender: Any = MarkerSender(
            coordinator_epoch=1,
            broker_id=1,
            metadata=self.view,
            topics=SimpleNamespace(look_up=lambda _topic, told: self.looked_up.append(told)),
            transport=SimpleNamespace(
                request=lambda *message, on_reply, **_: self.asked.append((message[-1], on_reply))
            ),
            scheduler=SimpleNamespace(
                call_soon=lambda act: act(), call_later=lambda _ms, act: self.retries.append(act)
            ),
            writes=None,
            on_written=lambda _id, _epoch, some: self.written.append(some),
        )
        self._sender = sender

    def make_topic(self) -> None:
        self.view["t"] = {0: SimpleNamespace(leader=2), 1: SimpleNamespace(leader=-1)}

    def delete_topic(self) -> None:
        """ZooKeeper is asked, too."""
        del self.view["t"]
        self.retries.pop()()

    def send(self, *numbers: int) -> None:
        marked = frozenset(TopicPartition("t", number) for number in numbers)
        self._sender.send(
            SendMarkers(producer_id=7, producer_epoch=0, commits=True, partitions=marked)
        )

    def answer(self, number: int) -> None:
        request, on_reply = self.asked[number]
        targets = list(targets_of_request(request))
        on_reply(_returned(response_of_codes(targets, [ErrorCode.NONE])))


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GONE = FoundTopic(partitions=frozenset())


def test_a_late_answer_about_a_topic_that_is_no_more_is_none_about_its_successor():
    """The client begins its next transaction under the same epoch, in a topic that was made anew
    while the leader of the former one kept its answer back."""
    ends = Ends()
    ends.send(0, 1)
    ends.delete_topic()
    ends.looked_up.pop()(GONE)
    assert ends.written == [{T0, T1}]
    ends.make_topic()
    ends.send(0)
    assert len(ends.asked) == 2
    ends.answer(0)
    assert len(ends.written) == 1
    ends.answer(1)
    assert ends.written[1:] == [{T0}]


def test_a_topic_that_was_made_anew_while_zookeeper_was_asked_is_not_gone():
    """The marker of a transaction in the new one would never be written."""
    ends = Ends()
    ends.send(0, 1)
    ends.delete_topic()
    ends.make_topic()
    ends.looked_up.pop()(GONE)
    assert ends.written == []
    ends.answer(0)
    assert ends.written == [{T0}]


def _returned(steps: Any) -> Any:
    """What steps return in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
