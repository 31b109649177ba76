"""R-REP12: who loses the connection to a leader that was killed, and asks at once, does not get its
name again, although its session with ZooKeeper lasts for some seconds more. Who asks about certain
topics hears that it is gone before he hears who leads now.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
)
from storage_engine.client.addresses import parse_addresses
from storage_engine.client.connection import BrokerConnection
from storage_engine.net.blocking import wait_readable
from storage_engine.net.deadline import Deadline
from storage_engine.net.limits import BufferPool
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import MetadataRequest

TOPIC = "killed-leader"
TIMEOUT_MS = 30_000


GONE_S = 1.0
"""For so long after a broker has gone a client is taken for one that has not heard of it."""

TRIES = 3
"""Where this machine was so busy that a second was over too soon, another leader is killed."""


@pytest.fixture(scope="module", autouse=True)
def _topic(cluster) -> None:
    create_topic(cluster, TOPIC)


def ask(connection: BrokerConnection, topics: Sequence[str] | None) -> Any:
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return connection.exchange(METADATA, request, Deadline.after(TIMEOUT_MS))


def leader_in(answer: Any) -> int:
    (found,) = [each for each in answer.topics if each.topic == TOPIC]
    return found.partitions[0].leader


def leader_said_on(connection: BrokerConnection) -> int:
    return leader_in(ask(connection, [TOPIC]))


def test_the_first_answer_after_a_kill_names_the_dead_leader_no_more(cluster):
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
        assert wait_readable([connections.pop(leader)], TIMEOUT_MS)
        said = {id_: leader_said_on(connection) for id_, connection in connections.items()}
        assert leader not in said.values(), said
    finally:
        for connection in connections.values():
            connection.close()
        cluster.start_broker(leader)
        wait_for_isr(client, TOPIC, 3)


@contextmanager
def connections_to(cluster: Any, broker_id: int, count: int) -> Iterator[list[BrokerConnection]]:
    address = parse_addresses(cluster.bootstrap_servers)[broker_id - 1]
    with ExitStack() as opened:
        made = []
        for _ in range(count):
            connection = BrokerConnection.open(
                address, "test", Deadline.after(TIMEOUT_MS), BufferPool()
            )
            opened.callback(connection.close)
            made.append(connection)
        yield made


def heard_after_a_kill(cluster: Any, leader: int) -> tuple[float, int, dict[str, list[int]]]:
    """Seconds since the dead leader was listed for the last time, its successor, and what clients
    hear that have not asked about the topic since."""
    asked = next(broker for broker in (1, 2, 3) if broker != leader)
    with connections_to(cluster, asked, 4) as (watching, of_topic, of_brokers, of_all):
        cluster.kill_broker(leader)
        listed_s = time.monotonic()
        deadline = Deadline.after(TIMEOUT_MS)
        successor = leader
        while successor in (leader, -1):
            deadline.check("nobody was elected")
            before_s = time.monotonic()
            answer = ask(watching, None)
            if leader in [each.broker_id for each in answer.brokers]:
                listed_s = before_s
            successor = leader_in(answer)
        assert not ask(of_brokers, []).topics
        heard = {
            "who asks about the topic": [leader_said_on(of_topic) for _ in range(2)],
            "who has asked about no topic": [leader_said_on(of_brokers) for _ in range(2)],
            "who asks about all topics": [leader_in(ask(of_all, None))],
        }
        return time.monotonic() - listed_s, successor, heard


def test_a_client_hears_first_that_the_leader_is_gone_and_then_who_leads_now(cluster):
    """librdkafka may forget who leads where one answer tells both, and then asks again only after
    up to a second."""
    client = admin(cluster)
    for _ in range(TRIES):
        wait_for_isr(client, TOPIC, 3)
        leader = leader_of(client, TOPIC)
        try:
            passed_s, successor, heard = heard_after_a_kill(cluster, leader)
        finally:
            cluster.start_broker(leader)
            wait_for_isr(client, TOPIC, 3)
        if passed_s < GONE_S:
            break
    assert passed_s < GONE_S, "the machine is too busy"
    assert heard == {
        "who asks about the topic": [-1, successor],
        "who has asked about no topic": [-1, successor],
        "who asks about all topics": [successor],
    }
