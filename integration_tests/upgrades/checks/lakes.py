"""A table of the lake, written with the version of the services: each record of the topic once."""

from confluent_kafka import Producer

from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.lake.lakes import (
    TABLE,
    LakeUnderFire,
    assert_equal,
    opaque_log,
    table_at,
    wait_for_rows,
)
from integration_tests.support.cluster_support import DEADLINE_S, create_topic

TOPIC, A_ROUND = "tabled", 50


class Lakes:
    def is_possible(self, cluster: MixedCluster) -> bool:
        return (cluster.services / "headrace_lake").is_dir()

    def initialize(self, cluster: MixedCluster) -> None:
        create_topic(cluster, TOPIC, config=TABLE)
        self._lake = LakeUnderFire(cluster, cluster.folder, "lake")
        self._written = 0

    def work(self, cluster: MixedCluster) -> None:
        """A lake that is killed in one round goes on in the next."""
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(self._written, self._written + A_ROUND):
            producer.produce(TOPIC, b"%d" % number)
        assert producer.flush(DEADLINE_S) == 0
        self._written += A_ROUND
        self._lake.code = cluster.services
        self._lake.start()
        wait_for_rows(self._place, self._written, self._lake)
        self._lake.kill()

    @property
    def _place(self):
        return self._lake.root / TOPIC

    def validate(self, cluster: MixedCluster) -> None:
        assert_equal(table_at(self._place), opaque_log(cluster, TOPIC))

    def close(self) -> None:
        self._lake.kill()
