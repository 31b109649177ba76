"""The rule for beginning a new segment. It is applied before an append, to the active segment as it
would be afterwards.

Source: R-LOG2.
"""

from zlib import crc32

from storage_engine.log.log_config import MAX_SEGMENT_BYTES, LogConfig
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.placing import MAX_RELATIVE_OFFSET


class RollRule:
    """The rolling settings of one log."""

    __slots__ = ("_age_max_ms", "segment_bytes")

    def __init__(self, config: LogConfig, name: str) -> None:
        """`name` spreads the jitter: logs that were created at the same time shall not all roll at
        the same time.
        """
        self.segment_bytes = min(config.segment_bytes, MAX_SEGMENT_BYTES)
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        spread_ms = crc32(name.encode()) * jitter_ms >> 32
        self._age_max_ms = config.segment_ms - spread_ms

    def demands_roll(
        self, segment: LogSegment, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Return True when `size` more bytes up to `last_offset` must go to a new segment."""
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if segment.size == 0:
            return False
        return (
            segment.size + size > self.segment_bytes
            or segment.indexes_full
            or self.is_too_old(segment, max_timestamp, now_ms)
        )

    def is_too_old(self, segment: LogSegment, max_timestamp: int, now_ms: int) -> bool:
        """Return True when the segment is too old. Its age counts from its first batch's timestamp,
        or in the broker's time when that can't be right.
        """
        first = segment.first_timestamp
        if first is None:
            first = segment.time_of_first_batch()
        # A timestamp ahead of the broker's clock (often in microseconds) is of no use either.
        if 0 <= first <= now_ms and max_timestamp >= 0:
            return max_timestamp - first > self._age_max_ms
        return now_ms - segment.created_ms > self._age_max_ms
