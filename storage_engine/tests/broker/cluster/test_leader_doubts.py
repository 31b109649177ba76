"""Clients are not sent to a leader that has just died, and find its successor soon (R-REP12)."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.cluster.leader_doubts import (
    CHANNEL,
    DOUBT_MS,
    GONE_MS,
    LOOKED_AT_MAX,
    PROBE_MS,
    LeaderDoubts,
    LeaderProbes,
)
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerEpoch, BrokerId, TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis.controlled_shutdown import API as CONTROLLED_SHUTDOWN
from storage_engine.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.protocol.messages.find_coordinator import FindCoordinatorRequest
from storage_engine.tests.protocol.apis.struct_classes import api_of

TP = TopicPartition("t", 0)
FIND_COORDINATOR = 10


def asked(cluster, broker, topics=("t",)):
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return cluster.ask(broker, METADATA, 12, request)


def metadata(cluster, broker, topics=("t",)):
    return cluster.answer(asked(cluster, broker, topics))


def leader_said_by(cluster, broker):
    """The leader, as a client hears it, and the brokers that are listed."""
    answer = metadata(cluster, broker)
    (row,) = answer.topics[0].partitions
    return row.leader, {each.broker_id for each in answer.brokers}


def two(cluster):
    """The leader, and another broker."""
    leader = cluster.state(TP).leader
    return leader, next(broker for broker in (1, 2, 3) if broker != leader)


def probes(cluster, broker):
    return [
        each
        for each in cluster.network.connections
        if (each.sender, each.channel) == (broker, CHANNEL)
    ]


def test_a_leader_whose_connections_broke_is_not_named_until_its_session_ends(topic):
    leader, other = two(topic)
    topic[leader].kill()
    topic.loop.run_for(5)
    assert leader_said_by(topic, other) == (-1, {1, 2, 3})


def test_a_client_that_asks_before_this_broker_has_noticed_does_not_hear_of_the_dead_leader(topic):
    leader, other = two(topic)
    assert leader_said_by(topic, other)[0] == leader
    answers = asked(topic, other)
    # The connections of a killed process do not all break in the same moment.
    topic.network.give_up_channel(leader, "fetch")
    topic[leader].kill()
    answer = topic.answer(answers)
    assert answer.topics[0].partitions[0].leader == -1


def test_a_false_alarm_ends_when_the_leader_answers_again(topic):
    leader, other = two(topic)
    topic.network.reset(leader, other)
    topic.loop.run_for(5)
    assert topic[other].parts.cluster.doubts.current() == {leader}
    topic.loop.run_for(100)
    assert topic[other].parts.cluster.doubts.current() == frozenset()
    assert leader_said_by(topic, other)[0] == leader


def test_where_only_the_way_between_two_brokers_is_cut_the_controllers_word_counts_again(topic):
    leader, other = two(topic)
    topic.network.cut(leader, other)
    topic.loop.run_for(100)
    assert topic[other].parts.cluster.doubts.current() == {leader}
    topic.loop.run_for(DOUBT_MS)
    assert topic.state(TP).leader == leader
    assert leader_said_by(topic, other)[0] == leader


def test_a_silent_leader_delays_what_clients_hear_and_is_not_named_until_it_answers(topic):
    """No connection to a dark machine breaks."""
    leader, other = two(topic)
    topic.network.hold_up(leader, other)
    answers = asked(topic, other)
    began_ms = topic.loop.now_ms
    answer = topic.answer(answers)
    assert PROBE_MS <= topic.loop.now_ms - began_ms < PROBE_MS + 20
    assert answer.topics[0].partitions[0].leader == -1
    assert leader_said_by(topic, other) == (-1, {1, 2, 3})
    topic.network.heal()
    topic.loop.run_for(DOUBT_MS // 4)
    assert leader_said_by(topic, other)[0] == leader


def test_all_that_wait_for_a_leader_share_a_probe(topic):
    leader, other = two(topic)
    topic.network.hold_up(leader, other)
    many = [asked(topic, other) for _ in range(50)]
    topic.loop.run_for(5)
    (connection,) = probes(topic, other)
    assert len(connection._in_flight) == 1
    for answers in many:
        assert topic.answer(answers).topics[0].partitions[0].leader == -1
    # Nobody is remembered who waits no longer.
    assert list(topic[other].parts.cluster.probes._under_way.values()) == [{}]


def test_who_asks_about_no_topic_waits_for_nobody(topic):
    leader, other = two(topic)
    topic.network.hold_up(leader, other)
    began_ms = topic.loop.now_ms
    metadata(topic, other, topics=())
    assert topic.loop.now_ms - began_ms < PROBE_MS


def test_a_coordinator_that_has_just_died_is_not_named(topic):
    spec, _ = api_of(FIND_COORDINATOR)
    request = FindCoordinatorRequest(key="group", key_type=0)

    def found(broker):
        return topic.answer(topic.ask(broker, spec, 3, request))

    topic.loop.run_until(lambda: found(1).error_code == 0)
    coordinator = found(1).node_id
    other = next(broker for broker in (1, 2, 3) if broker != coordinator)
    topic.loop.run_until(lambda: found(other).error_code == 0)
    topic[coordinator].kill()
    topic.loop.run_for(5)
    assert ErrorCode.of(found(other).error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_follower_asks_again_at_once_after_a_lost_connection_and_then_less_and_less_often(topic):
    leader, other = two(topic)
    topic.network.reset(leader, other)
    topic.loop.run_for(100)
    # It follows again, long before replica.fetch.backoff.ms.
    topic.produced(TP, b"second")
    topic.wait_in_sync(TP, 1, 2, 3)
    network = topic.network
    network.cut(leader, other)
    before = next(network.correlation_ids)
    topic.loop.run_for(10_000)
    assert next(network.correlation_ids) - before < 200


def test_a_probe_of_an_incarnation_that_is_gone_says_nothing_of_the_one_after_it():
    before = BrokerInfo(broker_id=BrokerId(2), host="b", port=1, epoch=BrokerEpoch(10))
    led = {0: SimpleNamespace(leader=2)}
    metadata = SimpleNamespace(brokers={2: before}, partitions=lambda _: led)
    loop, replies = SimulatedLoop(), []
    transport = SimpleNamespace(
        request=lambda *args, on_reply, **more: replies.append(on_reply),
        disconnect=lambda *args: None,
    )
    doubts = LeaderDoubts(metadata, loop)
    probes = LeaderProbes(
        BrokerId(1), metadata=metadata, doubts=doubts, transport=transport, scheduler=loop
    )
    probes.ask(["t"], lambda: None)
    metadata.brokers[2] = replace(before, epoch=BrokerEpoch(11))
    replies[0](TransportError(reason="gone"))
    assert not doubts.current()
    probes.ask(["t"], lambda: None)
    replies[1](TransportError(reason="gone"))
    assert doubts.current() == {2}


def test_a_request_that_names_very_many_topics_costs_a_look_at_some_of_them():
    loop = SimulatedLoop()
    metadata = SimpleNamespace(brokers={}, partitions=lambda _topic: None)
    probes = LeaderProbes(
        BrokerId(1),
        metadata=metadata,
        doubts=LeaderDoubts(metadata, loop),
        transport=None,
        scheduler=loop,
    )
    left = iter([f"t{number}" for number in range(100_000)])
    asked = []
    probes.ask(left, lambda: asked.append(True))
    assert asked == [True]
    assert sum(1 for _ in left) == 100_000 - LOOKED_AT_MAX


@pytest.fixture
def one_client(topic, monkeypatch):
    """All requests come on the same connection."""
    monkeypatch.setattr(topic.network, "connection_numbers", itertools.repeat(7))
    return topic


def test_a_client_hears_that_a_leader_is_gone_before_it_hears_of_the_next_one(one_client):
    """librdkafka may forget who leads where the same answer leaves out the leader that it knew."""
    topic = one_client
    leader, other = two(topic)
    topic[leader].kill()
    known = topic[other].parts.cluster.metadata
    topic.loop.run_until(lambda: known.partitions("t")[0].leader not in (leader, -1))
    named, rest = known.partitions("t")[0].leader, {1, 2, 3} - {leader}
    doubts = topic[other].parts.cluster.doubts
    assert doubts.untold(71) == {leader}
    assert doubts.untold(71) == frozenset()
    assert doubts.untold(72) == {leader}
    doubts._told.clear()
    every = topic.answer(topic.ask(other, METADATA, 12, MetadataRequest(topics=None)))
    assert [row.leader for row in every.topics[0].partitions] == [named]
    assert leader_said_by(topic, other) == (-1, rest)
    assert leader_said_by(topic, other) == (named, rest)
    topic.loop.run_for(GONE_MS)
    assert doubts.untold(73) == frozenset()
    topic.loop.run_for(DOUBT_MS)
    assert doubts.untold(74) == frozenset()
    assert doubts._told == set()


def gone_for(topic, broker, asked_of):
    """Waits until a broker has heard that another one is gone."""
    known = topic[asked_of].parts.cluster.metadata
    topic.loop.run_until(lambda: broker not in known.brokers)


def test_a_leader_that_lives_is_named_though_a_follower_has_just_gone(topic):
    """Else all clients of its partitions would pause, whatever they have heard."""
    leader, other = two(topic)
    follower = next(broker for broker in (1, 2, 3) if broker not in (leader, other))
    topic[follower].kill()
    gone_for(topic, follower, other)
    assert topic[other].parts.cluster.doubts.untold(71) == {follower}
    assert leader_said_by(topic, other) == (leader, {leader, other})


def test_a_broker_that_gave_up_its_leaders_before_it_stopped_leaves_no_pause_behind(topic):
    leader, other = two(topic)
    request = ControlledShutdownRequest(broker_id=leader, broker_epoch=topic[leader].broker_epoch)
    answers = topic.ask(topic.controller.id, CONTROLLED_SHUTDOWN, 0, request)
    assert topic.answer(answers).error_code == 0
    known = topic[other].parts.cluster.metadata
    topic.loop.run_until(lambda: known.partitions("t")[0].leader != leader)
    topic[leader].stop()
    gone_for(topic, leader, other)
    assert topic[other].parts.cluster.doubts.untold(71) == {leader}
    successor = topic.state(TP).leader
    assert leader_said_by(topic, other) == (successor, {1, 2, 3} - {leader})


def test_who_has_asked_about_no_topic_has_not_heard_of_any_leader(one_client):
    """librdkafka asks so for the brokers alone."""
    topic = one_client
    leader, other = two(topic)
    topic[leader].kill()
    known = topic[other].parts.cluster.metadata
    topic.loop.run_until(lambda: known.partitions("t")[0].leader not in (leader, -1))
    assert metadata(topic, other, topics=()).topics == []
    assert leader_said_by(topic, other)[0] == -1
    assert leader_said_by(topic, other)[0] == known.partitions("t")[0].leader


def test_what_a_broker_led_before_it_died_an_earlier_time_is_no_news():
    dead = BrokerInfo(broker_id=BrokerId(2), host="b", port=1, epoch=BrokerEpoch(10))
    metadata = SimpleNamespace(brokers={})
    loop = SimulatedLoop()
    doubts = LeaderDoubts(metadata, loop)
    metadata.on_departed(dead)
    metadata.on_leader_replaced(TP, BrokerId(2))
    assert doubts.replaced == {TP: 2}
    metadata.on_departed(dead)
    assert doubts.replaced == {}
    metadata.on_leader_replaced(TP, BrokerId(2))
    loop.run_for(GONE_MS)
    assert doubts.untold(5) == frozenset()
    assert doubts.replaced == {}
    metadata.on_leader_replaced(TP, BrokerId(2))
    assert doubts.replaced == {}, "elected long after the death: clients know that"


def test_a_client_that_has_heard_of_the_doubt_hears_of_the_next_leader_at_once():
    dead = BrokerInfo(broker_id=BrokerId(2), host="b", port=1, epoch=BrokerEpoch(10))
    metadata = SimpleNamespace(brokers={2: dead})
    loop = SimulatedLoop()
    doubts = LeaderDoubts(metadata, loop)
    doubts.lost(BrokerId(2))
    assert doubts.untold(5) == frozenset()
    loop.run_for(40)
    del metadata.brokers[2]
    metadata.on_departed(dead)
    assert doubts.untold(5) == frozenset()
    assert doubts.untold(6) == {2}
    assert doubts.untold(6) == frozenset()


def test_where_a_session_has_ended_long_after_the_doubt_clients_hear_of_that_first():
    hung = BrokerInfo(broker_id=BrokerId(2), host="b", port=1, epoch=BrokerEpoch(10))
    metadata = SimpleNamespace(brokers={2: hung})
    loop = SimulatedLoop()
    doubts = LeaderDoubts(metadata, loop)
    doubts.lost(BrokerId(2))
    assert doubts.untold(5) == frozenset()
    loop.run_for(DOUBT_MS)
    del metadata.brokers[2]
    metadata.on_departed(hung)
    assert doubts.untold(5) == {2}
    metadata.brokers[2] = replace(hung, epoch=BrokerEpoch(11))
    assert doubts.untold(6) == frozenset()
