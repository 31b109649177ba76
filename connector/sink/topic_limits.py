"""What the sink must know of topics before it writes: their partitions, and how large a record may
be. Its one rule: asked once per process for a while, because Spark runs many short tasks.
"""

import logging
import time
from typing import TYPE_CHECKING

from storage_engine.core.errors import HeadraceError

if TYPE_CHECKING:
    from storage_engine.client.cluster import Cluster

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = "max.message.bytes"
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default, taken where a broker does not tell."""

LIMIT_MAX_AGE_S = 60.0
"""How long a changed max.message.bytes may go unseen."""

_limits: dict[tuple[str, str], tuple[float, int]] = {}
"""By bootstrap servers and topic: when it was asked for, and the limit."""


class TopicLimits:
    """Looks topics up in one cluster."""

    def __init__(self, cluster: "Cluster", *, max_age_ms: int) -> None:
        self._cluster = cluster
        self._max_age_ms = max_age_ms

    def partition_count(self, topic: str) -> int:
        """KafkaError for a topic that does not exist."""
        metadata = self._cluster.metadata([topic], max_age_ms=self._max_age_ms)
        found = metadata.topics.get(topic) or self._cluster.topic(topic)
        return len(found.partitions)

    def max_message_bytes(self, topic: str) -> int:
        """The largest batch that the topic takes."""
        key = (self._cluster.bootstrap_servers, topic)
        asked_at_s, limit = _limits.get(key, (0.0, 0))
        if not limit or time.monotonic() - asked_at_s > LIMIT_MAX_AGE_S:
            limit = self._ask_limit(topic)
            _limits[key] = (time.monotonic(), limit)
        return limit

    def _ask_limit(self, topic: str) -> int:
        from storage_engine.client.admin.topics import describe_topic_configs

        try:
            setting = describe_topic_configs(self._cluster, topic).get(MAX_MESSAGE_BYTES)
        except HeadraceError as error:
            logger.warning("the limit of a record of topic %s is not known: %s", topic, error)
            setting = None
        if setting is None or setting.value is None:
            return DEFAULT_MAX_MESSAGE_BYTES
        return int(setting.value)
