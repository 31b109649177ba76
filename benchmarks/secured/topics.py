"""The topics of the benchmark, and the access rules of its user."""

from benchmarks.secured.brokers import OPEN, Broker
from benchmarks.support.brokers import HOST
from benchmarks.support.wire_load import USER
from storage_engine.client import NewTopic
from storage_engine.client.admin.access_rules import create_rules
from storage_engine.client.cluster import Cluster
from storage_engine.core.security.acl_rules import (
    AccessRule,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

READ_TOPIC = "read"
WRITTEN = "written"


def allow(broker: Broker) -> None:
    """Create the rules of the benchmark's user: all that it does, and no more."""
    rules = [
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, name, PatternType.PREFIXED),
            AccessRule(f"User:{USER}", "*", operation, AclPermission.ALLOW),
        )
        for name, operation in ((READ_TOPIC, AclOperation.READ), (WRITTEN, AclOperation.WRITE))
    ]
    with Cluster(f"{HOST}:{broker.listeners[OPEN].port}") as cluster:
        create_rules(cluster, rules)


def create_topic(broker: Broker, topic: str) -> None:
    """Create a topic with one partition, unless it exists."""
    with broker.admin as admin:
        if topic not in admin.list_topics():
            admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])
