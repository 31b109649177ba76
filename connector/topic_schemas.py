"""The schemas of topics: requested from the brokers, and remembered in the process for a while,
because Spark makes a writer for each micro-batch, and runs many tasks in a process.

Rule: a remembered schema may be old. Readers and writers that use it compare the topic's id.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from connector.connections import cluster_for
from connector.options.connection_options import ConnectionOptions
from storage_engine.core.errors import HeadraceError
from storage_engine.core.typed.topic_schema import SchemaColumn, SchemaVersion, TopicSchema

if TYPE_CHECKING:
    from storage_engine.client.topic_schemas import KnownSchema

MOST_REMEMBERED = 10_000
"""The most topics that are remembered; one more, and all are asked for again."""

_remembered: dict[tuple[ConnectionOptions, str], "tuple[float, KnownSchema | None]"] = {}
"""The time of the answer and the schema. None: the topic, or its brokers, have no schemas."""


def known_schemas(
    options: ConnectionOptions, topics: Iterable[str], *, refresh: bool = False
) -> "dict[str, KnownSchema | None]":
    """The schemas of topics that exist; None for a topic without one. What is not older than
    `metadata.max.age.ms` is not asked for again, unless `refresh`."""
    from storage_engine.client.topic_schemas import TopicSchemas

    oldest_s = time.monotonic() - options.metadata_max_age_ms / 1000
    found: dict[str, KnownSchema | None] = {}
    asking: TopicSchemas | None = None
    for topic in topics:
        asked_at_s, known = _remembered.get((options, topic), (None, None))
        if refresh or asked_at_s is None or asked_at_s < oldest_s:
            asking = asking or TopicSchemas(cluster_for(options))
            known = asking.get(topic)
            if len(_remembered) >= MOST_REMEMBERED:
                _remembered.clear()
            _remembered[options, topic] = (time.monotonic(), known)
        found[topic] = known
    return found


def is_remembered(options: ConnectionOptions, topic: str) -> bool:
    """Whether something is remembered of the topic, however old."""
    return (options, topic) in _remembered


def known_schema_or_older(options: ConnectionOptions, topic: str) -> "KnownSchema | None":
    """The schema of a topic; where no broker answers, the last known one: a running query waits for
    its brokers in the tasks, which have more patience."""
    try:
        return known_schemas(options, [topic])[topic]
    except HeadraceError:
        remembered = _remembered.get((options, topic))
        if remembered is None:
            raise
        return remembered[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedSink:
    """The topic that typed rows go to, as the driver found it. It is pickled into tasks, which
    compare the topic's id before they write."""

    topic: str
    topic_id: UUID
    schema: TopicSchema

    @property
    def version(self) -> SchemaVersion:
        """The version that rows are written in."""
        return self.schema.latest

    @property
    def required(self) -> tuple[SchemaColumn, ...]:
        """The columns that may not be null."""
        return tuple(each for each in self.version.visible if not each.nullable)
