"""R-CTL12: a broker that is killed is replaced at once, wherever its leaders' next machines are.

Sessions live a minute, so that nothing but the broker's own watcher can end one before a test gives
up: no other broker is on its machine.
"""

import os
import signal
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from benchmarks.machines.machine_cluster import MachineCluster
from integration_tests.machines.on_machines import cluster_on_machines
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.steady_producer import SteadyProducer, acknowledged_more, check_kept
from storage_engine.tests.sampling import in_full

SESSION_S = 60
BEFORE_IT_EXPIRES_S = SESSION_S * 0.75
WATCHER = "storage_engine.broker.watcher.program"


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    """Three brokers whose sessions outlive every wait of these tests."""
    settings = {"zookeeper.session.timeout.ms": str(SESSION_S * 1000)}
    with cluster_on_machines(tmp_path_factory.mktemp("patient"), settings) as cluster:
        yield cluster


def watcher_of(cluster: MachineCluster, broker_id: int) -> int:
    """The process on the broker's machine, as it is numbered here."""

    def found() -> int:
        for pid in cluster.machine(broker_id).pids():
            if WATCHER in Path(f"/proc/{pid}/cmdline").read_text():
                return pid
        return 0

    return wait_until(found, f"broker {broker_id} has a watcher")


def registered(cluster: MachineCluster) -> list[str]:
    zookeeper = KazooClient(cluster.connect)
    zookeeper.start()
    try:
        found: list[str] = zookeeper.get_children("/brokers/ids")
        return found
    finally:
        zookeeper.stop()
        zookeeper.close()


def test_a_killed_leader_is_replaced_at_once(patient):
    topic = "killed"
    create_topic(patient, topic, config={"min.insync.replicas": "2"})
    client = admin(patient)
    wait_for_isr(client, topic, 3)
    with SteadyProducer(patient.bootstrap_servers, topic) as producer:
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        dead = leader_of(client, topic)
        patient.kill_broker(dead)
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        wait_until(lambda: len(patient.machine(dead).pids()) == 1, "ZooKeeper alone is left there")
        patient.start_broker(dead)
        wait_for_isr(client, topic, 3)
        check_kept(patient.bootstrap_servers, topic, producer)


@in_full
def test_a_leader_whose_whole_group_of_processes_is_killed_is_replaced_at_once(patient):
    """As a terminal or a shell does it that ends a job."""
    topic = "group-killed"
    create_topic(patient, topic, config={"min.insync.replicas": "2"})
    client = admin(patient)
    wait_for_isr(client, topic, 3)
    with SteadyProducer(patient.bootstrap_servers, topic) as producer:
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        dead = leader_of(client, topic)
        os.killpg(os.getpgid(patient.broker(dead).pid), signal.SIGKILL)
        patient.broker(dead).wait()
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        patient.start_broker(dead)
        wait_for_isr(client, topic, 3)
        check_kept(patient.bootstrap_servers, topic, producer)


def test_without_its_watcher_the_session_of_a_killed_broker_decides(patient):
    topic = "unwatched"
    create_topic(patient, topic, config={"min.insync.replicas": "2"})
    client = admin(patient)
    wait_for_isr(client, topic, 3)
    with SteadyProducer(patient.bootstrap_servers, topic) as producer:
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        dead = leader_of(client, topic)
        watcher = watcher_of(patient, dead)
        # It must not start another one.
        os.kill(patient.broker(dead).pid, signal.SIGSTOP)
        os.kill(watcher, signal.SIGKILL)
        patient.kill_broker(dead)
        assert str(dead) in registered(patient)
        # Its successor knows that it is dead, and closes its session.
        patient.start_broker(dead)
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        wait_for_isr(client, topic, 3)
        check_kept(patient.bootstrap_servers, topic, producer)


def test_a_watcher_that_is_killed_is_replaced(patient):
    topic = "watched-anew"
    create_topic(patient, topic, config={"min.insync.replicas": "2"})
    client = admin(patient)
    wait_for_isr(client, topic, 3)
    dead = leader_of(client, topic)
    first = watcher_of(patient, dead)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: watcher_of(patient, dead) != first, "there is another watcher")
    assert f"watcher of broker {dead} has ended with status -9" in patient.log(dead)
    with SteadyProducer(patient.bootstrap_servers, topic) as producer:
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        patient.kill_broker(dead)
        acknowledged_more(producer, BEFORE_IT_EXPIRES_S)
        patient.start_broker(dead)
        wait_for_isr(client, topic, 3)
        check_kept(patient.bootstrap_servers, topic, producer)
