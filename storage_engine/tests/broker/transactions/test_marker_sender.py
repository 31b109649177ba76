"""Markers are written by the leaders of their partitions, over failovers, and given up only where
ZooKeeper has the topic no more: a topic in deletion, with a replica on a dead broker, holds up
nobody (KIP-98)."""

from types import SimpleNamespace
from typing import Any

import pytest

from storage_engine.broker.cluster.topic_lookup import FoundTopic, TopicLookup
from storage_engine.broker.transactions.marker_sender import MarkerSender
from storage_engine.broker.transactions.marker_writes import response_of_codes, targets_of_request
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerEpoch, BrokerId, TopicPartition
from storage_engine.core.ports import ZkReply
from storage_engine.core.transactions.transaction_events import SendMarkers
from storage_engine.core.transactions.transaction_state import TransactionState
from storage_engine.tests.broker.cluster.test_topic_lookup import (
    CHILD,
    JSON_OF_T,
    PATH,
    TOPIC,
    Nodes,
)
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.transactions.test_batch_commits import commit, joined
from storage_engine.tests.broker.transactions.test_transactions import (
    aborted,
    log_of,
    producer,
    send_no_markers,
    settle,
)
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


cluster = cluster_fixture("a", "b", transaction_state_log_num_partitions="3")


def kill_a_replica(cluster, coordinator: int) -> int:
    """Kill a broker that has nothing to do with the transaction but a replica."""
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


class View(dict[str, dict[int, Any]]):
    """The partitions that the controller has told this broker of, by topic."""

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
    """The value that the steps return in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_outlives_the_coordinator_that_could_send_no_marker(cluster, commits):
    first = producer(cluster)
    first.add(A, B)
    first.write(A, b"1")
    first.write(B, b"1")
    coordinator = first.coordinator()
    for tp in (A, B):
        # No leader is where the coordinator is, and it can't reach them.
        if cluster.state(tp).leader == coordinator:
            other = next(b.id for b in cluster.brokers if b.id != coordinator)
            cluster.answer(cluster.reassign(tp, [other, coordinator]))
            cluster.loop.run_until(lambda tp=tp: cluster.state(tp).leader not in (-1, coordinator))
    send_no_markers(cluster[coordinator])
    first.end(commits=commits)
    assert log_of(cluster, A).last_stable_offset == 0
    cluster[coordinator].kill()
    settle(cluster, A, B)
    expected = [] if commits else [(first.producer_id, 0)]
    assert aborted(cluster, A) == aborted(cluster, B) == expected
    second = producer(cluster)
    assert second.producer_id == first.producer_id and second.epoch > first.epoch


def test_markers_for_a_deleted_topic_are_not_waited_for(cluster):
    first = producer(cluster)
    first.add(A, B)
    first.write(A, b"1")
    cluster.answer(cluster.delete_topic("b"))
    first.end(commits=True)
    settle(cluster, A)
    first.add(A)
    coordinator = cluster[first.coordinator()].parts.coordinators.transactions.coordinator_of("p")
    assert coordinator.producers.get("p").state is TransactionState.ONGOING
