"""Looks up the largest record batch of a topic (`max.message.bytes`).

A process requests the limit once for a while, because Spark runs many short tasks in it. So a
limit may be out of date, and no row is refused by it before it was requested again.
"""

import logging
import time
from typing import TYPE_CHECKING

from connector.errors import RowError
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    from storage_engine.client.cluster import Cluster

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = "max.message.bytes"
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default. Batches are made no larger where the brokers don't report the limit, as to users
without the right to describe the topic's settings."""

UNCHECKED_BYTES = 16 * 1024
"""Up to this size rows are sent without asking for the limit, because asking costs a short task
more than writing. It is the default batch.size of Kafka's own producers."""

LIMIT_MAX_AGE_S = 60.0
"""How long a changed max.message.bytes may go unseen."""

_limits: dict[tuple[str, str], tuple[float, int | None]] = {}
"""The limit and the time when it was requested, by bootstrap servers and topic. None: the brokers
did not report it."""


def max_message_bytes(cluster: "Cluster", topic: str, *, refresh: bool = False) -> int | None:
    """The largest record batch that the topic takes. None where that is not known: then the broker
    alone can refuse a batch. `refresh`: a remembered limit does not count."""
    key = (cluster.bootstrap_servers, topic)
    known = _limits.get(key)
    if refresh or known is None or time.monotonic() - known[0] > LIMIT_MAX_AGE_S:
        limit = _ask_limit(cluster, topic)
        known = _limits[key] = (time.monotonic(), limit)
    return known[1]


def check_size(cluster: "Cluster", tp: TopicPartition, size: int, what: str, remedy: str) -> None:
    """RowError where the topic does not take a batch of so many bytes, which has one row. The limit
    may have been raised since it was asked for."""
    largest = max_message_bytes(cluster, tp.topic)
    if largest is not None and size > largest:
        largest = max_message_bytes(cluster, tp.topic, refresh=True)
    if largest is not None and size > largest:
        raise RowError(
            "MESSAGE_TOO_LARGE",
            f"{tp}: a {what} takes {size} bytes, and the topic's max.message.bytes is {largest}; "
            f"shorten the {remedy}, or raise that setting",
        )


def assumed(largest: int | None) -> int:
    """The size that batches of several rows are kept within."""
    return DEFAULT_MAX_MESSAGE_BYTES if largest is None else largest


def _ask_limit(cluster: "Cluster", topic: str) -> int | None:
    from storage_engine.client.admin.topics import describe_topic_configs

    try:
        setting = describe_topic_configs(cluster, topic).get(MAX_MESSAGE_BYTES)
    except HeadraceError as error:
        logger.warning("the limit of a record of topic %s is not known: %s", topic, error)
        return None
    return None if setting is None or setting.value is None else int(setting.value)
