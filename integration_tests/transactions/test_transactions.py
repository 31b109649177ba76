"""Transactions with real processes: transactional producers of others, readers of both isolation
levels at work meanwhile, a second producer with the same id, and coordinators that are killed."""

import os
import random
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    partition_metadata,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.transactional_clients import (
    Confluent,
    KafkaPython,
    Reader,
    TransactionalProducer,
)
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.local.local_cluster import LocalCluster

STATE = "__transaction_state"
STATE_PARTITIONS = 8
PARTITIONS = 3
KILLS = 6 if ALL_FAULTS else 2

CLIENTS = pytest.mark.parametrize("client", [Confluent, KafkaPython])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two replicas of the state log, so that it can do without the leader of the data."""
    settings = (
        ("transaction.state.log.num.partitions", str(STATE_PARTITIONS)),
        ("transaction.state.log.replication.factor", "2"),
        ("transaction.state.log.min.isr", "1"),
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500"),
    )
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings=settings) as made:
        yield made


def coordinator_of(cluster: LocalCluster, name: str) -> int:
    return leader_of(admin(cluster), STATE, state_partition(name, STATE_PARTITIONS))


@CLIENTS
def test_readers_of_committed_records_see_whole_transactions_and_nothing_else(cluster, client):
    topic = f"whole-{client.__name__}"
    create_topic(cluster, topic, partitions=PARTITIONS, config={"min.insync.replicas": "2"})
    every: dict[int, list[bytes]] = {p: [] for p in range(PARTITIONS)}
    committed: dict[int, list[bytes]] = {p: [] for p in range(PARTITIONS)}
    servers = cluster.bootstrap_servers
    with (
        Reader(servers, topic, PARTITIONS, "read_committed") as careful,
        Reader(servers, topic, PARTITIONS, "read_uncommitted") as careless,
    ):
        producer: TransactionalProducer = client(servers, topic)
        for number in range(12):
            producer.begin()
            commits = number % 3 != 1
            for partition in range(PARTITIONS):
                value = b"%d in %d" % (number, partition)
                producer.write(topic, partition, value)
                every[partition].append(value)
                if commits:
                    committed[partition].append(value)
            if number == 5:
                # The transaction is open: only one of them sees it.
                careless.wait_for(every)
                careful.wait_for({p: values[:-1] for p, values in committed.items()})
            if commits:
                producer.commit()
            else:
                producer.abort()
        careful.wait_for(committed)
        careless.wait_for(every)
        producer.close()


def test_a_second_producer_with_the_same_id_fences_the_first(cluster):
    topic = "fenced"
    create_topic(cluster, topic)
    first = Confluent(cluster.bootstrap_servers, topic)
    first.begin()
    first.write(topic, 0, b"of the first")
    second = Confluent(cluster.bootstrap_servers, topic)
    with pytest.raises(KafkaException) as failure:
        first.commit()
    assert failure.value.args[0].fatal()
    second.begin()
    second.write(topic, 0, b"of the second")
    second.commit()
    with Reader(cluster.bootstrap_servers, topic, 1, "read_committed") as reader:
        reader.wait_for({0: [b"of the second"]})


def test_a_transaction_whose_producer_died_is_aborted_in_time(cluster):
    topic = "abandoned"
    create_topic(cluster, topic)
    producer = Confluent(cluster.bootstrap_servers, topic, timeout_ms=2_000)
    producer.begin()
    producer.write(topic, 0, b"never ended")
    other = Confluent(cluster.bootstrap_servers, "another")
    other.begin()
    other.write(topic, 0, b"behind it")
    other.commit()
    with Reader(cluster.bootstrap_servers, topic, 1, "read_committed") as reader:
        reader.wait_for({0: [b"behind it"]})


@pytest.mark.parametrize("commits", [True, False])
def test_a_coordinator_killed_between_its_decision_and_the_markers_loses_nothing(cluster, commits):
    topic = f"decided-{commits}".lower()
    create_topic(cluster, topic, config={"min.insync.replicas": "2"})
    client = admin(cluster)
    data_leader = leader_of(client, topic)
    Confluent(cluster.bootstrap_servers, "makes the topic").close()
    name = next(
        name
        for name in (f"{topic}-{number}" for number in range(1000))
        if data_leader not in state_replicas(client, name)
    )
    producer = Confluent(cluster.bootstrap_servers, name)
    producer.begin()
    producer.write(topic, 0, b"decided")
    coordinator = coordinator_of(cluster, name)
    pid = next(b.pid for b in cluster.state.brokers if b.id == data_leader)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        # It can't have written the marker.
        if commits:
            producer.commit()
        else:
            producer.abort()
        cluster.kill_broker(coordinator)
    finally:
        os.kill(pid, signal.SIGCONT)
    after = Confluent(cluster.bootstrap_servers, f"after {topic}")
    after.begin()
    after.write(topic, 0, b"later")
    after.commit()
    with Reader(cluster.bootstrap_servers, topic, 1, "read_committed") as reader:
        reader.wait_for({0: [b"decided", b"later"] if commits else [b"later"]})
    cluster.start_broker(coordinator)
    wait_for_isr(client, topic, 3)


def state_replicas(client, name: str) -> list[int]:
    partition = state_partition(name, STATE_PARTITIONS)
    # The topic has just been made: the broker that is asked may not have heard of it.
    found = wait_until(lambda: partition_metadata(client, STATE, partition), f"{STATE} is known")
    return list(found.replicas)


def test_no_transaction_is_lost_or_torn_while_coordinators_are_killed(cluster):
    topic = "killed"
    create_topic(cluster, topic, partitions=PARTITIONS, config={"min.insync.replicas": "2"})
    client = admin(cluster)
    generator = random.Random(5)
    outcomes: dict[int, bool | None] = {}
    producer: Confluent | None = None
    with Reader(cluster.bootstrap_servers, topic, PARTITIONS, "read_committed") as reader:
        for number in range(KILLS * 8):
            if producer is None:
                producer = Confluent(cluster.bootstrap_servers, topic)
            victim = coordinator_of(cluster, topic) if number % 8 == 3 else None
            moment = generator.randrange(3)
            try:
                producer.begin()
                for partition in range(PARTITIONS):
                    if victim is not None and partition == moment:
                        cluster.kill_broker(victim)
                    producer.write(topic, partition, b"%d" % number)
                outcomes[number] = None
                producer.commit()
                outcomes[number] = True
            except KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort():
                    producer.abort()
                    outcomes[number] = False
                else:
                    producer.close()
                    producer = None
            if victim is not None:
                cluster.start_broker(victim)
                for partition in range(PARTITIONS):
                    wait_for_isr(client, topic, 3, partition)
        last = Confluent(cluster.bootstrap_servers, topic)
        last.begin()
        for partition in range(PARTITIONS):
            last.write(topic, partition, b"end")
        last.commit()
        wait_until(
            lambda: all(seen and seen[-1] == b"end" for seen in reader.seen.values()),
            "everything is read",
        )
    first, *others = reader.seen.values()
    assert all(seen == first for seen in others), "a transaction is torn"
    read = [int(value) for value in first[:-1]]
    assert read == sorted(set(read))
    certain = {number for number, outcome in outcomes.items() if outcome}
    refuted = {number for number, outcome in outcomes.items() if outcome is False}
    assert certain <= set(read) and not refuted & set(read)
    assert len(certain) >= KILLS * 6
