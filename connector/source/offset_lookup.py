"""Requests offsets from a cluster, for planning."""

from collections.abc import Mapping
from typing import Protocol

from storage_engine.core.ids import TopicPartition

NO_OFFSET = -1
"""ListOffsets' answer where no record is at or after the time."""


class OffsetLookup(Protocol):
    """Asks the cluster for offsets. EARLIEST and LATEST stand for the ends of the log."""

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset of each partition at or after the time; NO_OFFSET when there is none."""
        ...
