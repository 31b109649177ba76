"""DescribeSinks: what the coordinators on one broker know of exactly-once sinks: the last commit of
each query, and the task attempts whose transactions are open. One of Headrace's own APIs. Source:
R-CON6.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.core.ids import TopicPartition, numbers_by_topic
from storage_engine.protocol.apis.fields import (
    boolean,
    custom,
    int16,
    int32,
    int64,
    int64s,
    name,
    names,
    nullable_string,
    structs,
)
from storage_engine.protocol.apis.micro_batch_fields import CommittedBy, committed
from storage_engine.protocol.apis.struct_codec import api
from storage_engine.protocol.apis.wire import Reader, Writer

MOST_ROWS = 1_000
"""The most queries of one answer."""
MOST_MEMBERS = 100
"""The most members of one query that are listed; the others are counted."""
MOST_PARTITIONS = 100
"""The most partitions of one member that are listed."""
MOST_NAMES = 1_000
"""The most sinks, and the most producer ids, of one request."""

UNKNOWN_IDLE = -1
NEVER = -1
"""In place of a number of a micro-batch: the query has committed none."""


@dataclass(slots=True, kw_only=True)
class DescribeSinksRequest:
    """Names at most MOST_NAMES of each."""

    sinks: Sequence[str] = names()
    """The sink ids; empty: all."""
    producers: Sequence[int] = int64s()
    """Only queries with one of these open members; empty: all."""
    most: int = int32(default=MOST_ROWS)


def _read_partitions(reader: Reader) -> Sequence[TopicPartition]:
    partitions = []
    for _ in range(reader.count(2)):
        topic = reader.name()
        partitions += [TopicPartition(topic, number) for number in reader.int32s()]
    return partitions


def _write_partitions(writer: Writer, partitions: Sequence[TopicPartition]) -> None:
    topics = numbers_by_topic(partitions)
    writer.count(len(topics))
    for topic, numbers in topics.items():
        writer.string(topic)
        writer.int32s(numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenMember:
    """A task attempt whose transaction has not ended."""

    producer_id: int = int64()
    epoch: int = int16()
    batch: int = int64()
    timeout_ms: int = int32()
    idle_ms: int = int64(default=UNKNOWN_IDLE)
    """The ms since the last request of any attempt of its micro-batch."""
    aborting: bool = boolean()
    partitions: Sequence[TopicPartition] = custom(_read_partitions, _write_partitions, 1, list)
    """The first MOST_PARTITIONS partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkQuery:
    """One query's commits to one sink."""

    sink: str = name()
    query: str = name()
    committed: CommittedBy = committed()
    last: int = int64(default=NEVER)
    markers: int = int32()
    """Transactions whose markers are not all written."""
    origins: int = int32()
    """Source partitions whose offsets it keeps."""
    members_total: int = int32()
    members: Sequence[OpenMember] = structs(OpenMember)
    """The first MOST_MEMBERS members."""


@dataclass(slots=True, kw_only=True)
class DescribeSinksResponse:
    """The queries, ordered by sink and query."""

    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    more: bool = boolean()
    """True when more queries match than the answer has."""
    queries: Sequence[SinkQuery] = structs(SinkQuery)


API = api(20_005, DescribeSinksRequest, DescribeSinksResponse)
