"""The connections of a producer to its cluster, which it finds by brokers or through ZooKeeper."""

from storage_engine.client.broker_discovery import ZooKeeperBrokers
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.producer_config import ProducerConfig


def cluster_of(config: ProducerConfig, deadline_ms: int) -> Cluster:
    """Opens nothing. `deadline_ms`: for what is asked of it to succeed."""
    where, source = config.bootstrap_servers, None
    if config.zookeeper_connect is not None:
        where = f"the cluster of ZooKeeper at {config.zookeeper_connect}"
        source = ZooKeeperBrokers(
            config.zookeeper_connect,
            timeout_ms=config.zookeeper_connection_timeout_ms,
            protocol=config.security.protocol.name,
            tls=config.zookeeper_tls,
        )
    return Cluster(
        where,
        client_id=config.client_id,
        request_timeout_ms=config.request_timeout_ms,
        deadline_ms=deadline_ms,
        source=source,
        security=config.security,
    )
