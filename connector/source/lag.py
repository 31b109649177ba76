"""How far a streaming query is behind the log. Its one rule: figures are taken from the query's own
progress, so that whoever can see the progress can see the lag, on a driver or over Spark Connect.

Spark's Python API gives a source no metrics of its own, as Spark's Kafka connector has them
(`min/max/avgOffsetsBehindLatest` in `sources[].metrics`). A source may report its latest offset,
which Spark shows as `sources[].latestOffset`; there the same three figures stand, under `@lag`.
Source: FACTS.md, the reader contract.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

LAG_KEY = "@lag"
"""In the latest offset that a source reports; no topic can have this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsBehindLatest:
    """Offsets between the end of a micro-batch and the end of the log, over the partitions."""

    minimum: int
    maximum: int
    average: float


def offsets_behind(
    positions: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> OffsetsBehindLatest:
    """`latest` has one partition or more; one without a position is not behind yet."""
    behind = [max(0, end - positions.get(each, end)) for each, end in latest.items()]
    return OffsetsBehindLatest(
        minimum=min(behind), maximum=max(behind), average=sum(behind) / len(behind)
    )


def lag_to_json(lag: OffsetsBehindLatest) -> dict[str, Any]:
    """With the names of Spark's Kafka connector."""
    return {
        "minOffsetsBehindLatest": lag.minimum,
        "maxOffsetsBehindLatest": lag.maximum,
        "avgOffsetsBehindLatest": lag.average,
    }


def lag_of(latest_offset: str | None) -> OffsetsBehindLatest | None:
    """From a source's `latestOffset`, as a progress has it; None for a source of another kind."""
    try:
        found = json.loads(latest_offset or "{}")[LAG_KEY]
        return OffsetsBehindLatest(
            minimum=found["minOffsetsBehindLatest"],
            maximum=found["maxOffsetsBehindLatest"],
            average=found["avgOffsetsBehindLatest"],
        )
    except (ValueError, KeyError, TypeError):
        return None


class LagListener(StreamingQueryListener):
    """Calls `on_lag` after each micro-batch, once for each source of this format.

        spark.streams.addListener(LagListener(lambda progress, lag: print(progress.name, lag)))

    An idle query reports nothing: what it said last still holds until something is written.
    """

    def __init__(
        self, on_lag: "Callable[[StreamingQueryProgress, OffsetsBehindLatest], None]"
    ) -> None:
        super().__init__()
        self._on_lag = on_lag

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        """Called by Spark."""
        for source in event.progress.sources:
            lag = lag_of(source.latestOffset)
            if lag is not None:
                self._on_lag(event.progress, lag)

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        """Called by Spark; nothing is known yet."""

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:
        """Called by Spark; the lag is what it was."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        """Called by Spark."""
