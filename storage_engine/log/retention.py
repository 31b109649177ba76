"""Deletes the oldest segments of a log: those below its start, and those that a deletion policy
gives up. A log that is only compacted loses nothing here.

Source: R-LOG9, R-LOG10.
"""

import logging
from contextlib import suppress

from storage_engine.core.errors import LogShortageError
from storage_engine.core.retained.retention import (
    DeletionLimits,
    DeletionPolicy,
    KafkaDeletionPolicy,
    SegmentFacts,
    count_allowed,
)
from storage_engine.log.files.storage_errors import storage_errors
from storage_engine.log.log_state import LogState

KAFKA_POLICY: DeletionPolicy = KafkaDeletionPolicy()

logger = logging.getLogger(__name__)


class DeletionPolicyError(Exception):
    """A policy raised an error, or did not answer with a count; see its cause."""


class Retention:
    """Stops a job that replaces segments before it deletes any."""

    __slots__ = ("_log",)

    def __init__(self, log: LogState) -> None:
        self._log = log

    def advance_log_start(self, offset: int) -> bool:
        """Records below `offset` count as deleted, and segments that have no others go. Whether the
        log's start has changed. OffsetOutOfRangeError when `offset` is above the log's end.
        """
        log = self._log
        if offset > log.log_end_offset:
            raise log.out_of_range(offset)
        is_higher = offset > log.log_start_offset
        if is_higher:
            log.log_start_offset = offset
        if is_higher or self._has_segments_below_start:
            # The caller must learn of the new start and write it down; the files can go later.
            with suppress(LogShortageError):
                self._drop_below_start()
        return is_higher

    def delete_old_segments(
        self, now_ms: int, high_watermark: int, policy: DeletionPolicy = KAFKA_POLICY
    ) -> int:
        """Applies the policy, of `retention.ms` and `retention.bytes` mostly; the number of
        segments deleted. DeletionPolicyError when the policy fails; nothing is deleted then."""
        log = self._log
        segments = log.segments
        segments.check_whole()
        if self._has_segments_below_start:
            self._drop_below_start()
        with storage_errors("apply retention to", log.directory):
            count = self._count_deletable(now_ms, high_watermark, policy)
            if count == len(segments):
                log.roll(log.log_end_offset)
        if count:
            log.log_start_offset = max(log.log_start_offset, segments.all[count].base_offset)
            logger.info(
                "retention partition=%s segments=%d log_start_offset=%d",
                log.topic_partition,
                count,
                log.log_start_offset,
            )
            self._drop_below_start()
        return count

    def _count_deletable(self, now_ms: int, high_watermark: int, policy: DeletionPolicy) -> int:
        """How many of the oldest segments are to go; all of them only if the policy gives up even
        the newest records."""
        config, segments = self._log.config, self._log.segments
        if not config.deletes_old_segments:
            return 0
        facts = [
            SegmentFacts(
                segment.next_offset,
                segment.size,
                segment.largest_timestamp(),
                segment.written_ms(),
                segment is segments.active,
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

    @property
    def _has_segments_below_start(self) -> bool:
        """A segment that held the log's start when it was the newest may not be the newest any
        more."""
        return self._log.segments.number_of(self._log.log_start_offset) > 0

    def _drop_below_start(self) -> None:
        log = self._log
        if self._has_segments_below_start:
            log.cleaning.stop()
        # Counted only now: the end of a pass may have made one segment of several.
        count = log.segments.number_of(log.log_start_offset)
        with storage_errors("delete segments of", log.directory):
            log.segments.drop_oldest(count)
        log.epoch_checkpoint.truncate_from_start(log.log_start_offset)
