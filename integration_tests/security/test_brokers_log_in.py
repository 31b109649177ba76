"""Brokers log in to each other; a cluster is taken from open to closed, and from one mechanism to
another, broker by broker, while records are written."""

import json
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient

from integration_tests.support.brokers_by_hand import BrokersByHand, brokers_by_hand, in_threads
from integration_tests.support.cluster_support import make_topic, wait_for_isr, wait_until
from storage_engine.core.security.scram_credential import ScramCredential
from storage_engine.core.security.scram_credential import ScramMechanism as OurMechanism
from storage_engine.tests.sampling import ALL_FAULTS, in_full

BROKERS = (1, 2, 3)
MECHANISM = "SCRAM-SHA-512"
SCRAM = 'ScramLoginModule required username="broker" password="brokers-secret";'
PLAIN = 'PlainLoginModule required username="broker" password="p" user_broker="p" user_app="q";'

OPEN = {
    "listener.security.protocol.map": "OPEN:PLAINTEXT,IN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "OPEN",
    "sasl.enabled.mechanisms": MECHANISM,
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "listener.name.in.scram-sha-512.sasl.jaas.config": SCRAM,
    "listener.name.in.plain.sasl.jaas.config": PLAIN,
    "connections.max.reauth.ms": "1500",
    "min.insync.replicas": "2",
}
CLOSED = OPEN | {"inter.broker.listener.name": "IN"}
BOTH = CLOSED | {"sasl.enabled.mechanisms": f"{MECHANISM},PLAIN"}
BY_PLAIN = BOTH | {"sasl.mechanism.inter.broker.protocol": "PLAIN"}
PLAIN_ALONE = BY_PLAIN | {"sasl.enabled.mechanisms": "PLAIN"}


@pytest.fixture
def brokers(tmp_path) -> Iterator[BrokersByHand]:
    with brokers_by_hand(tmp_path, ["OPEN", "IN"]) as made:
        yield made


def admin_of(brokers: BrokersByHand) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers.bootstrap("OPEN"), "log_level": 0})


def make_user(brokers: BrokersByHand) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = [UserScramCredentialUpsertion("broker", info, b"brokers-secret")]
    client = admin_of(brokers)  # which must outlive the answer
    for each in client.alter_user_scram_credentials(wanted).values():
        each.result(30)


class Writer:
    """Writes all the time, and remembers what failed."""

    def __init__(self, brokers: BrokersByHand) -> None:
        config = {"acks": "all", "message.timeout.ms": 60_000, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": brokers.bootstrap("OPEN"), **config})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failed: list[object] = []
        self.written = 0

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce("t", b"x", on_delivery=self._delivered)
            self._producer.poll(0.01)

    def _delivered(self, error: object, _message: object) -> None:
        self.written += 1
        if error is not None:
            self.failed.append(error)


def restart_one_by_one(brokers: BrokersByHand, settings: dict[str, str]) -> None:
    client = admin_of(brokers)
    for each in BROKERS:
        brokers.stop(each)
        brokers.start(each, settings)
        for partition in range(3):
            wait_for_isr(client, "t", 3, partition)


def is_let_in(brokers: BrokersByHand, mechanism: str, user: str, password: str) -> bool:
    client = AdminClient(
        {
            "bootstrap.servers": brokers.bootstrap("IN"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )
    try:
        return bool(client.list_topics(timeout=5).brokers)
    except KafkaException:
        return False


@in_full
def test_a_cluster_is_closed_and_changes_its_mechanism_while_records_are_written(brokers) -> None:
    """From no log-in of brokers to SCRAM, then to PLAIN, which no broker knew at the start."""
    in_threads(*(lambda each=each: brokers.start(each, OPEN) for each in BROKERS))
    make_user(brokers)
    client = admin_of(brokers)
    make_topic(client, NewTopic("t", 3, 3))
    with Writer(brokers) as writer:
        restart_one_by_one(brokers, CLOSED)
        assert not is_let_in(brokers, "PLAIN", "app", "q")
        restart_one_by_one(brokers, BOTH)
        for way in (("PLAIN", "app", "q"), (MECHANISM, "broker", "brokers-secret")):
            assert is_let_in(brokers, *way), way
        restart_one_by_one(brokers, BY_PLAIN)
        if ALL_FAULTS:
            restart_one_by_one(brokers, PLAIN_ALONE)
            assert not is_let_in(brokers, MECHANISM, "broker", "brokers-secret")
            assert is_let_in(brokers, "PLAIN", "app", "q")
        # Log-ins end after 1.5 s: what goes on lives by those that came after.
        before = writer.written
        wait_until(lambda: writer.written > before + 200, "records are written")
    assert writer.failed == []
    for each in BROKERS:
        log = brokers.log(each)
        # But for the clients that were to be refused.
        refused = [line for line in log.splitlines() if "log-in refused" in line]
        assert [line for line in refused if "is not in sasl.enabled.mechanisms" not in line] == []
        assert "the time of its log-in is over" not in log
        assert "brokers-secret" not in log


def test_brokers_without_a_user_find_each_other_once_zookeeper_has_it(brokers) -> None:
    """As Kafka's kafka-configs --zookeeper writes it: no broker can be asked for it yet."""
    in_threads(*(lambda each=each: brokers.start(each, CLOSED) for each in BROKERS))
    wait_until(lambda: "log-in refused" in "".join(map(brokers.log, BROKERS)), "they are refused")
    credential = ScramCredential.of_password(
        OurMechanism.SHA_512, "brokers-secret", salt=b"0123456789abcdef", iterations=4096
    )
    config = {"version": 1, "config": {MECHANISM: credential.format()}}
    change = {"version": 2, "entity_path": "users/broker"}
    zookeeper = KazooClient(brokers.zookeeper_connect)
    zookeeper.start()
    zookeeper.create("/config/users/broker", json.dumps(config).encode(), makepath=True)
    prefix = "/config/changes/config_change_"
    zookeeper.create(prefix, json.dumps(change).encode(), sequence=True)
    zookeeper.stop()
    client = admin_of(brokers)
    wait_until(lambda: len(client.list_topics(timeout=5).brokers) == 3, "all are there")
    make_topic(client, NewTopic("t", 3, 3))
    for partition in range(3):
        wait_for_isr(client, "t", 3, partition)
