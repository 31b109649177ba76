"""From an open cluster to one whose brokers talk to each other over TLS, by rolling restarts: first
each gets the new listener, then each uses it, then each gives up the old one. A producer that waits
for all replicas writes all the while, and no record is missing or out of order. Two brokers, three
with HEADRACE_FAULTS=full.

Source: Kafka's system tests, the rolling upgrade of security, phases one and two.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.security.tls_files import TlsFiles
from integration_tests.support.cluster_support import make_topic, wait_until
from integration_tests.support.configured_brokers import (
    HOST,
    ConfiguredBrokers,
    configured_brokers,
)
from storage_engine.tests.sampling import ALL_FAULTS

BROKERS = (1, 2, 3) if ALL_FAULTS else (1, 2)
"""Each is restarted three times."""
OPEN, SECURED = "PLAINTEXT", "SSL"


class SteadyWriter:
    """Writes numbers, one after the other, until it is stopped; each is acknowledged by all."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = Producer(
            {**settings, "enable.idempotence": True, "delivery.timeout.ms": 120_000}
        )
        self.acknowledged = 0
        self.failures: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._producer.produce("t", str(number), on_delivery=self._delivered, partition=0)
            number += 1
            self._producer.poll(0.01)
        self._producer.flush(120)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(str(error))

    def stop(self) -> int:
        self._is_over.set()
        self._thread.join(150)
        assert self.failures == []
        return self.acknowledged


class Rolling:
    """Three brokers that are restarted one by one."""

    def __init__(self, brokers: ConfiguredBrokers, files: TlsFiles) -> None:
        self.brokers = brokers
        self.files = files
        self.ports = {(b, name): brokers.free_port() for b in BROKERS for name in (OPEN, SECURED)}

    def bootstrap(self, name: str) -> str:
        return ",".join(f"{HOST}:{self.ports[broker, name]}" for broker in BROKERS)

    def settings(self, broker: int, listeners: tuple[str, ...], **more: str) -> dict[str, str]:
        given = {
            "listeners": ",".join(f"{n}://{HOST}:{self.ports[broker, n]}" for n in listeners),
            "default.replication.factor": str(len(BROKERS)),
            "min.insync.replicas": str(len(BROKERS) - 1),
            **more,
        }
        if SECURED in listeners:
            given["ssl.keystore.location"] = str(self.files.folder / f"broker-{broker}.pem")
            given["ssl.truststore.location"] = self.files.authority_file
        return given

    def roll(self, listeners: tuple[str, ...], **more: str) -> None:
        for broker in BROKERS:
            self.wait_in_sync()
            self.brokers.stop(broker)
            self.brokers.start(broker, self.settings(broker, listeners, **more))
        self.wait_in_sync()

    def wait_in_sync(self) -> None:
        def is_in_sync() -> bool:
            for name, settings in self.ways():
                del name
                with contextlib.suppress(Exception):
                    topic = AdminClient(settings).list_topics("t", timeout=5).topics["t"]
                    return all(len(p.isrs) == len(BROKERS) for p in topic.partitions.values())
            return False

        wait_until(is_in_sync, "all replicas are in sync", timeout_s=120)

    def ways(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield SECURED, self.over_tls()
        yield OPEN, {"bootstrap.servers": self.bootstrap(OPEN)}

    def over_tls(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap(SECURED),
            "security.protocol": "SSL",
            "ssl.ca.location": self.files.authority_file,
        }


@pytest.fixture
def rolling(tmp_path) -> Iterator[Rolling]:
    files = TlsFiles(tmp_path)
    for broker in BROKERS:
        files.issue(f"broker-{broker}.pem", HOST)
    with configured_brokers(tmp_path) as brokers:
        made = Rolling(brokers, files)
        for broker in BROKERS:
            brokers.start(broker, made.settings(broker, (OPEN,)))
        admin = AdminClient({"bootstrap.servers": made.bootstrap(OPEN)})
        wait_until(
            lambda: len(admin.list_topics(timeout=10).brokers) == len(BROKERS), "all are known"
        )
        make_topic(admin, NewTopic("t", 3, len(BROKERS)))
        yield made


def numbers_in(settings: dict[str, Any], count: int) -> list[int]:
    consumer = Consumer({**settings, "group.id": "check", "auto.offset.reset": "earliest"})
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition("t", 0, 0)])
        read: list[int] = []
        deadline = time.monotonic() + 60
        while len(read) < count and time.monotonic() < deadline:
            read += [int(message.value()) for message in consumer.consume(1000, 1)]
    return read


def test_a_cluster_is_secured_by_rolling_restarts_without_an_outage(rolling):
    writer = SteadyWriter({"bootstrap.servers": rolling.bootstrap(OPEN)})
    rolling.roll((OPEN, SECURED))
    rolling.roll((OPEN, SECURED), **{"security.inter.broker.protocol": "SSL"})
    written = writer.stop()
    assert written > 100
    writer = SteadyWriter(rolling.over_tls())
    rolling.roll((SECURED,), **{"security.inter.broker.protocol": "SSL"})
    more = writer.stop()
    read = numbers_in(rolling.over_tls(), written + more)
    assert read == [*range(written), *range(more)]
