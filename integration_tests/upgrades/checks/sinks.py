"""A sink of micro-batches: each number is committed once, also where a driver repeats it after the
brokers have another version, and a member that one version let join is committed by the next."""

import pyarrow as pa

from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.support.cluster_support import create_topic
from integration_tests.support.spark_support import consume
from integration_tests.upgrades.checks.check import Always
from storage_engine.client.cluster import Cluster
from storage_engine.client.micro_batches import (
    AlreadyCommitted,
    CommitOutcome,
    MicroBatches,
    MicroBatchMember,
)
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_encoder import iter_encoded

TOPIC, SINK, QUERY = "in-micro-batches", "sink", "query"


class Sinks(Always):
    def initialize(self, cluster: MixedCluster) -> None:
        create_topic(cluster, TOPIC)
        self._batch = 0
        self._member = self._written(cluster)

    def work(self, cluster: MixedCluster) -> None:
        self._commit(cluster)
        self._member = self._written(cluster)

    def validate(self, cluster: MixedCluster) -> None:
        self._commit(cluster)
        rows = consume(cluster.bootstrap_servers, TOPIC, isolation="read_committed")
        assert [row.value() for row in rows] == [b"%d" % number for number in range(self._batch)]
        with Cluster(cluster.bootstrap_servers) as client:
            for number in range(self._batch):
                joined = MicroBatches(client, SINK, QUERY).join(number)
                assert isinstance(joined, AlreadyCommitted), number
        self._member = self._written(cluster)

    def _commit(self, cluster: MixedCluster) -> None:
        with Cluster(cluster.bootstrap_servers) as client:
            batches = MicroBatches(client, SINK, QUERY)
            done = batches.commit(self._batch, [self._member.id])
            assert done.outcome is CommitOutcome.COMMITTED
            assert isinstance(batches.join(self._batch), AlreadyCommitted)
        self._batch += 1

    def _written(self, cluster: MixedCluster) -> MicroBatchMember:
        """A member with the rows of the next micro-batch."""
        with Cluster(cluster.bootstrap_servers) as client:
            member = MicroBatches(client, SINK, QUERY).join(self._batch)
            assert isinstance(member, MicroBatchMember)
            values = pa.array([b"%d" % self._batch], pa.binary())
            with BatchWriter(client, transaction=member) as writer:
                for batch in iter_encoded(values, None, None):
                    writer.append(TopicPartition(TOPIC, 0), batch)
        return member
