"""Users with passwords, and what rules let each of them write."""

from confluent_kafka import KafkaError, Producer

from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.support.cluster_support import DEADLINE_S, create_topic
from integration_tests.support.command_line import succeed_here
from integration_tests.upgrades.checks.check import Always

SETTINGS = {
    "authorizer.class.name": "AclAuthorizer",
    # Brokers and the other checks do not log in.
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}
FORBIDDEN = "of-nobody"


class AccessRules(Always):
    def initialize(self, cluster: MixedCluster) -> None:
        create_topic(cluster, FORBIDDEN)
        self._users: list[str] = []

    def work(self, cluster: MixedCluster) -> None:
        """A further user, with a topic of their own."""
        user = f"user-{len(self._users)}"
        password = cluster.folder / "password"
        password.write_text(f"secret of {user}")
        # One of the three brokers may be down.
        create_topic(cluster, f"of-{user}", replication_factor=2)
        at = ("--bootstrap-server", cluster.bootstrap_servers)
        succeed_here("users", "add", user, *at, "--password-file", password)
        succeed_here(
            "acls", "add", *at, "--allow", f"User:{user}", "--producer", "--topic", f"of-{user}"
        )
        self._users.append(user)

    def validate(self, cluster: MixedCluster) -> None:
        for user in self._users:
            assert _write(cluster, user, f"of-{user}") is None
            refusal = _write(cluster, user, FORBIDDEN)
            assert refusal is not None
            assert refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _write(cluster: MixedCluster, user: str, topic: str) -> KafkaError | None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.log_in_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": f"secret of {user}",
            "log_level": 0,
        }
    )
    told: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(DEADLINE_S) == 0
    return told[0]
