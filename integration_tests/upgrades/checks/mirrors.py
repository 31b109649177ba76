"""A mirror goes on from its position: each record is in the copy once, in order."""

from confluent_kafka import Producer

from integration_tests.command_line.mirrored import committed_records
from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.support.cluster_support import DEADLINE_S, create_topic
from integration_tests.support.command_line import succeed
from integration_tests.upgrades.checks.check import Always

TOPIC, COPY, A_ROUND = "mirrored", "copy-of-mirrored", 100


class Mirrors(Always):
    def initialize(self, cluster: MixedCluster) -> None:
        create_topic(cluster, TOPIC)
        self._written = 0

    def work(self, cluster: MixedCluster) -> None:
        servers = cluster.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers})
        for number in range(self._written, self._written + A_ROUND):
            producer.produce(TOPIC, b"%d" % number)
        assert producer.flush(DEADLINE_S) == 0
        self._written += A_ROUND
        names = ("--topics", TOPIC, "--target-topic", "copy-of-{topic}")
        succeed("mirror", "--source", servers, "--target", servers, *names, "--exit-at-end")

    def validate(self, cluster: MixedCluster) -> None:
        copies = committed_records(cluster.bootstrap_servers, COPY, 0)
        assert [int(seen.value) for _, seen in copies] == list(range(self._written))
