"""R-REP3 to R-REP8, R-CTL2, R-CTL5: a steady producer (acks=all, min.insync.replicas=2) and a
consumer that checks order and content, while brokers die, hang and are cut off: no acknowledged
record is lost, none is reordered or doubled, no offset is served with another content, and the
cluster heals by itself.

Some of the faults happen once, others with another HEADRACE_SEED; all ten times with
HEADRACE_FAULTS=full.
"""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from integration_tests.support.cluster_support import (
    SESSION_TIMEOUT_MS,
    admin,
    create_topic,
    leader_of,
    partition_metadata,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.command_line import succeed
from integration_tests.support.proxied_cluster import IDS, ProxiedCluster, running_proxied_cluster
from integration_tests.support.steady_producer import CheckingConsumer, SteadyProducer, check_kept
from storage_engine.tests.sampling import ALL_FAULTS, SEED

TIMES = 10 if ALL_FAULTS else 1
SAMPLE = 5
PAUSE_S = 20 if ALL_FAULTS else 3 * SESSION_TIMEOUT_MS / 1000


class Fire:
    """A topic under load, for one fault after another."""

    def __init__(
        self, cluster: ProxiedCluster, topic: str, producer: SteadyProducer, plan: Path
    ) -> None:
        self._plan = plan
        self.cluster = cluster
        self.topic = topic
        self._producer = producer
        self._client = admin(cluster)

    @property
    def leader(self) -> int:
        return leader_of(self._client, self.topic)

    @property
    def controller(self) -> int:
        def found() -> int:
            try:
                return max(0, int(self._client.list_topics(timeout=5).controller_id))
            except KafkaException:
                return 0  # it asked a broker that is away

        return wait_until(found, "there is a controller")

    def goes_on(self, count: int = 300) -> None:
        """Further records are acknowledged."""
        before = len(self._producer.acknowledged)
        wait_until(
            lambda: len(self._producer.acknowledged) > before + count, "sends are acknowledged"
        )

    def another_leads(self, than: int) -> None:
        wait_until(lambda: self.leader != than, f"another broker than {than} leads")

    def reassign(self, replicas: list[int]) -> None:
        """Ask for it; it goes on by itself."""
        self._plan.write_text(
            json.dumps(
                {
                    "version": 1,
                    "partitions": [{"topic": self.topic, "partition": 0, "replicas": replicas}],
                }
            )
        )
        servers = self.cluster.bootstrap_servers
        arguments = ("--bootstrap-server", servers, "--reassignment-json-file", self._plan)
        succeed("reassign", "execute", *arguments)

    def is_reassigned(self, replicas: list[int]) -> None:
        def done() -> bool:
            found = partition_metadata(self._client, self.topic)
            if found is None or found.replicas != replicas:
                return False
            return sorted(found.isrs) == sorted(replicas)

        wait_until(done, f"the replicas are {replicas}, all in sync")

    def heals(self) -> None:
        wait_for_isr(self._client, self.topic, len(IDS))
        self.goes_on()


def leader_killed(fire: Fire) -> None:
    leader = fire.leader
    fire.cluster.kill(leader)
    fire.another_leads(leader)
    fire.goes_on()
    fire.cluster.start(leader)


def leader_killed_and_started_at_once(fire: Fire) -> None:
    leader = fire.leader
    fire.cluster.kill(leader)
    fire.cluster.start(leader)


def controller_killed(fire: Fire) -> None:
    controller = fire.controller
    fire.cluster.kill(controller)
    wait_until(lambda: fire.controller != controller, "another broker is the controller")
    fire.goes_on()
    fire.cluster.start(controller)


def two_of_three_killed(fire: Fire) -> None:
    """The one that is left takes no acks=all: it would be the only copy."""
    leader = fire.leader
    others = [broker for broker in IDS if broker != leader]
    for broker in others:
        fire.cluster.kill(broker)
    for broker in others:
        fire.cluster.start(broker)


def leader_and_next_leader_killed(fire: Fire) -> None:
    first = fire.leader
    fire.cluster.kill(first)
    fire.another_leads(first)
    second = fire.leader
    fire.cluster.kill(second)
    fire.cluster.start(first)
    fire.cluster.start(second)


def leader_paused(fire: Fire) -> None:
    leader = fire.leader
    fire.cluster.pause(leader)
    try:
        fire.another_leads(leader)
        fire.goes_on()
        time.sleep(PAUSE_S)
    finally:
        fire.cluster.resume(leader)


def leader_cut_off(fire: Fire) -> None:
    _held(fire)


def leader_not_heard(fire: Fire) -> None:
    _held(fire, to_target=False)


def leader_deaf(fire: Fire) -> None:
    _held(fire, from_target=False)


def _held(fire: Fire, **directions: bool) -> None:
    leader = fire.leader
    fire.cluster.hold(leader, **directions)
    try:
        fire.another_leads(leader)
        fire.goes_on()
    finally:
        fire.cluster.heal()


def follower_cut_off(fire: Fire) -> None:
    follower = next(broker for broker in IDS if broker != fire.leader)
    fire.cluster.hold(follower)
    fire.goes_on()
    fire.cluster.heal()


def zookeeper_restarted(fire: Fire) -> None:
    fire.cluster.restart_zookeeper()


def all_restarted_one_by_one(fire: Fire) -> None:
    for broker in IDS:
        fire.cluster.stop(broker)
        fire.goes_on()
        fire.cluster.start(broker)
        fire.heals()


def reassigned_while_killed(fire: Fire) -> None:
    """Away from the leader and back to all three; the controller dies in the middle of each."""
    leader = fire.leader
    others = [broker for broker in IDS if broker != leader]
    for replicas in (others, [*others, leader]):
        fire.reassign(replicas)
        controller = fire.controller
        fire.cluster.kill(controller)
        fire.cluster.start(controller)
        fire.is_reassigned(replicas)
        fire.goes_on()


FAULTS: tuple[Callable[[Fire], None], ...] = (
    leader_killed,
    leader_killed_and_started_at_once,
    controller_killed,
    two_of_three_killed,
    leader_and_next_leader_killed,
    leader_paused,
    leader_cut_off,
    leader_not_heard,
    leader_deaf,
    follower_cut_off,
    zookeeper_restarted,
    all_restarted_one_by_one,
    reassigned_while_killed,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with running_proxied_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(running):
    """Whole before and after each test."""
    yield running
    running.restore()


@pytest.mark.parametrize(
    "fault",
    FAULTS if ALL_FAULTS else random.Random(SEED).sample(FAULTS, SAMPLE),
    ids=lambda fault: fault.__name__,
)
def test_nothing_acknowledged_is_lost(cluster, fault, tmp_path):
    topic = fault.__name__
    servers = cluster.bootstrap_servers
    create_topic(cluster, topic, config={"min.insync.replicas": "2"})
    with SteadyProducer(servers, topic) as producer, CheckingConsumer(servers, topic) as consumer:
        fire = Fire(cluster, topic, producer, tmp_path / "plan.json")
        fire.goes_on()
        for _ in range(TIMES):
            fault(fire)
            fire.heals()
        check_kept(servers, topic, producer)
        wait_until(
            lambda: consumer.has_read(len(producer.acknowledged)),
            "the consumer has read everything",
        )
        assert consumer.wrong == []
