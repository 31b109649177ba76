"""Clients that we did not write keep within their quotas, by the throttle time that they are told
and by being held back, and others are not slowed down: one short case of each kind of quota, whose
arithmetic is tested on a simulated clock. In full each rate is measured over half a minute."""

import socket
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as Theirs
from kafka.admin import NewTopic as TheirNewTopic
from kafka.errors import ThrottlingQuotaExceededError

from integration_tests.support.cluster_support import (
    admin as admin_of,
)
from integration_tests.support.cluster_support import (
    create_topic,
    leader_of,
    wait_until,
)
from integration_tests.support.measured_rates import (
    BATCH_BYTES,
    MEASURED_S,
    RECORD,
    check_is_within,
    produced_bytes_per_s,
)
from storage_engine.client import Admin
from storage_engine.core.quotas import QuotaEntity
from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main
from storage_engine.tools.local.local_cluster import LocalCluster

BOUND = 400_000
"""Bytes a second."""
ASKED_S = MEASURED_S / 3
"""As often as it can, which takes a processor of its own."""


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    name = unique("quotas")
    create_topic(cluster, name, replication_factor=1)
    return name


def open_config(cluster: LocalCluster) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


class Quotas:
    """Sets quotas of one test, and takes them away after it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._set: list[tuple[QuotaEntity, str]] = []

    def set(self, entity: QuotaEntity, name: str, value: float) -> None:
        with Admin({"bootstrap.servers": self._cluster.bootstrap_servers}) as admin:
            admin.alter_client_quotas(entity, {name: value})
        self._set.append((entity, name))
        self._wait_until_all_brokers_know(entity, {name: value})

    def remove_all(self) -> None:
        with Admin({"bootstrap.servers": self._cluster.bootstrap_servers}) as admin:
            for entity, name in self._set:
                admin.alter_client_quotas(entity, {}, remove=[name])
        self._set.clear()

    def _wait_until_all_brokers_know(self, entity: QuotaEntity, values: dict[str, float]) -> None:
        for broker in self._cluster.state.brokers:
            with Admin({"bootstrap.servers": f"127.0.0.1:{broker.port}"}) as admin:
                wait_until(
                    lambda admin=admin: any(
                        quota.entity == entity and values.items() <= quota.values.items()
                        for quota in admin.describe_client_quotas()
                    ),
                    f"broker {broker.id} goes by the quota of {entity}",
                )


@pytest.fixture
def quotas(cluster: LocalCluster) -> Iterator[Quotas]:
    made = Quotas(cluster)
    yield made
    made.remove_all()


def test_a_producer_writes_as_much_as_it_may(
    cluster: LocalCluster, topic: str, quotas: Quotas
) -> None:
    client_id = unique("writer")
    quotas.set(QuotaEntity(client_id=client_id), "producer_byte_rate", BOUND)
    check_is_within(lambda: produced_bytes_per_s(open_config(cluster), topic, client_id), BOUND)
    quotas.remove_all()
    config = open_config(cluster)
    assert produced_bytes_per_s(config, topic, client_id, measured_s=0.5) > 2 * BOUND


@in_full
def test_of_a_user_and_a_client_id_the_more_exact_quota_counts(
    cluster: LocalCluster, topic: str, quotas: Quotas
) -> None:
    client_id = unique("writer")
    quotas.set(QuotaEntity(client_id=client_id), "producer_byte_rate", 20_000)
    quotas.set(QuotaEntity("ANONYMOUS", client_id), "producer_byte_rate", BOUND)
    check_is_within(lambda: produced_bytes_per_s(open_config(cluster), topic, client_id), BOUND)


def test_a_consumer_reads_as_much_as_it_may(
    cluster: LocalCluster, topic: str, quotas: Quotas
) -> None:
    client_id = unique("reader")
    fill(cluster, topic, int(BOUND * (MEASURED_S + 10) * 1.5))
    quotas.set(QuotaEntity(client_id=client_id), "consumer_byte_rate", BOUND)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": client_id,
            "group.id": client_id,
            "enable.auto.commit": False,
            "fetch.max.bytes": BATCH_BYTES,
            "message.max.bytes": BATCH_BYTES,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])

    def read_for(seconds: float) -> int:
        read, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                read += len(message.value())
        return read

    def read_bytes_per_s() -> float:
        started = time.monotonic()
        return read_for(MEASURED_S) / (time.monotonic() - started)

    try:
        read_for(3)
        check_is_within(read_bytes_per_s, BOUND)
    finally:
        consumer.close()


def fill(cluster: LocalCluster, topic: str, size: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "batch.size": BATCH_BYTES,
            "log_level": 0,
        }
    )
    for _ in range(size // len(RECORD)):
        while True:
            try:
                producer.produce(topic, RECORD, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def test_a_client_takes_its_share_of_the_brokers_time_and_others_do_not_notice(
    cluster: LocalCluster, topic: str, quotas: Quotas
) -> None:
    client_id = unique("busy")
    fill(cluster, topic, 200_000)
    leader = leader_of(admin_of(cluster), topic)
    quotas.set(QuotaEntity(client_id=client_id), "request_percentage", 0.1)

    def asked(name: str) -> int:
        """Requests for the end of the partition that are answered in a while."""
        reader = KafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers.split(","), client_id=name, group_id=None
        )
        partition = next(iter(reader.partitions_for_topic(topic) or ()))
        count, end = 0, time.monotonic() + ASKED_S
        while time.monotonic() < end:
            reader.end_offsets([Theirs(topic, partition)])
            count += 1
        reader.close()
        return count

    counts: dict[str, int] = {}

    def count(name: str) -> None:
        counts[name] = asked(name)

    free = unique("free")
    threads = [threading.Thread(target=count, args=(name,)) for name in (client_id, free)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert leader
    # A request takes a tenth of a millisecond or more: this allows some ten of them a second.
    assert counts[client_id] < counts[free] / 2, counts


def test_topics_are_made_at_the_rate_that_is_allowed(cluster: LocalCluster, quotas: Quotas) -> None:
    client_id = unique("maker")
    quotas.set(QuotaEntity(client_id=client_id), "controller_mutation_rate", 0.5)
    client = AdminClient(
        {"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id, "log_level": 0}
    )

    def make(name: str, partitions: int) -> None:
        new = NewTopic(name, partitions, 1)
        client.create_topics([new], request_timeout=30)[name].result(40)

    # The credit of ten seconds, which is five, is overdrawn by one. librdkafka does not know the
    # error, and waits.
    started = time.monotonic()
    make(unique("made"), 6)
    make(unique("made"), 6)
    assert time.monotonic() - started >= 2
    # Overdrawn by six.
    knows_it = KafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers.split(","), client_id=client_id
    )
    with pytest.raises(ThrottlingQuotaExceededError):
        knows_it.create_topics([TheirNewTopic(unique("made"), 1, 1)])
    knows_it.close()
    # Others make theirs.
    create_topic(cluster, unique("made"), replication_factor=1)


def test_the_command_sets_lists_and_removes_quotas(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ["--bootstrap-server", cluster.bootstrap_servers]
    user = unique("al/ice")
    assert main(["quotas", "add", *server, "--user", user, "--producer-byte-rate", "1024"]) == 0
    wait_until(lambda: listed(capsys, server, user) == "1024", "the quota is listed")
    assert main(["quotas", "remove", *server, "--user", user]) == 0
    wait_until(lambda: listed(capsys, server, user) is None, "the quota is gone")
    for wrong, reason in (
        (["add", *server, "--user", user], "no quota is given"),
        (["add", *server, "--producer-byte-rate", "1"], "no user, client id or address"),
        (["add", *server, "--user", user, "--producer-byte-rate", "-1"], "must be above 0"),
        (["add", *server, "--user", "a", "--ip", "::1", "--producer-byte-rate", "1"], "can't be"),
    ):
        capsys.readouterr()
        assert main(["quotas", *wrong]) != 0
        assert reason in capsys.readouterr().err


def listed(capsys: pytest.CaptureFixture[str], server: list[str], user: str) -> str | None:
    capsys.readouterr()
    assert main(["quotas", "list", *server]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if user in line]
    return rows[0][-1] if rows else None


def test_a_broker_that_was_killed_goes_by_the_quotas_again(
    cluster: LocalCluster, topic: str, quotas: Quotas
) -> None:
    client_id = unique("writer")
    quotas.set(QuotaEntity(client_id=client_id), "producer_byte_rate", BOUND)
    leader = leader_of(admin_of(cluster), topic)
    cluster.kill_broker(leader)
    cluster.start_broker(leader)
    wait_until(lambda: leader_of(admin_of(cluster), topic) == leader, "its partition is served")
    check_is_within(lambda: produced_bytes_per_s(open_config(cluster), topic, client_id), BOUND)


def test_an_address_connects_as_often_as_it_may(cluster: LocalCluster, quotas: Quotas) -> None:
    """Of 127.0.0.2, so that nobody else is slowed down."""
    quotas.set(QuotaEntity(ip="127.0.0.2"), "connection_creation_rate", 5)
    port = cluster.state.brokers[0].port
    served = refused = 0
    end = time.monotonic() + 2
    while time.monotonic() < end:
        with socket.create_connection(
            ("127.0.0.1", port), timeout=10, source_address=("127.0.0.2", 0)
        ) as connection:
            try:
                connection.sendall(API_VERSIONS)
                is_served = bool(connection.recv(1))
            except ConnectionResetError:
                is_served = False
        served += is_served
        refused += not is_served
    assert 6 <= served <= 5 * 3 + 5, (served, refused)
    assert refused


API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 0000")
