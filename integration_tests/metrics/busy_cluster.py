"""A cluster in which there is something to tell of everything."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    create_topic,
    wait_until,
)
from integration_tests.support.transactional_clients import Confluent
from storage_engine.client.cluster import Cluster
from storage_engine.client.micro_batches import MicroBatches, MicroBatchMember
from storage_engine.core.ids import TopicPartition as Place
from storage_engine.tools.local.local_cluster import LocalCluster

SETTINGS = (
    ("transaction.state.log.num.partitions", str(COORDINATOR_PARTITIONS)),
    ("group.initial.rebalance.delay.ms", "0"),
)
TOPIC, OPEN_TOPIC, GROUP, SINK, QUERY = "flights", "open", "readers", "board-sink", "a query"
SENT, READ = 40, 15
"""Records of the topic, and those that the group has read."""


@dataclass(frozen=True, slots=True)
class Busy:
    cluster: LocalCluster
    producer: Producer


@contextlib.contextmanager
def busy(cluster: LocalCluster) -> Iterator[Busy]:
    """Producers, a group that lags, an open transaction, a committed and an open micro-batch."""
    for topic in (TOPIC, OPEN_TOPIC):
        create_topic(cluster, topic, partitions=2)
    servers = cluster.bootstrap_servers
    plain = Producer({**settings_for(servers), "compression.type": "lz4", "log_level": 0})
    for number in range(SENT):
        plain.produce(TOPIC, str(number) * 20, partition=0)
    assert plain.flush(60) == 0
    consumer = _lagging(servers)
    transaction = Confluent(servers, "an-open-transaction")
    transaction.begin()
    transaction.write(OPEN_TOPIC, 1, b"not yet")
    with Cluster(servers, request_timeout_ms=5_000) as client:
        batches = MicroBatches(client, SINK, QUERY)
        first = batches.join(0)
        assert isinstance(first, MicroBatchMember)
        first.enlist([Place(TOPIC, 1)])
        batches.commit(0, [first.id])
        second = batches.join(1)
        assert isinstance(second, MicroBatchMember)
        yield Busy(cluster, plain)
        batches.abort([second.id])
    consumer.close()
    transaction.abort()
    transaction.close()


def _lagging(servers: str) -> Consumer:
    consumer = Consumer(
        {
            **settings_for(servers),
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    wait_until(lambda: consumer.poll(0.5), "the group reads")
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, READ)], asynchronous=False)
    return consumer
