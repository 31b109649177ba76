"""One idempotent producer, which goes on through all steps: each record once, in order."""

from confluent_kafka import Producer

from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.support.cluster_support import DEADLINE_S, create_topic
from integration_tests.support.steady_producer import read_numbers
from integration_tests.upgrades.checks.check import Always

TOPIC, A_ROUND = "produced", 200


class Producers(Always):
    def initialize(self, cluster: MixedCluster) -> None:
        create_topic(cluster, TOPIC)
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
        self._producer = Producer({**settings, "message.timeout.ms": 120_000, "log_level": 0})
        self._sent = 0

    def work(self, cluster: MixedCluster) -> None:
        failures: list[str] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failures.append(str(error))

        for number in range(self._sent, self._sent + A_ROUND):
            self._producer.produce(TOPIC, b"%d" % number, on_delivery=delivered)
        assert self._producer.flush(2 * DEADLINE_S) == 0
        assert failures == []
        self._sent += A_ROUND

    def validate(self, cluster: MixedCluster) -> None:
        read = [number for _, number in read_numbers(cluster.bootstrap_servers, TOPIC)]
        assert read == list(range(self._sent))
