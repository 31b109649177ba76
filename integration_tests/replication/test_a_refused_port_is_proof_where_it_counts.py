"""R-CTL12: brokers that can't see each other's processes, as on machines of their own, replace a
dead one when its port refuses, if `broker.death.proof=port`.

Sessions live a minute, so that nothing but the proof leads to an election before the test gives up.
"""

import signal
import subprocess

import pytest

from integration_tests.support.brokers_by_hand import BrokersByHand, brokers_by_hand
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
)
from integration_tests.support.steady_producer import SteadyProducer, acknowledged_more, check_kept
from storage_engine.tests.sampling import in_full

OWN_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
LISTENER = "PLAINTEXT"
SESSION_S = 60
BEFORE_IT_EXPIRES_S = SESSION_S * 0.75
SETTINGS = {
    "broker.death.proof": "port",
    "zookeeper.session.timeout.ms": str(SESSION_S * 1000),
    "default.replication.factor": "3",
}
RECORDS = 300


class _Servers:
    """The brokers, as clients see them."""

    def __init__(self, brokers: BrokersByHand) -> None:
        self.bootstrap_servers = brokers.bootstrap(LISTENER)


@in_full
def test_a_leader_of_another_namespace_is_replaced_when_its_port_refuses(tmp_path):
    if subprocess.run([*OWN_NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user can't make a namespace of processes")
    with brokers_by_hand(tmp_path, [LISTENER]) as brokers:
        brokers.within = OWN_NAMESPACE
        for number in (1, 2, 3):
            brokers.start(number, SETTINGS, is_waited_for=False)
        for number in (1, 2, 3):
            brokers.wait_until_joined(number)
        servers = _Servers(brokers)
        topic = "refused"
        create_topic(servers, topic, config={"min.insync.replicas": "2"})
        client = admin(servers)
        wait_for_isr(client, topic, 3)
        with SteadyProducer(servers.bootstrap_servers, topic) as producer:
            acknowledged_more(producer, BEFORE_IT_EXPIRES_S, records=RECORDS)
            dead = leader_of(client, topic)
            brokers.stop(dead, signum=signal.SIGKILL)
            acknowledged_more(producer, BEFORE_IT_EXPIRES_S, records=RECORDS)
            others = {1, 2, 3} - {dead}
            assert any("its port refuses connections" in brokers.log(each) for each in others)
            assert not any("its process has ended" in brokers.log(each) for each in others)
            brokers.start(dead, SETTINGS)
            wait_for_isr(client, topic, 3)
            check_kept(servers.bootstrap_servers, topic, producer)
