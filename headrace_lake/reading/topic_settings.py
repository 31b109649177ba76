"""The settings of many topics in one request each thousand, of which a lake needs five.

Source: the DescribeConfigs API.
"""

from collections.abc import Collection, Sequence

from storage_engine.client.asking import error_from
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.protocol.messages.describe_configs import API as DESCRIBE_CONFIGS
from storage_engine.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)

TOPICS_A_REQUEST = 1_000

_TOPIC_RESOURCE = 2
_LATER = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT)
"""A topic that has just gone, or a broker without ZooKeeper: asked for again at the next look."""


def own_settings(
    cluster: Cluster, topics: Sequence[str], names: Collection[str]
) -> dict[str, dict[str, str]]:
    """By topic, those of the settings `names` that the topic itself has. Topics that may not be
    described, or are gone, are left out. KafkaError, DeadlineExceededError."""
    found: dict[str, dict[str, str]] = {}
    for first in range(0, len(topics), TOPICS_A_REQUEST):
        request = _request(topics[first : first + TOPICS_A_REQUEST], names)
        answer = cluster.ask_any(DESCRIBE_CONFIGS, request, error_of=_retriable)
        for result in answer.results:
            if ErrorCode.of(result.error_code) is ErrorCode.NONE:
                found[result.resource_name] = {
                    row.name: row.value
                    for row in result.configs
                    if row.config_source == ConfigSource.TOPIC
                    and row.name in names
                    and row.value is not None
                }
    return found


def _request(topics: Sequence[str], names: Collection[str]) -> DescribeConfigsRequest:
    row = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            row(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[*names])
            for topic in topics
        ]
    )


def _retriable(answer: DescribeConfigsResponse) -> KafkaError | None:
    for result in answer.results:
        error = error_from(result.error_code, result.error_message)
        if error is not None and error.retriable and error.code not in _LATER:
            return error
    return None
