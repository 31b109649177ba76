"""Transactions: one that ends in each round, one that is aborted, and one that stays open from each
round to the next, so that another version ends it than has begun it."""

from confluent_kafka import Producer

from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.support.cluster_support import DEADLINE_S, create_topic
from integration_tests.support.spark_support import consume
from integration_tests.upgrades.checks.check import Always

TOPIC = "in-transactions"


class Transactions(Always):
    def initialize(self, cluster: MixedCluster) -> None:
        create_topic(cluster, TOPIC)
        self._round = 0
        self._open = _producer(cluster, "open")
        self._begin()
        self._other = _producer(cluster, "other")
        self._committed: list[bytes] = []

    def work(self, cluster: MixedCluster) -> None:
        self._end()
        for keeps in (True, False):
            self._other.begin_transaction()
            value = b"kept %d" % self._round if keeps else b"aborted"
            self._other.produce(TOPIC, value)
            self._other.flush(DEADLINE_S)
            if keeps:
                self._other.commit_transaction(DEADLINE_S)
                self._committed.append(value)
            else:
                self._other.abort_transaction(DEADLINE_S)
        self._round += 1
        self._begin()

    def validate(self, cluster: MixedCluster) -> None:
        self._end()
        rows = consume(cluster.bootstrap_servers, TOPIC, isolation="read_committed")
        assert sorted(row.value() or b"" for row in rows) == sorted(self._committed)
        self._begin()

    def _begin(self) -> None:
        self._open.begin_transaction()
        self._open.produce(TOPIC, b"open %d" % self._round)
        self._open.flush(DEADLINE_S)

    def _end(self) -> None:
        self._open.commit_transaction(DEADLINE_S)
        self._committed.append(b"open %d" % self._round)

    def close(self) -> None:
        del self._open, self._other


def _producer(cluster: MixedCluster, name: str) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    made.init_transactions(DEADLINE_S)
    return made
