"""Applies the deletion rules to segments. Its one rule: a log that is compacted loses nothing here.

Source: R-LOG9, R-LOG10.
"""

from collections.abc import Sequence

from storage_engine.core.retention import SegmentFacts, count_excess, count_expired
from storage_engine.log.log_config import LogConfig
from storage_engine.log.log_segment import LogSegment


def count_deletable(
    segments: Sequence[LogSegment], config: LogConfig, now_ms: int, high_watermark: int
) -> int:
    """How many of the oldest segments are to go; all of them only if even the newest records are
    too old.
    """
    no_limit = config.retention_ms < 0 and config.retention_bytes < 0
    if no_limit or not config.deletes_old_segments:
        return 0
    facts = [
        SegmentFacts(segment.next_offset, segment.size, segment.largest_timestamp())
        for segment in segments
    ]
    if facts[-1].size == 0:
        facts.pop()
    expired = count_expired(
        facts, now_ms=now_ms, retention_ms=config.retention_ms, high_watermark=high_watermark
    )
    excess = count_excess(
        facts, retention_bytes=config.retention_bytes, high_watermark=high_watermark
    )
    return max(expired, min(excess, len(segments) - 1))
