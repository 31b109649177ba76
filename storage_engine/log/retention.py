"""Applies the policy of deletion to segments. Its one rule: a log that is compacted loses nothing
here.

Source: R-LOG9, R-LOG10.
"""

from collections.abc import Sequence

from storage_engine.core.retained.retention import (
    DeletionLimits,
    DeletionPolicy,
    SegmentFacts,
    count_allowed,
)
from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.log_segment import LogSegment


class DeletionPolicyError(Exception):
    """A policy raised an error, or did not answer with a count; see its cause."""


def count_deletable(
    segments: Sequence[LogSegment],
    config: LogConfig,
    now_ms: int,
    high_watermark: int,
    policy: DeletionPolicy,
) -> int:
    """How many of the oldest segments are to go; all of them only if the policy wants even the
    newest records gone. DeletionPolicyError when it fails.
    """
    if not config.deletes_old_segments:
        return 0
    facts = [
        SegmentFacts(
            segment.next_offset,
            segment.size,
            segment.largest_timestamp(),
            segment.written_ms(),
            segment is segments[-1],
        )
        for segment in segments
    ]
    if facts[-1].size == 0:
        facts.pop()
    limits = DeletionLimits(config.retention_ms, config.retention_bytes, now_ms)
    try:
        wanted = policy.count_deletable(facts, limits)
        # A wrong type fails here, and not where files are renamed.
        return count_allowed(int(wanted), facts, high_watermark=high_watermark)
    except Exception as error:
        raise DeletionPolicyError(
            f"the policy of deletion {type(policy).__name__} failed: {error!r}"
        ) from error
