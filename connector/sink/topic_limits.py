"""Looks up the largest record batch of a topic (`max.message.bytes`).

A process asks once for a while, because Spark runs many short tasks in it.
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
"""Kafka's default, taken where the brokers don't answer."""

UNCHECKED_BYTES = 16 * 1024
"""Up to this size rows are sent without asking for the limit, because asking costs a short task
more than writing. It is the default batch.size of Kafka's own producers."""

LIMIT_MAX_AGE_S = 60.0
"""How long a changed max.message.bytes may go unseen."""

_limits: dict[tuple[str, str], tuple[float, int]] = {}
"""The limit and the time when it was requested, by bootstrap servers and topic."""


def max_message_bytes(cluster: "Cluster", topic: str) -> int:
    """The largest record batch that the topic takes."""
    key = (cluster.bootstrap_servers, topic)
    asked_at_s, limit = _limits.get(key, (0.0, 0))
    if not limit or time.monotonic() - asked_at_s > LIMIT_MAX_AGE_S:
        limit = _ask_limit(cluster, topic)
        _limits[key] = (time.monotonic(), limit)
    return limit


def _ask_limit(cluster: "Cluster", topic: str) -> int:
    from storage_engine.client.admin.topics import describe_topic_configs

    try:
        setting = describe_topic_configs(cluster, topic).get(MAX_MESSAGE_BYTES)
    except HeadraceError as error:
        logger.warning("the limit of a record of topic %s is not known: %s", topic, error)
        setting = None
    if setting is None or setting.value is None:
        return DEFAULT_MAX_MESSAGE_BYTES
    return int(setting.value)
