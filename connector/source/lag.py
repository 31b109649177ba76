"""How far a streaming query is behind the log. The figures are in the progress of the query, so the
lag is visible wherever the progress is, on a driver or over Spark Connect.

Spark's Kafka connector has these figures (`min/max/avgOffsetsBehindLatest`) in `sources[].metrics`.
Spark's Python API gives a source no metrics. But a source may report its latest offset, which Spark
shows as `sources[].latestOffset`; the three figures stand there, under `@lag`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from connector.log_once import warn_once
from connector.spark_version import limits_micro_batches
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
"""A key of the latest offset that a source reports. No topic can have this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsBehindLatest:
    """Offsets between the end of a micro-batch and the end of the log, over the partitions."""

    minimum: int
    maximum: int
    average: float


def offsets_behind(
    positions: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> OffsetsBehindLatest:
    """`latest` has one partition or more. A partition without a position is not behind."""
    behind = [max(0, end - positions.get(each, end)) for each, end in latest.items()]
    return OffsetsBehindLatest(
        minimum=min(behind), maximum=max(behind), average=sum(behind) / len(behind)
    )


def lag_to_json(lag: OffsetsBehindLatest) -> dict[str, float]:
    """The figures under the names that Spark's Kafka connector gives them."""
    return {
        "minOffsetsBehindLatest": lag.minimum,
        "maxOffsetsBehindLatest": lag.maximum,
        "avgOffsetsBehindLatest": lag.average,
    }


def lag_of(latest_offset: str | None) -> OffsetsBehindLatest | None:
    """The lag in the `latestOffset` of a source in a progress. None for a source of another
    format."""
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

    An idle query reports nothing, and its last figures hold until something is written.
    """

    def __init__(
        self, on_lag: "Callable[[StreamingQueryProgress, OffsetsBehindLatest], None]"
    ) -> None:
        super().__init__()
        if not limits_micro_batches():
            warn_once(
                [
                    "a LagListener hears nothing on this Spark: lag in the progress needs 4.2 or "
                    "newer; the option kafka.group.id shows it to tools for consumer groups"
                ]
            )
        self._on_lag = on_lag

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        """Called by Spark."""
        for source in event.progress.sources:
            lag = lag_of(source.latestOffset)
            if lag is not None:
                self._on_lag(event.progress, lag)

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        """Called by Spark. There are no figures yet."""

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:
        """Called by Spark. The lag is unchanged."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        """Called by Spark."""
