"""Topics created and grown while the controller's connection to ZooKeeper breaks, or answers are
lost: real brokers, simulated ZooKeeper and network. Source: R-CTL5, R-CTL6.

The connection breaks at every moment of a creation, with what is under way done or not.
"""

from collections.abc import Callable
from typing import Any

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS, SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import ANSWER_MS, create_topic_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import create_partitions, create_topics
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.sampling import every_second
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode, ControllerZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

TP = TopicPartition("t", 0)
SETTINGS = {"retention.ms": "1000"}
AWAY_MS = 50
"""How long the connection is gone: a moment against the session's timeout."""
MOMENTS_MS = every_second(range(12))
"""Through all of a creation, whose every message takes 1 ms."""
BEFORE_THE_WRITE_MS = every_second(range(6))


cluster = cluster_fixture(
    prepare=lambda made: made.loop.run_until(lambda: made.controller is not None)
)


def controller_of(cluster: SimulatedCluster) -> SimulatedBroker:
    found = cluster.controller
    assert found is not None
    return found


def begin_creation(cluster: SimulatedCluster, topic: str = "t") -> list[Any]:
    request = create_topic_request(topic, 3, SETTINGS)
    return cluster.ask_controller(create_topics.API, 7, request)


def begin_growth(cluster: SimulatedCluster) -> list[Any]:
    item = create_partitions.CreatePartitionsRequest.CreatePartitionsTopic
    request = create_partitions.CreatePartitionsRequest(
        topics=[item(name="t", count=5, assignments=None)],
        timeout_ms=ANSWER_MS,
        validate_only=False,
    )
    return cluster.ask_controller(create_partitions.API, 3, request)


def begin_deletion(cluster: SimulatedCluster) -> list[Any]:
    return cluster.delete_topic("t")


def break_for_a_moment(cluster: SimulatedCluster, broker: SimulatedBroker, **how: bool) -> None:
    broker.session.cut_off(**how)
    cluster.loop.run_for(AWAY_MS)
    broker.session.reconnect()


def node_of(cluster: SimulatedCluster, topic: str = "t") -> TopicZNode:
    data = cluster.zookeeper.data(TopicZNode.path(topic))
    assert data is not None
    return TopicZNode.decode(topic, data)


def check_created(cluster: SimulatedCluster, answers: list[Any]) -> None:
    """Once, under the id that the client was told, with its settings, and of use."""
    result = cluster.answer(answers).topics[0]
    assert (result.error_code, result.error_message) == (0, None)
    assert node_of(cluster).topic_id == result.topic_id
    settings = cluster.zookeeper.data(ConfigZNode.topic_path("t"))
    assert settings is not None
    assert ConfigZNode.decode(ConfigZNode.topic_path("t"), settings).config == SETTINGS
    cluster.produced(TP, b"first")
    cluster.wait_in_sync(TP, 1, 2, 3)


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("moment_ms", MOMENTS_MS)
def test_a_creation_outlives_a_broken_connection(cluster, moment_ms: int, arrives: bool):
    controller = controller_of(cluster)
    answers = begin_creation(cluster)
    cluster.loop.run_for(moment_ms)
    break_for_a_moment(cluster, controller, arrives=arrives)
    check_created(cluster, answers)
    assert cluster.controller is controller


def test_a_creation_outlives_answers_lost_one_after_another(cluster):
    controller_of(cluster).session.lose_answers = 3
    check_created(cluster, begin_creation(cluster))


def test_a_creation_outlives_connections_that_break_again_and_again(cluster):
    controller = controller_of(cluster)
    answers = begin_creation(cluster)
    for arrives in (False, True) * 4:
        cluster.loop.run_for(3)
        break_for_a_moment(cluster, controller, arrives=arrives)
    check_created(cluster, answers)


@pytest.mark.parametrize("moment_ms", BEFORE_THE_WRITE_MS)
def test_a_topic_that_another_made_while_the_connection_was_broken_exists(cluster, moment_ms: int):
    controller = controller_of(cluster)
    answers = begin_creation(cluster)
    cluster.loop.run_for(moment_ms)
    controller.session.cut_off()
    other = b'{"version":2,"topic_id":"AAAAAAAAAAAAAAAAAAAAAg","partitions":{"0":[1,2,3]}}'
    cluster.zookeeper.put(TopicZNode.path("t"), other)
    cluster.loop.run_for(AWAY_MS)
    controller.session.reconnect()
    result = cluster.answer(answers).topics[0]
    assert ErrorCode.of(result.error_code) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert len(node_of(cluster).assignment) == 1


def test_a_creation_is_given_up_when_its_client_waits_no_more(cluster):
    controller = controller_of(cluster)
    answers = begin_creation(cluster)
    controller.session.lose_answers = 10_000
    path = TopicZNode.path("t")

    def undo(made: str, before: bytes | None, after: bytes | None) -> None:
        """ZooKeeper answers nothing, and keeps nothing of it."""
        if made == path and before is None and after is not None:
            cluster.loop.call_later(1, lambda: cluster.zookeeper.drop(path))

    cluster.zookeeper.on_write = undo
    result = cluster.answer(answers, limit_ms=2 * ANSWER_MS).topics[0]
    assert ErrorCode.of(result.error_code) is ErrorCode.REQUEST_TIMED_OUT
    cluster.loop.run_for(1000)
    controller.session.lose_answers = 0
    cluster.loop.run_for(ANSWER_MS)
    assert path not in cluster.zookeeper.nodes


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("moment_ms", MOMENTS_MS)
def test_a_growth_outlives_a_broken_connection(cluster, moment_ms: int, arrives: bool):
    check_created(cluster, begin_creation(cluster))
    controller = controller_of(cluster)
    answers = begin_growth(cluster)
    cluster.loop.run_for(moment_ms)
    break_for_a_moment(cluster, controller, arrives=arrives)
    result = cluster.answer(answers).results[0]
    assert (result.error_code, result.error_message) == (0, None)
    assert len(node_of(cluster).assignment) == 5
    cluster.produced(TopicPartition("t", 4), b"first")


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("moment_ms", every_second(range(1, 8)))
def test_who_waits_is_told_when_the_session_is_lost(cluster, moment_ms: int, arrives: bool):
    controller = controller_of(cluster)
    answers = begin_creation(cluster)
    cluster.loop.run_for(moment_ms)
    controller.session.cut_off(arrives=arrives)
    cluster.loop.run_for(SESSION_TIMEOUT_MS + 1)
    assert not answers
    controller.session.reconnect()
    result = cluster.answer(answers, limit_ms=1000).topics[0]
    assert ErrorCode.of(result.error_code) is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("begin", [begin_creation, begin_growth, begin_deletion])
@pytest.mark.parametrize("moment_ms", MOMENTS_MS)
def test_who_waits_is_told_when_the_controller_resigns_before_it_hears_of_its_write(
    cluster, begin: Callable[[SimulatedCluster], list[Any]], moment_ms: int
):
    """Its session lives, so the write is done, and another controller carries on."""
    if begin is not begin_creation:
        check_created(cluster, begin_creation(cluster))
    answers = begin(cluster)
    cluster.loop.run_for(moment_ms)
    cluster.zookeeper.drop(ControllerZNode.PATH)
    cluster.answer(answers, limit_ms=1000)


@pytest.mark.parametrize("moment_ms", MOMENTS_MS)
def test_a_topic_created_over_a_broken_connection_is_watched(cluster, moment_ms: int):
    """Others grow it by its node, and the controller hears of it."""
    controller = controller_of(cluster)
    answers = begin_creation(cluster)
    cluster.loop.run_for(moment_ms)
    break_for_a_moment(cluster, controller)
    check_created(cluster, answers)
    cluster.loop.run_for(2_000)
    present = node_of(cluster)
    grown = TopicZNode(
        topic="t",
        topic_id=present.topic_id,
        assignment={**present.assignment, 3: present.assignment[0]},
    )
    cluster.zookeeper.put(TopicZNode.path("t"), grown.encode())
    assert cluster.produced_when_there(TopicPartition("t", 3), b"first") == 0
    assert cluster.controller is controller
