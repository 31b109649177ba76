"""`cordoned.log.dirs`: brokers and log dirs that get no new replicas. Source: R-REP13, KIP-1066."""

import json

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.settings.settings_requests import (
    BROKER,
    DELETE,
    DONE,
    SET,
    SOON_MS,
    alter,
    describe,
)
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

KEY = "cordoned.log.dirs"

cluster = cluster_fixture(brokers=4, log_dirs=2, default_replication_factor="3")


def assigned(cluster: SimulatedCluster, topic: str) -> set[int]:
    """The brokers of the topic's partitions."""
    data = cluster.zookeeper.data(TopicZNode.path(topic))
    assert data is not None
    node = TopicZNode.decode(topic, data)
    return {broker for replicas in node.assignment.values() for broker in replicas}


def cordon(cluster: SimulatedCluster, broker: int, value: str = "*") -> None:
    assert alter(cluster, broker, BROKER, str(broker), (KEY, SET, value)) == DONE
    cluster.loop.run_for(2 * SOON_MS)


def uncordon(cluster: SimulatedCluster, broker: int) -> None:
    assert alter(cluster, broker, BROKER, str(broker), (KEY, DELETE, None)) == DONE
    cluster.loop.run_for(2 * SOON_MS)


def registered(cluster: SimulatedCluster, broker: int) -> BrokerIdZNode:
    data = cluster.zookeeper.data(BrokerIdZNode.path(broker))
    assert data is not None
    return BrokerIdZNode.decode(broker, data)


def test_a_cordoned_broker_gets_no_replicas_of_new_topics_until_it_is_uncordoned(cluster):
    before = cluster[2].parts.cluster.registration.broker_epoch
    cordon(cluster, 2)
    assert cluster.create_topic("a", 8).error_code == 0
    assert assigned(cluster, "a") == {1, 3, 4}
    uncordon(cluster, 2)
    assert cluster.create_topic("b", 8).error_code == 0
    assert assigned(cluster, "b") == {1, 2, 3, 4}
    assert cluster[2].parts.cluster.registration.broker_epoch == before, "it never left"


def test_both_log_dirs_by_name_cordon_the_broker_and_one_does_not(cluster):
    first, second = map(str, cluster[2].config.log_dirs)
    cordon(cluster, 2, first)
    assert not registered(cluster, 2).is_cordoned
    cordon(cluster, 2, f"{first},{second}")
    assert registered(cluster, 2).is_cordoned


def test_new_replicas_go_to_the_log_dirs_that_are_not_cordoned(cluster):
    first, second = cluster[2].config.log_dirs
    cordon(cluster, 2, str(first))
    assert cluster.create_topic("t", 8).error_code == 0
    for partition in range(8):
        cluster.produced_when_there(TopicPartition("t", partition), b"first")
    made = {each.log.directory.parent for each in cluster[2].replicas}
    assert made == {second}


def test_more_replicas_than_brokers_that_take_them_are_refused_with_the_remedy(cluster):
    for broker in (2, 3):
        cordon(cluster, broker)
    answer = cluster.create_topic("t")
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "replication factor 3 is not possible with 2 brokers that take new replicas (2 more are "
        "cordoned): ask for 1 to 2, or uncordon some (cordoned.log.dirs)",
    )


def test_a_reassignment_to_a_cordoned_broker_is_refused_and_one_that_leaves_it_is_not(cluster):
    assert cluster.create_topic("t").error_code == 0
    tp = TopicPartition("t", 0)
    cluster.produced_when_there(tp, b"first")
    there = sorted(assigned(cluster, "t"))
    other = ({1, 2, 3, 4} - set(there)).pop()
    cordon(cluster, other)
    (row,) = cluster.answer(cluster.reassign(tp, [other, *there[1:]])).responses[0].partitions
    assert (row.error_code, row.error_message) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "the assignment of t-0 names brokers that take no new replicas, because of "
        f"cordoned.log.dirs: {other}; uncordon them first",
    )
    uncordon(cluster, other)
    cordon(cluster, there[0])
    # Other replicas of the partition may change, though one is on a cordoned broker.
    (row,) = cluster.answer(cluster.reassign(tp, [there[0], other])).responses[0].partitions
    assert row.error_code == 0, row.error_message
    cluster.loop.run_until(lambda: assigned(cluster, "t") == {there[0], other})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("/elsewhere", "/elsewhere is not in log.dirs: name some of "),
        ("*,/elsewhere", "* stands for all log dirs, and alone"),
    ],
)
def test_what_is_no_log_dir_is_refused(cluster, value, problem):
    code, message = alter(cluster, 2, BROKER, "2", (KEY, SET, value))
    assert code is ErrorCode.INVALID_CONFIG
    assert message is not None
    assert message.startswith(f"cordoned.log.dirs={value}: {problem}")
    assert describe(cluster, 2, BROKER, "2")[KEY].value == ""


def test_a_cordon_outlives_the_death_of_its_broker_and_of_the_controller(cluster):
    """Stored beside the other settings: the next incarnation registers with it."""
    cordon(cluster, 2)
    controller = cluster.controller
    assert controller is not None
    for dead in {cluster[2], controller}:
        dead.kill()
    cluster.loop.run_for(20_000)
    for dead in {cluster[2], controller}:
        dead.start()
    cluster.loop.run_until(lambda: all(len(b.metadata.brokers) == 4 for b in cluster.brokers))
    assert json.loads(cluster.zookeeper.data(BrokerIdZNode.path(2)) or b"")["cordoned"] is True
    assert cluster.create_topic("t", 8).error_code == 0
    assert assigned(cluster, "t") == {1, 3, 4}


def test_a_broker_that_is_killed_right_after_the_answer_comes_back_cordoned(cluster):
    """The setting is stored, and nobody has heard of it."""
    assert alter(cluster, 1, BROKER, "2", (KEY, SET, "*")) == DONE
    cluster[2].kill()
    cluster.loop.run_for(20_000)
    cluster[2].start()
    cluster.loop.run_until(lambda: all(len(b.metadata.brokers) == 4 for b in cluster.brokers))
    assert cluster.create_topic("t", 8).error_code == 0
    assert assigned(cluster, "t") == {1, 3, 4}
