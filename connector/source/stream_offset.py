"""Offsets of a stream as they stand in Spark's checkpoint. An end offset holds the start that it
was planned from, so that a micro-batch can be read again from the offset log alone.

    initial   {}
    end       {"t": {"0": 70, "1": 5}, "@from": {"t": {"0": 0, "1": 0}}, "@ids": {"t": "0b5e…"}}

"@ids" holds the ids of the topics: after a topic was deleted and created again under the same name,
its offsets mean other records. With groupIdPrefix there is "@query" too, a name of the query that a
restart finds again, because Spark does not tell a source the query's id. "@first" marks an end that
was planned as the first of a new query while the source did not know whether it is one: see
`older_spark.py`. "@schemas" holds the version of the schema in which Avro was read, of values and
perhaps keys.

Spark asks for the initial offset in batch 0 and again after a restart, and never writes it down: it
holds nothing, and the end of batch 0 says where that began. No topic's name has an `@`. Other keys
that begin with it are of later versions, and skipped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from connector.errors import ConnectorError
from connector.source.offset_range import OffsetRange
from storage_engine.core.ids import TopicPartition

FROM_KEY = "@from"
IDS_KEY = "@ids"
QUERY_KEY = "@query"
FIRST_KEY = "@first"
SCHEMAS_KEY = "@schemas"
_OWN_KEY_PREFIX = "@"

OffsetJson = dict[str, Any]
"""A position as Spark keeps it."""


class SchemaMark(NamedTuple):
    """A version of a subject, by which a query has read."""

    subject: str
    version: int
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """A position in the stream: the next offset to read of each partition."""

    positions: Mapping[TopicPartition, int]
    begins: Mapping[TopicPartition, int] | None = None
    """The offsets at which the micro-batch that ends here began. None only for the initial offset.
    """

    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """The ids of the topics of `positions`, as far as they are known."""

    query: str | None = None
    """The end of the consumer group's name. None without groupIdPrefix."""

    is_first: bool = False
    """Whether `begins` holds where a new query begins, and counts for a new query only."""

    schemas: "Mapping[str, SchemaMark]" = field(default_factory=dict)
    """The schemas of "value" and "key" where they are Avro."""

    @property
    def is_initial(self) -> bool:
        return self.begins is None

    def to_json(self) -> OffsetJson:
        """The form that Spark writes to its offset log."""
        encoded: OffsetJson = positions_to_json(self.positions)
        if self.begins is not None:
            encoded[FROM_KEY] = positions_to_json(self.begins)
        if self.topic_ids:
            encoded[IDS_KEY] = {
                topic: self.topic_ids[topic].hex for topic in sorted(self.topic_ids)
            }
        if self.query is not None:
            encoded[QUERY_KEY] = self.query
        if self.is_first:
            encoded[FIRST_KEY] = True
        if self.schemas:
            encoded[SCHEMAS_KEY] = {
                part: mark._asdict() for part, mark in sorted(self.schemas.items())
            }
        return encoded

    @classmethod
    def from_json(cls, encoded: OffsetJson) -> "StreamOffset":
        """The inverse of `to_json`. ConnectorError for an offset that another format wrote."""
        topics = {
            topic: by_partition
            for topic, by_partition in encoded.items()
            if not topic.startswith(_OWN_KEY_PREFIX)
        }
        begins = encoded.get(FROM_KEY)
        return cls(
            positions=_positions_from_json(topics),
            begins=None if begins is None else _positions_from_json(begins),
            topic_ids=_ids_from_json(encoded.get(IDS_KEY, {})),
            query=encoded.get(QUERY_KEY),
            is_first=FIRST_KEY in encoded,
            schemas=_schemas_from_json(encoded.get(SCHEMAS_KEY, {})),
        )


INITIAL = StreamOffset(positions={})
"""The offset of a query that has planned nothing."""


def positions_to_json(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The JSON object, sorted, because Spark compares offsets as texts."""
    encoded: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(positions):
        by_partition = encoded.setdefault(topic, {})
        by_partition[str(partition)] = positions[TopicPartition(topic, partition)]
    return encoded


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """The ranges of the micro-batch that ends at `end`, sorted by partition, without empty ones.

    It begins at `start`, the position in Spark's log. Where that is the initial offset, and for
    partitions that are new, begin again, or are of a topic that was created again since, it begins
    at the offsets in `end`.
    """
    ranges = []
    recreated = recreated_topics(start.topic_ids, end.topic_ids)
    for topic_partition in sorted(end.positions):
        end_offset = end.positions[topic_partition]
        begin_offset = (end.begins or {}).get(topic_partition, end_offset)
        if not start.is_initial:
            known = topic_partition in start.positions and topic_partition.topic not in recreated
            position = start.positions[topic_partition] if known else 0
            if end.is_first:
                _check_not_back(topic_partition, position, end_offset)
                begin_offset = position
            elif known and position <= end_offset:
                begin_offset = position
        if begin_offset < end_offset:
            ranges.append(
                OffsetRange(
                    topic_partition=topic_partition,
                    start_offset=begin_offset,
                    end_offset=end_offset,
                    topic_id=end.topic_ids.get(topic_partition.topic),
                )
            )
    return ranges


def _check_not_back(topic_partition: TopicPartition, position: int, end_offset: int) -> None:
    """An end that was planned without the place of the query must not lie before it: the query
    would go on from there, and read records twice."""
    if position > end_offset:
        raise ConnectorError(
            "BAD_CHECKPOINT",
            f"{topic_partition} was read up to offset {position}, and a micro-batch was planned to "
            f"end at {end_offset}; delete the newest file of the checkpoint's folder 'offsets', "
            "and leave spark.sql.streaming.triggerAvailableNowWrapper.enabled off",
        )


def recreated_topics(before: Mapping[str, UUID], now: Mapping[str, UUID]) -> set[str]:
    """The topics whose id has changed. An id that is unknown on one side counts as unchanged."""
    return {topic for topic, topic_id in before.items() if now.get(topic, topic_id) != topic_id}


def _ids_from_json(encoded: OffsetJson) -> dict[str, UUID]:
    try:
        return {topic: UUID(hex=topic_id) for topic, topic_id in encoded.items()}
    except (AttributeError, TypeError, ValueError):
        raise ConnectorError(
            "BAD_CHECKPOINT",
            f"the checkpoint has topic ids that are not valid: {encoded!r:.200}",
        ) from None


def _schemas_from_json(encoded: OffsetJson) -> dict[str, SchemaMark]:
    try:
        return {
            part: SchemaMark(str(mark["subject"]), int(mark["version"]), int(mark["id"]))
            for part, mark in encoded.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConnectorError(
            "BAD_CHECKPOINT", f"the checkpoint has schemas that are not valid: {encoded!r:.200}"
        ) from None


def _positions_from_json(topics: OffsetJson) -> dict[TopicPartition, int]:
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, by_partition in topics.items()
            for partition, offset in by_partition.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ConnectorError(
            "BAD_CHECKPOINT",
            f"the checkpoint has an offset that the format headrace did not write: {topics!r:.200}",
        ) from None
