"""Who has been told that a topic is made, grown or deleted may ask any live broker about it; a
broker that hangs or is cut off delays that a little and makes nothing fail. Real brokers, simulated
ZooKeeper and network. Source: R-CTL6."""

from collections.abc import Callable
from functools import partial

from simulation.world.broker import SESSION_TIMEOUT_MS, SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.controller.acting_controller import TELL_MS
from storage_engine.broker.controller.controller_channel import RETRY_MAX_MS
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import create_partitions
from storage_engine.protocol.messages.create_partitions import CreatePartitionsRequest

SLOW_MS = 700
"""What the controller sends to one broker is held up for so long."""


def partitions_known(cluster: SimulatedCluster, topic: str) -> list[int]:
    """The number of partitions that each broker would tell of."""
    metadata = [broker.parts.cluster.metadata for broker in cluster.brokers]
    return [len(each.partitions(topic) or ()) for each in metadata]


def grow(cluster: SimulatedCluster, topic: str, count: int, *, timeout_ms: int = 30_000) -> int:
    row = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[row], timeout_ms=timeout_ms, validate_only=False)
    answers = cluster.ask_controller(create_partitions.API, 3, request)
    return int(cluster.answer(answers).results[0].error_code)


def slow_one(cluster: SimulatedCluster) -> SimulatedBroker:
    """A broker that hears late from the controller."""
    cluster.loop.run_until(lambda: cluster.controller is not None)
    controller = cluster.controller
    assert controller is not None
    late = next(broker for broker in cluster.brokers if broker is not controller)
    cluster.network.hold_up(controller.id, late.id)
    cluster.loop.call_later(SLOW_MS, cluster.network.heal)
    return late


def took_ms(cluster: SimulatedCluster, act: Callable[[], object]) -> int:
    before_ms = cluster.loop.now_ms
    act()
    return cluster.loop.now_ms - before_ms


def test_what_is_answered_is_known_to_the_slowest_broker(cluster):
    slow_one(cluster)
    assert cluster.create_topic("t", 2).error_code == 0
    assert partitions_known(cluster, "t") == [2, 2, 2]
    slow_one(cluster)
    assert grow(cluster, "t", 3) == 0
    assert partitions_known(cluster, "t") == [3, 3, 3]
    slow_one(cluster)
    assert cluster.answer(cluster.delete_topic("t")).responses[0].error_code == 0
    assert partitions_known(cluster, "t") == [0, 0, 0]


def test_a_broker_that_hangs_delays_an_answer_by_seconds_and_nothing_fails(topic):
    slow_one(topic).pause()
    grown = []
    short_ms = 300
    asked = [
        (short_ms, lambda: grown.append(grow(topic, "t", 2, timeout_ms=short_ms))),
        (TELL_MS, lambda: grown.append(grow(topic, "t", 3))),
    ]
    for expected_ms, ask in asked:
        assert expected_ms <= took_ms(topic, ask) < expected_ms + 200
    assert grown == [0, 0]


def test_a_broker_that_can_not_be_reached_is_waited_for_only_until_that_is_seen(topic):
    controller = topic.controller
    assert controller is not None
    topic.network.cut(controller.id, next(b.id for b in topic.brokers if b is not controller))
    for count in (2, 3):
        assert took_ms(topic, partial(grow, topic, "t", count)) < 2 * RETRY_MAX_MS


def test_a_broker_that_has_come_back_is_waited_for_again(topic):
    slow = slow_one(topic)
    slow.kill()
    assert grow(topic, "t", 2) == 0
    topic.loop.run_for(SESSION_TIMEOUT_MS)
    slow.start()
    topic.wait_in_sync(TopicPartition("t", 0), 1, 2, 3)
    slow_one(topic)
    assert grow(topic, "t", 3) == 0
    assert partitions_known(topic, "t") == [3, 3, 3]
