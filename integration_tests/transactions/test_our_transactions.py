"""Transactions of `Producer`, with offsets of a `Consumer` in them, as clients that we did not
write see them: programs and coordinators of both kinds are killed, and everything is there once."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer as ConfluentProducer

from integration_tests.forks.forked import popen
from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.transactional_clients import Confluent, Reader
from storage_engine.client import Producer, ProducerFencedError
from storage_engine.client.producer.producer_errors import TransactionFailedError
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tests.sampling import ALL_FAULTS, SEED
from storage_engine.tools.local.local_cluster import LocalCluster

PARTITIONS = 3
RECORDS = 400 if ALL_FAULTS else 200
STATES = ("__consumer_offsets", "__transaction_state")
KILLED = STATES * 3 if ALL_FAULTS else STATES[SEED // 2 % 2 :][:1]
"""The leaders of these."""


def ours(cluster: LocalCluster, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions()
    return producer


def test_a_transaction_is_read_as_a_whole_or_not_at_all(cluster):
    topic = "whole"
    create_topic(cluster, topic)
    kept: list[bytes] = []
    with Reader(cluster.bootstrap_servers, topic, 1, "read_committed") as reader:
        with ours(cluster, topic) as producer:
            with pytest.raises(TransactionFailedError):
                producer.send(topic, b"outside")
            for number in range(9):
                values = [b"%d of %d" % (part, number) for part in range(3)]
                producer.begin_transaction()
                futures = [producer.send(topic, value) for value in values]
                if number % 3 == 1:
                    producer.flush()
                if number % 3:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    kept += values
                    assert all(future.done() for future in futures)
            producer.begin_transaction()
            producer.commit_transaction()
            producer.begin_transaction()
            producer.send(topic, b"left open").result()
        reader.wait_for({0: kept})
        last = Confluent(cluster.bootstrap_servers, "another")
        last.begin()
        last.write(topic, 0, b"behind it")
        last.commit()
        reader.wait_for({0: [*kept, b"behind it"]})


@pytest.mark.parametrize("second", ["ours", "another's"])
def test_a_second_producer_with_the_same_id_fences_the_first(cluster, second):
    topic = f"fenced-{len(second)}"
    create_topic(cluster, topic)
    with ours(cluster, topic) as first:
        first.begin_transaction()
        first.send(topic, b"of the first").result()
        if second == "ours":
            heir = ours(cluster, topic)
            heir.begin_transaction()
            heir.send(topic, b"of the second")
            heir.commit_transaction()
            heir.close()
        else:
            other = Confluent(cluster.bootstrap_servers, topic)
            other.begin()
            other.write(topic, 0, b"of the second")
            other.commit()
        with pytest.raises(ProducerFencedError):
            first.commit_transaction()
        with pytest.raises(ProducerFencedError):
            first.begin_transaction()
    with Reader(cluster.bootstrap_servers, topic, 1, "read_committed") as reader:
        reader.wait_for({0: [b"of the second"]})


@contextmanager
def copier(cluster: LocalCluster, name: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-P", "-m", "integration_tests.transactions.our_copier"]
    arguments = [cluster.bootstrap_servers, name, str(RECORDS)]
    with popen(command + arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def commits(process: "subprocess.Popen[str]", count: int) -> None:
    """Wait for so many."""
    assert process.stdout is not None
    for line in process.stdout:
        count -= line == "committed\n"
        if not count:
            return
    raise AssertionError("it has ended")


def test_everything_is_copied_once_while_programs_and_coordinators_are_killed(cluster):
    name = "copied"
    create_topic(cluster, f"{name}-in", partitions=PARTITIONS)
    create_topic(cluster, f"{name}-out", config={"min.insync.replicas": "2"})
    filler = ConfluentProducer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(RECORDS):
        filler.produce(f"{name}-in", b"%d" % number, partition=number % PARTITIONS)
    assert filler.flush(60) == 0
    client = admin(cluster)
    for topic in KILLED:
        # Killed in the middle of something; the next one takes over when the session has ended.
        if ALL_FAULTS:
            with copier(cluster, name) as process:
                commits(process, 3)
        with copier(cluster, name) as process:
            commits(process, 2)
            victim = leader_of(client, topic, state_partition(name, COORDINATOR_PARTITIONS))
            cluster.kill_broker(victim)
            commits(process, 2)
        cluster.start_broker(victim)
        wait_for_isr(client, topic, 3, state_partition(name, COORDINATOR_PARTITIONS))
        wait_for_isr(client, f"{name}-out", 3)
    with copier(cluster, name) as process:
        assert process.wait(300) == 0
    with Reader(cluster.bootstrap_servers, f"{name}-out", 1, "read_committed") as reader:
        wait_until(lambda: len(reader.seen[0]) >= RECORDS, "everything is in the target")
        assert sorted(map(int, reader.seen[0])) == list(range(RECORDS))
