"""The folder of a cluster of which nothing runs."""

from pathlib import Path

from storage_engine.tools.local import cluster_file
from storage_engine.tools.local.cluster_file import BrokerEntry, ClusterFile


def stopped_cluster(directory: Path) -> ClusterFile:
    """Writes cluster.json of two brokers on ports that nobody listens on."""
    cluster = ClusterFile(
        zookeeper="127.0.0.1:2",
        zookeeper_pid=None,
        zookeeper_dir=None,
        brokers=tuple(BrokerEntry.for_id(number, "127.0.0.1", number) for number in (1, 3)),
    )
    cluster_file.write(directory, cluster)
    return cluster
