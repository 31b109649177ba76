"""The topic `_schemas`: one partition, compacted, on three brokers where there are as many."""

from storage_engine.client.admin.topics import create_topic, describe_topic_configs
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError

REPLICAS = 3
_POLICY = "cleanup.policy"


def ensure_topic(cluster: Cluster, topic: str) -> None:
    """Create the topic unless it is there. ConfigError for one that would lose schemas, or has no
    order."""
    cluster.refresh([topic])
    if not cluster.knows(topic):
        replicas = min(REPLICAS, len(cluster.view.brokers))
        try:
            create_topic(cluster, topic, 1, replicas, {_POLICY: "compact"})
            return
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    partitions = len(cluster.topic(topic).partitions)
    if partitions != 1:
        raise ConfigError(
            f"the topic '{topic}' has {partitions} partitions, and a registry needs one: records "
            "have no order otherwise; name another one with --topic"
        )
    policy = describe_topic_configs(cluster, topic)[_POLICY].value
    if policy != "compact":
        raise ConfigError(
            f"the topic '{topic}' has {_POLICY}={policy}, which deletes schemas that are old; run: "
            f"headrace topics alter {topic} --config {_POLICY}=compact"
        )
