"""R-CTL12: brokers of one machine know when one of them is dead, and do not wait for its session.

Sessions live a minute here, so that nothing but the proof can lead to an election before a test
gives up.
"""

import threading

import pytest
from kazoo.client import KazooClient

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.steady_producer import SteadyProducer, acknowledged_more, check_kept
from storage_engine.tests.sampling import ALL_FAULTS, in_full
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.zookeeper.access import ANYBODY
from storage_engine.zookeeper.foreign_sessions import ThreadedForeignSessions
from storage_engine.zookeeper.session_credentials import SessionZNode

SESSION_S = 60
LONG_SESSIONS = (("zookeeper.session.timeout.ms", str(SESSION_S * 1000)),)
BEFORE_IT_EXPIRES_S = SESSION_S * 0.75
ROUNDS = 5 if ALL_FAULTS else 1


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    """Three brokers whose sessions outlive every wait of these tests."""
    folder = tmp_path_factory.mktemp("patient")
    with running_cluster(folder, settings=LONG_SESSIONS) as cluster:
        yield cluster


def led_by_the_controller(cluster: LocalCluster, topic: str) -> int:
    """A partition of the topic whose leader is the controller."""
    client = admin(cluster)
    metadata = wait_until(lambda: client.list_topics(topic, timeout=30), "there is metadata")
    led = {p.leader: number for number, p in metadata.topics[topic].partitions.items()}
    return led[metadata.controller_id]


@in_full
def test_nothing_is_lost_or_doubled_when_a_killed_leader_is_replaced_at_once(patient):
    topic = "led-anew"
    create_topic(patient, topic, config={"min.insync.replicas": "2"})
    client = admin(patient)
    wait_for_isr(client, topic, 3)
    with SteadyProducer(patient.bootstrap_servers, topic) as producer:
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        dead = leader_of(client, topic)
        patient.kill_broker(dead)
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        assert patient.start_broker(dead)
        wait_for_isr(client, topic, 3)
        check_kept(patient.bootstrap_servers, topic, producer)


def test_a_killed_leader_that_is_controller_too_is_replaced_at_once(patient):
    topic = "led-by-the-controller"
    create_topic(patient, topic, partitions=3, config={"min.insync.replicas": "2"})
    client = admin(patient)
    for number in range(3):
        wait_for_isr(client, topic, 3, number)
    partition = led_by_the_controller(patient, topic)
    with SteadyProducer(patient.bootstrap_servers, topic, partition=partition) as producer:
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        dead = leader_of(client, topic, partition)
        patient.kill_broker(dead)
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        assert patient.start_broker(dead)
        wait_for_isr(client, topic, 3, partition)
        check_kept(patient.bootstrap_servers, topic, producer, partition=partition)


def test_a_leader_that_is_back_on_its_port_at_once_loses_nothing(patient):
    """Its successor and the other brokers close its session at the same time."""
    topic = "back-at-once"
    create_topic(patient, topic, config={"min.insync.replicas": "2"})
    client = admin(patient)
    wait_for_isr(client, topic, 3)
    with SteadyProducer(patient.bootstrap_servers, topic) as producer:
        for _ in range(ROUNDS):
            acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
            dead = leader_of(client, topic)
            patient.kill_broker(dead)
            assert patient.start_broker(dead)
            acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
            wait_for_isr(client, topic, 3)
        check_kept(patient.bootstrap_servers, topic, producer)


def test_a_living_leader_whose_session_somebody_closes_comes_back_and_loses_nothing(patient):
    """It is told at once, since its connection ends with the session; its process is untouched."""
    topic = "deposed"
    create_topic(patient, topic, config={"min.insync.replicas": "2"})
    client = admin(patient)
    wait_for_isr(client, topic, 3)
    zookeeper = KazooClient(patient.state.zookeeper)
    zookeeper.start()
    with SteadyProducer(patient.bootstrap_servers, topic) as producer:
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        deposed = leader_of(client, topic)
        before = session_of(zookeeper, deposed)
        close_session(patient.state.zookeeper, zookeeper, before)
        after = wait_until(
            lambda: session_of(zookeeper, deposed) not in (None, before),
            "it has another session",
            timeout_s=BEFORE_IT_EXPIRES_S,
        )
        assert after
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        wait_for_isr(client, topic, 3)
        check_kept(patient.bootstrap_servers, topic, producer)
    zookeeper.stop()
    zookeeper.close()


def session_of(zookeeper: KazooClient, broker_id: int) -> str | None:
    """The name of the znode of the broker's session."""
    names = zookeeper.get_children(SessionZNode.PARENT)
    return next((name for name in names if SessionZNode.broker_of(name) == broker_id), None)


def close_session(connect: str, zookeeper: KazooClient, name: str) -> None:
    """As a broker does that takes the owner for dead."""
    data, stat = zookeeper.get(f"{SessionZNode.PARENT}/{name}")
    password = SessionZNode.decode(name, data).password
    done = threading.Event()
    sessions = ThreadedForeignSessions(
        connect, SESSION_S * 1000, lambda work: work(), access=ANYBODY
    )
    sessions.end(stat.ephemeralOwner, password, lambda _is_over: done.set())
    assert done.wait(SESSION_S)
