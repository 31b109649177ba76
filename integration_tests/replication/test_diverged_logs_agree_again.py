"""R-REP8, KIP-101, KIP-279: leaders that write one after the other what nobody else has, with real
processes killed by SIGKILL; once all of them run, their logs are the same byte for byte, and
clients read what the last leader had.

In KIP-101 the followers cut to their own high watermark, in KIP-279 one question about the last
epoch is not enough: the one asked has never seen it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    partition_metadata,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.steady_producer import read_numbers
from integration_tests.support.stored_logs import assert_replicas_agree
from storage_engine.client import Consumer
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.local_cluster import LocalCluster

BROKERS = (1, 2, 3)
TP = TopicPartition("diverging", 0)


class Parting(NamedTuple):
    """Replicas that lead alone, one after the other."""

    cluster: LocalCluster
    client: AdminClient
    directory: Path

    def write(self, *numbers: int, acks: str = "1") -> None:
        """Acknowledged by the leader alone, or by all."""
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "acks": acks,
                "enable.idempotence": acks == "all",
                "log_level": 0,
            }
        )
        errors: list[object] = []
        for number in numbers:
            producer.produce(
                TP.topic, b"%d" % number, partition=0, on_delivery=lambda e, _: errors.append(e)
            )
        assert producer.flush(60) == 0
        assert errors == [None] * len(numbers)

    def has_cut(self, broker: int) -> bool:
        """Whether it has dropped an end of its log."""
        folder = self.directory / f"broker-{broker}"
        told = f"truncated partition={TP} "
        return any(told in path.read_text(errors="replace") for path in folder.glob("*.log"))

    def wait_until_alone(self, leader: int) -> None:
        def alone() -> bool:
            found = partition_metadata(self.client, TP.topic)
            return found is not None and (found.leader, found.isrs) == (leader, [leader])

        wait_until(alone, f"broker {leader} leads, alone in the ISR")

    def start_the_others(self, running: int) -> None:
        for broker in BROKERS:
            if broker != running:
                self.cluster.start_broker(broker)
        wait_for_isr(self.client, TP.topic, 3)

    def assert_reads(self, *numbers: int) -> None:
        expected = list(enumerate(numbers))
        assert read_numbers(self.cluster.bootstrap_servers, TP.topic) == expected

    def assert_logs_agree(self) -> None:
        """Ends the brokers."""
        for broker in BROKERS:
            self.cluster.stop_broker(broker)
        assert_replicas_agree(self.directory, TP, compacts=False)


def values_read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []

    def read() -> bool:
        found.extend(int(record.value) for record in consumer.poll(1000))
        return len(found) >= count

    wait_until(read, f"{count} records")
    return found


@pytest.fixture
def parting(tmp_path) -> Iterator[Parting]:
    settings = (("auto.leader.rebalance.enable", "false"),)
    with running_cluster(tmp_path, settings=settings) as cluster:
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        create_topic(cluster, TP.topic, config=config)
        made = Parting(cluster, admin(cluster), tmp_path)
        wait_for_isr(made.client, TP.topic, 3)
        made.write(0, acks="all")
        yield made


def test_what_only_a_dead_leader_had_gives_way_to_what_the_next_one_wrote(parting):
    """KIP-101, scenario 2, by an unclean election. A consumer that has read what is gone goes on
    with what is there instead (KIP-320)."""
    a = leader_of(parting.client, TP.topic)
    b, c = (broker for broker in BROKERS if broker != a)
    parting.cluster.kill_broker(b)
    parting.cluster.kill_broker(c)
    parting.wait_until_alone(a)
    parting.write(1, 2)
    consumer = Consumer({"bootstrap.servers": parting.cluster.bootstrap_servers})
    consumer.assign([TP])
    consumer.seek(TP, 0)
    assert values_read(consumer, 3) == [0, 1, 2]
    parting.cluster.kill_broker(a)
    parting.cluster.start_broker(b)
    parting.wait_until_alone(b)
    parting.write(11, 12, 13)
    parting.start_the_others(b)
    parting.write(20)
    assert values_read(consumer, 4) == [11, 12, 13, 20]
    consumer.close()
    parting.assert_reads(0, 11, 12, 13, 20)
    parting.assert_logs_agree()


@in_full
def test_logs_part_under_epochs_that_the_other_has_never_seen(parting):
    """KIP-279: fast failovers."""
    a = leader_of(parting.client, TP.topic)
    b, c = (broker for broker in BROKERS if broker != a)
    parting.cluster.kill_broker(b)
    parting.cluster.kill_broker(c)
    parting.wait_until_alone(a)
    parting.write(1)
    parting.cluster.kill_broker(a)
    for number, leader in enumerate((b, a, b)):
        parting.cluster.start_broker(leader)
        parting.wait_until_alone(leader)
        parting.write(*(10 * (1 + number) + n for n in range(2 + number)))
        if number < 2:
            parting.cluster.kill_broker(leader)
    parting.start_the_others(b)
    # By all: what the leader alone has is not read yet.
    parting.write(99, acks="all")
    # The last leader's: what it wrote in its first and in its second time.
    parting.assert_reads(0, 10, 11, 30, 31, 32, 33, 99)
    parting.assert_logs_agree()


@in_full
def test_a_follower_that_is_killed_when_it_has_cut_its_log_agrees_in_the_end(parting):
    """Its dropped end is of idempotent producers, and so is what it fetches instead."""
    a = leader_of(parting.client, TP.topic)
    b, c = (broker for broker in BROKERS if broker != a)
    parting.cluster.kill_broker(b)
    parting.cluster.kill_broker(c)
    parting.wait_until_alone(a)
    parting.write(1, 2, acks="all")
    parting.cluster.kill_broker(a)
    parting.cluster.start_broker(b)
    parting.wait_until_alone(b)
    parting.write(*range(11, 200), acks="all")
    parting.cluster.start_broker(a)
    wait_until(lambda: parting.has_cut(a), f"broker {a} has dropped its end")
    parting.cluster.kill_broker(a)
    parting.write(200, acks="all")
    parting.start_the_others(b)
    parting.write(201, acks="all")
    parting.assert_reads(0, *range(11, 202))
    parting.assert_logs_agree()
