"""R-REP13: six brokers on three machines; the controller is killed while topics are made, a machine
dies, and a broker is cordoned by librdkafka. Replicas of a partition never share a machine.
"""

import contextlib
import signal
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from integration_tests.support.brokers_by_hand import BrokersByHand, brokers_by_hand
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import CLIENT_TIMEOUT_MS, make_topic, wait_until

LISTENER = "PLAINTEXT"
BROKERS = range(1, 7)
PARTITIONS = 12
KILLED_AFTER_S = 0.05
"""Some topics are written by then, and others are not."""


def machine(broker: int) -> str:
    return f"machine-{(broker - 1) // 2}"


@pytest.fixture
def brokers(tmp_path) -> Iterator[BrokersByHand]:
    with brokers_by_hand(tmp_path, [LISTENER]) as started:
        for broker in BROKERS:
            settings = {"broker.host.name": machine(broker)}
            started.start(broker, settings, is_waited_for=False)
        for broker in BROKERS:
            started.wait_until_joined(broker)
        yield started


def client_of(brokers: BrokersByHand) -> AdminClient:
    return AdminClient(
        {
            **settings_for(brokers.bootstrap(LISTENER)),
            "socket.timeout.ms": CLIENT_TIMEOUT_MS,
            "log_level": 0,
        }
    )


def knows_another_controller(brokers: BrokersByHand, dead: int) -> bool:
    """Whether every living broker does."""
    known = []
    for address in brokers.bootstrap(LISTENER).split(","):
        client = AdminClient({**settings_for(address), "log_level": 0})
        with contextlib.suppress(KafkaException):
            known.append(client.list_topics(timeout=2).controller_id)
    return len(known) == len(BROKERS) - 1 and not {dead, -1} & set(known)


def replicas(client: AdminClient, topic: str) -> dict[int, list[int]] | None:
    """Partition -> its replicas, once all have leaders; None before."""
    try:
        found = client.list_topics(topic, timeout=5).topics[topic]
    except KafkaException:
        return None
    partitions = found.partitions
    if len(partitions) != PARTITIONS or any(each.leader <= 0 for each in partitions.values()):
        return None
    return {number: list(each.replicas) for number, each in partitions.items()}


def test_a_controller_that_is_killed_while_topics_are_made_and_a_dead_machine(brokers):
    client = client_of(brokers)
    controller = client.list_topics(timeout=60).controller_id
    topics = [f"t{n}" for n in range(6)]
    news = [NewTopic(topic, PARTITIONS, 3) for topic in topics]
    asked = client.create_topics(news, operation_timeout=30, request_timeout=30)
    time.sleep(KILLED_AFTER_S)
    brokers.stop(controller, signum=signal.SIGKILL)
    # Whatever the dead one answered, they are asked for again. Each machine has a broker still.
    for each in asked.values():
        with contextlib.suppress(KafkaException):
            each.result(60)
    # librdkafka that is told of the dead one waits for it, as with Kafka, until it asks for brokers
    # again after minutes.
    wait_until(lambda: knows_another_controller(brokers, controller), "there is another")
    client = client_of(brokers)
    for new in news:
        try:
            make_topic(client, new)
        except KafkaException as failure:
            assert "exists" in str(failure), failure
    for topic in topics:
        found = wait_until(lambda topic=topic: replicas(client, topic), f"{topic} has leaders")
        assert found is not None
        for of_partition in found.values():
            assert len({machine(broker) for broker in of_partition}) == 3, (topic, of_partition)

    # The other broker of that machine dies, too: every partition has two replicas elsewhere.
    (other,) = (b for b in BROKERS if machine(b) == machine(controller) and b != controller)
    brokers.stop(other, signum=signal.SIGKILL)

    def led_elsewhere() -> bool:
        try:
            known = client.list_topics(timeout=5).topics
        except KafkaException:
            return False
        leaders = {p.leader for topic in topics for p in known[topic].partitions.values()}
        return not leaders & {controller, other, -1}

    wait_until(led_elsewhere, "all partitions are led on the living machines")


def test_a_broker_that_librdkafka_cordons_gets_no_new_replicas(brokers):
    client = client_of(brokers)
    entry = ConfigEntry("cordoned.log.dirs", "*", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "3", incremental_configs=[entry])
    for done in client.incremental_alter_configs([resource]).values():
        done.result(30)
    cordoned = "broker=3 is cordoned: it takes no new replicas"
    wait_until(lambda: all(cordoned in brokers.log(b) for b in BROKERS), "all brokers know it")
    make_topic(client, NewTopic("t", PARTITIONS, 3))
    found = wait_until(lambda: replicas(client, "t"), "it has leaders")
    assert found is not None
    for each in found.values():
        assert 3 not in each
        assert len({machine(broker) for broker in each}) == 3
    with pytest.raises(KafkaException, match="on 3 machines"):
        make_topic(client, NewTopic("too-many", 1, 4))
