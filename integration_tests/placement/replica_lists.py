"""The replicas of a cluster, as another client than ours sees them."""

from confluent_kafka.admin import AdminClient, ConfigResource

from integration_tests.support.cluster_support import admin
from storage_engine.tools.local.local_cluster import LocalCluster

Replicas = dict[tuple[str, int], list[int]]


def replica_lists(client: AdminClient) -> Replicas:
    """Topic and partition -> replicas, the preferred leader first."""
    return {
        (topic.topic, number): list(partition.replicas)
        for topic in client.list_topics(timeout=10).topics.values()
        for number, partition in topic.partitions.items()
    }


def on_broker(client: AdminClient, broker: int) -> list[tuple[str, int]]:
    """The partitions that have a replica on the broker."""
    return [tp for tp, replicas in replica_lists(client).items() if broker in replicas]


def folders_of(cluster: LocalCluster, broker: int, topics: set[str]) -> list[str]:
    """The folders of the topics' partitions in the broker's log dir."""
    data = cluster.directory / cluster.state.broker(broker).data_dir
    return [each.name for each in data.iterdir() if each.name.rpartition("-")[0] in topics]


def setting(cluster: LocalCluster, kind: str, name: str, key: str) -> str:
    """The value of a setting; empty for none. `kind`: broker or topic."""
    resource = ConfigResource(kind, name)
    client = admin(cluster)
    found = client.describe_configs([resource], request_timeout=30)[resource].result(60)
    return (found[key].value or "") if key in found else ""
