"""A range of offsets of one partition, which one task of Spark reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from storage_engine.core.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Records of one partition from `start_offset` to before `end_offset`."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    topic_id: UUID | None = None
    """The topic's id; None where brokers don't know ids."""

    def __len__(self) -> int:
        return max(0, self.end_offset - self.start_offset)

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start_offset}, {self.end_offset})"


def total_records(ranges: Iterable[OffsetRange]) -> int:
    """The number of offsets in `ranges`. Compaction and markers may leave fewer records."""
    return sum(len(offset_range) for offset_range in ranges)


NO_OFFSET = -1
"""ListOffsets' answer where no record is at or after the time."""


class OffsetLookup(Protocol):
    """Asks the cluster for offsets. EARLIEST and LATEST stand for the ends of the log."""

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset of each partition at or after the time; NO_OFFSET when there is none."""
        ...
