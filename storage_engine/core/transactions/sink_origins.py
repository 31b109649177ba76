"""The offsets up to which the partitions of a source have been copied to a sink, by all its queries
together. Origins only advance, and each move has a number, the sink's clock.

By the clock a task attempt recognises origins that have moved since it joined. Clock and origins
are stored in the ledgers, so that they outlive a coordinator; here they are collected by sink, so
that a query costs the same however many batches were committed before. Source: R-SPARK2, R-SPARK3.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import LedgerRecord, Origin

MOST_ORIGIN_BYTES = 15 << 20
"""The most bytes of origins in a record, unless the log's max.message.bytes is lower."""
_TOPIC_BYTES = 8
"""The bytes of an origin besides the name of its topic: two counts."""
_PARTITION_BYTES = 20

_Move = tuple[int, str]
"""(clock, query)."""


class SinkOrigins:
    """The origins of one sink."""

    __slots__ = ("_moves", "clock", "offsets", "seen_at")

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        """By source partition the highest offset of any query, inclusive."""
        self.clock = 0
        """The number of commits that have moved the origins."""
        self.seen_at = 0
        """The number of the newest record that has moved them."""
        self._moves: dict[TopicPartition, tuple[_Move, ...]] = {}
        """By source partition the last move and the last one of another query; the query that asks
        has made at most one of them."""

    def note(self, query: str, origins: Mapping[TopicPartition, Origin], number: int) -> None:
        """Record the origins of a query, from the record of that number."""
        self.seen_at = max(self.seen_at, number)
        for source, origin in origins.items():
            self.offsets[source] = max(origin.offset, self.offsets.get(source, origin.offset))
            self.clock = max(self.clock, origin.clock)
            last = {name: clock for clock, name in self._moves.get(source, ())}
            last[query] = max(origin.clock, last.get(query, 0))
            moves = sorted(((clock, name) for name, clock in last.items()), reverse=True)
            self._moves[source] = tuple(moves[:2])

    def moved_since(self, clock: int, query: str, sources: Iterable[TopicPartition]) -> bool:
        """Return True when another query has moved one of the sources after that clock."""
        return any(
            moved > clock and name != query
            for source in sources
            for moved, name in self._moves.get(source, ())
        )


def advanced(
    present: Mapping[TopicPartition, Origin], offsets: Mapping[TopicPartition, int], clock: int
) -> Mapping[TopicPartition, Origin]:
    """Return a query's origins after a commit up to these offsets, at that clock."""
    origins = dict(present)
    for source, offset in offsets.items():
        known = origins.get(source)
        if known is None or offset > known.offset:
            origins[source] = Origin(offset, clock)
    return origins


def folded(into: LedgerRecord, ended: Iterable[LedgerRecord]) -> Mapping[TopicPartition, Origin]:
    """Return the origins of a record that takes over those of queries that have ended."""
    origins = dict(into.origins)
    for record in ended:
        for source, origin in record.origins.items():
            known = origins.get(source, origin)
            origins[source] = Origin(
                max(known.offset, origin.offset), max(known.clock, origin.clock)
            )
    return origins


def origin_bytes(origins: Iterable[TopicPartition]) -> int:
    """Return the most bytes that the sources take in a record."""
    topics = Counter(source.topic for source in origins)
    return sum(
        _TOPIC_BYTES + len(topic.encode()) + _PARTITION_BYTES * count
        for topic, count in topics.items()
    )
