"""R-REP12: who loses the connection to a leader that was killed, and asks at once, does not get its
name again, although its session with ZooKeeper lasts for some seconds more.
"""

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
)
from storage_engine.client.addresses import parse_addresses
from storage_engine.client.connection import BrokerConnection
from storage_engine.net.blocking import wait_readable
from storage_engine.net.buffers import BufferPool
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import MetadataRequest

TOPIC = "killed-leader"
TIMEOUT_MS = 30_000


def leader_said_on(connection) -> int:
    request = MetadataRequest(topics=[TOPIC], allow_auto_topic_creation=False)
    answer = connection.exchange(METADATA, request, Deadline.after(TIMEOUT_MS))
    return answer.topics[0].partitions[0].leader


def test_the_first_answer_after_a_kill_names_the_dead_leader_no_more(cluster):
    create_topic(cluster, TOPIC)
    client = admin(cluster)
    wait_for_isr(client, TOPIC, 3)
    leader = leader_of(client, TOPIC)
    connections = {
        broker_id: BrokerConnection.open(address, "test", Deadline.after(TIMEOUT_MS), BufferPool())
        for broker_id, address in enumerate(parse_addresses(cluster.bootstrap_servers), start=1)
    }
    try:
        for connection in connections.values():
            assert leader_said_on(connection) == leader
        cluster.kill_broker(leader)
        # The dead one's connection breaks: now a client asks the others.
        assert wait_readable([connections.pop(leader).socket], TIMEOUT_MS)
        said = {id_: leader_said_on(connection) for id_, connection in connections.items()}
        assert leader not in said.values(), said
    finally:
        for connection in connections.values():
            connection.close()
        cluster.start_broker(leader)
        wait_for_isr(client, TOPIC, 3)
