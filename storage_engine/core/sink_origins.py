"""Up to where the partitions of a source have been copied to a sink, by all its queries together.
Its one rule: origins only advance, and each move has a number, the sink's clock.

The clock tells a task attempt what it could not know when it joined: origins that have moved since.
It lies in the ledgers, so that it outlives a coordinator. Source: R-SPARK2, R-SPARK3.
"""

from collections.abc import Iterable, Mapping

from storage_engine.core.ids import TopicPartition
from storage_engine.core.transaction_state import LedgerKey, LedgerRecord, Origin

Ledgers = Iterable[tuple[LedgerKey, LedgerRecord]]
"""Of one sink."""


def sink_origins(ledgers: Ledgers) -> dict[TopicPartition, int]:
    """By source partition the highest offset of any query, inclusive."""
    origins: dict[TopicPartition, int] = {}
    for _, record in ledgers:
        for source, origin in record.origins.items():
            origins[source] = max(origin.offset, origins.get(source, origin.offset))
    return origins


def sink_clock(ledgers: Ledgers) -> int:
    """How many commits have moved the origins of the sink."""
    return max(
        (origin.clock for _, record in ledgers for origin in record.origins.values()), default=0
    )


def advanced(
    present: Mapping[TopicPartition, Origin], offsets: Mapping[TopicPartition, int], clock: int
) -> Mapping[TopicPartition, Origin]:
    """A query's origins after a commit up to these offsets, at that clock."""
    origins = dict(present)
    for source, offset in offsets.items():
        known = origins.get(source)
        if known is None or offset > known.offset:
            origins[source] = Origin(offset, clock)
    return origins


def moved_since(clock: int, others: Ledgers, sources: Iterable[TopicPartition]) -> bool:
    """Whether a commit of these ledgers has moved one of the sources after that clock."""
    wanted = frozenset(sources)
    return any(
        origin.clock > clock
        for _, record in others
        for source, origin in record.origins.items()
        if source in wanted
    )
