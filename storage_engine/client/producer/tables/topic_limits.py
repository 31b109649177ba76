"""The largest record batch that a topic takes: its `max.message.bytes`."""

from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.messages.describe_configs import API as DESCRIBE_CONFIGS
from storage_engine.protocol.messages.describe_configs import DescribeConfigsRequest

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default."""

_TOPIC_RESOURCE = 2
_MAX_MESSAGE_BYTES = "max.message.bytes"


def max_message_bytes(cluster: Cluster, topic: str) -> int:
    """The setting, or its default where the client may not see it. KafkaError and
    DeadlineExceededError when no broker answers."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE,
        resource_name=topic,
        configuration_keys=[_MAX_MESSAGE_BYTES],
    )
    message = DescribeConfigsRequest(
        resources=[resource], include_synonyms=False, include_documentation=False
    )
    (result,) = cluster.ask_any(DESCRIBE_CONFIGS, message).results
    if ErrorCode.of(result.error_code) is ErrorCode.NONE:
        for each in result.configs:
            if each.name == _MAX_MESSAGE_BYTES and each.value:
                return int(each.value)
    return DEFAULT_MAX_MESSAGE_BYTES
