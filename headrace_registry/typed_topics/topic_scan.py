"""Which typed topics there are, asked of brokers again and again.

    Metadata of all topics -> DescribeSchemas of those that are new, and of the typed ones:
                              MAX_TOPICS in a request, MOST_REQUESTS a scan, the others in the next

A topic never becomes typed, or untyped: so untyped ones are asked about once, by their ids.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ConfigError, ErrorCode
from storage_engine.core.ids import INTERNAL_TOPICS
from storage_engine.core.typed.topic_schema import TopicSchema, schema_of
from storage_engine.protocol.apis.describe_schemas import API as DESCRIBE_SCHEMAS
from storage_engine.protocol.apis.describe_schemas import (
    MAX_TOPICS,
    DescribedSchema,
    DescribeSchemasRequest,
)

MOST_REQUESTS = 20
MOST_TYPED = 20_000
"""The most typed topics that are followed."""


@dataclass(frozen=True, slots=True)
class _Known:
    topic_id: UUID
    schema: TopicSchema | None
    """None: the topic is not typed."""


class TopicScan:
    """For one thread; others read `typed`, which is replaced as a whole."""

    def __init__(self, ask: Callable[[Sequence[str]], Sequence[DescribedSchema]]) -> None:
        """`ask`: DescribeSchemas of some topics."""
        self._ask = ask
        self._known: dict[str, _Known] = {}
        self._next: list[str] = []
        """The topics that are left to be asked about in this round."""
        self.typed: Mapping[str, TopicSchema] = {}
        self.is_complete = False
        """Whether all topics were asked about at least once."""

    def scan(self, topics: Mapping[str, UUID]) -> None:
        """Ask about some of the topics, of which these are all that there are, with their ids."""
        self._known = {
            name: known for name, known in self._known.items() if topics.get(name) == known.topic_id
        }
        new = [name for name in topics if name not in self._known and name not in INTERNAL_TOPICS]
        if not self._next:
            self._next = [name for name, known in self._known.items() if known.schema is not None]
        room = MOST_REQUESTS * MAX_TOPICS
        asked = (new + [name for name in self._next if name in self._known])[:room]
        self._next = self._next[max(0, len(asked) - len(new)) :]
        for start in range(0, len(asked), MAX_TOPICS):
            for row in self._ask(asked[start : start + MAX_TOPICS]):
                self._note(row)
        self.is_complete = len(new) <= room
        typed = {
            name: known.schema for name, known in self._known.items() if known.schema is not None
        }
        self.typed = dict(list(typed.items())[:MOST_TYPED])

    def _note(self, row: DescribedSchema) -> None:
        if row.error_code != ErrorCode.NONE:
            return
        try:
            schema = None if row.schema is None else schema_of(row.schema)
        except ConfigError:
            # Of a later release.
            schema = None
        self._known[row.topic] = _Known(row.topic_id, schema)


def asked_of(cluster: Cluster) -> Callable[[Sequence[str]], Sequence[DescribedSchema]]:
    """DescribeSchemas, answered by any broker. NotServedError by one that knows no typed topics."""

    def ask(topics: Sequence[str]) -> Sequence[DescribedSchema]:
        request = DescribeSchemasRequest(topics=list(topics))
        return cluster.ask_any(DESCRIBE_SCHEMAS, request).topics

    return ask
