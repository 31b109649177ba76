"""A compacted topic: the newest value of each key stays, and older ones go."""

from confluent_kafka import Producer

from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.support.cluster_support import DEADLINE_S, create_topic, wait_until
from integration_tests.support.spark_support import consume
from integration_tests.upgrades.checks.check import Always

TOPIC, KEYS, VALUES = "compacted", 8, 16
SETTINGS = {"log.cleaner.backoff.ms": "200"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "2048",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}


class Compaction(Always):
    def initialize(self, cluster: MixedCluster) -> None:
        create_topic(cluster, TOPIC, config=COMPACTED)
        self._rounds = 0

    def work(self, cluster: MixedCluster) -> None:
        self._rounds += 1
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
        for number in range(VALUES):
            for key in range(KEYS):
                producer.produce(TOPIC, self._value(number).ljust(60), key=b"%d" % key)
            assert producer.flush(DEADLINE_S) == 0

    def _value(self, number: int) -> bytes:
        return b"value %d of round %d" % (number, self._rounds)

    def validate(self, cluster: MixedCluster) -> None:
        newest = {b"%d" % key: self._value(VALUES - 1) for key in range(KEYS)}
        written = KEYS * VALUES * self._rounds

        def is_compacted() -> bool:
            rows = consume(cluster.bootstrap_servers, TOPIC)
            assert {row.key(): row.value().strip() for row in rows} == newest
            return len(rows) < written / 2

        wait_until(is_compacted, "older values are gone")
