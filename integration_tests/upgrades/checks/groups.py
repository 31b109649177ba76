"""Consumer groups of both kinds: a member reads on where the one before has committed."""

import json
from typing import ClassVar

from confluent_kafka import Consumer, Producer, TopicPartition

from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.support.cluster_support import DEADLINE_S, create_topic, wait_until
from integration_tests.support.command_line import succeed
from integration_tests.upgrades.checks.check import Always

A_ROUND = 20


class ClassicGroups(Always):
    name: ClassVar = "classic"
    protocol: ClassVar[dict[str, object]] = {"session.timeout.ms": 6000}

    def initialize(self, cluster: MixedCluster) -> None:
        create_topic(cluster, self.name)
        self._written = 0

    def work(self, cluster: MixedCluster) -> None:
        wanted = range(self._written, self._written + A_ROUND)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in wanted:
            producer.produce(self.name, b"%d" % number)
        assert producer.flush(DEADLINE_S) == 0
        self._written += A_ROUND
        member = self._member(cluster)
        member.subscribe([self.name])
        found: list[int] = []

        def is_read() -> bool:
            message = member.poll(0.5)
            if message is not None and not message.error():
                found.append(int(message.value()))
            return len(found) >= A_ROUND

        wait_until(is_read, f"the group {self.name} has read {wanted}: {found}")
        assert found == list(wanted)
        member.commit(asynchronous=False)
        member.close()

    def validate(self, cluster: MixedCluster) -> None:
        reader = self._member(cluster)
        (found,) = reader.committed([TopicPartition(self.name, 0)], timeout=DEADLINE_S)
        reader.close()
        assert found.offset == self._written

    def _member(self, cluster: MixedCluster) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **self.protocol,
            }
        )


class ConsumerGroups(ClassicGroups):
    """Those of KIP-848, which a cluster has from the level 1 of `group.version` on."""

    name = "consumer"
    protocol: ClassVar[dict[str, object]] = {"group.protocol": "consumer"}

    def is_possible(self, cluster: MixedCluster) -> bool:
        if not (cluster.services / "headrace_registry").is_dir():
            # Release 0.1.0, which knows no features.
            return False
        servers = cluster.bootstrap_servers
        rows = json.loads(succeed("features", "describe", "--bootstrap-server", servers, "--json"))
        return any(row["feature"] == "group.version" and row["level"] for row in rows)
