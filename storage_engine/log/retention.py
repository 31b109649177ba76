"""Deletes the oldest segments of a log: those below its start, and those that a deletion policy
gives up. A log that is only compacted loses nothing here.

Source: R-LOG9, R-LOG10.
"""

import logging
from contextlib import suppress

from storage_engine.core.errors import LogFullError, LogShortageError
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
    """A policy raised an error, or did not return a count; see the cause."""


class Retention:
    """Deletes segments; a job that replaces segments is stopped before."""

    __slots__ = ("_log",)

    def __init__(self, log: LogState) -> None:
        self._log = log

    def advance_log_start(self, offset: int) -> bool:
        """Counts records below `offset` as deleted, and deletes segments that have no others.
        Returns True when the log's start has changed. OffsetOutOfRangeError when `offset` is above
        the log's end.
        """
        log = self._log
        if offset > log.log_end_offset:
            raise log.out_of_range(offset)
        is_higher = offset > log.log_start_offset
        if is_higher:
            log.log_start_offset = offset
        if is_higher or self._has_segments_below_start:
            # The caller must have the new start to write it down; the files can be deleted later.
            with suppress(LogShortageError):
                self._drop_below_start()
        return is_higher

    def delete_old_segments(
        self, now_ms: int, high_watermark: int, policy: DeletionPolicy = KAFKA_POLICY
    ) -> int:
        """Applies the policy, mostly that of `retention.ms` and `retention.bytes`; returns the
        number of segments deleted. On DeletionPolicyError, when the policy fails, nothing is
        deleted."""
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
        """Return how many of the oldest segments to delete; all of them only if the policy deletes
        even the newest records."""
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
        """Return True when segments lie below the log's start: one that held it as the newest
        segment may not be the newest any more."""
        return self._log.segments.number_of(self._log.log_start_offset) > 0

    def _drop_below_start(self) -> None:
        log = self._log
        if self._has_segments_below_start:
            log.cleaning.stop()
        # The segments are counted only now: the end of a pass may have made one of several.
        count = log.segments.number_of(log.log_start_offset)
        if count:
            self._keep_producers(log.segments.all[count].base_offset)
        with storage_errors("delete segments of", log.directory):
            log.segments.drop_oldest(count)
        log.epoch_checkpoint.truncate_from_start(log.log_start_offset)

    def _keep_producers(self, base_offset: int) -> None:
        """Brings a snapshot of the producers at `base_offset` or above to the medium, before the
        batches below it are deleted: opening uses none above the saved recovery point."""
        log = self._log
        try:
            with storage_errors("keep the producers of", log.directory, unchanged=True):
                kept = log.snapshots.newest_in(base_offset, log.saved_recovery_point)
                if kept is None:
                    log.flush_state.flush()
                    kept = log.snapshots.newest_in(base_offset, log.recovery_point)
                if kept is None:
                    log.write_snapshot()
                    kept = log.log_end_offset
                log.snapshots.sync(kept)
                if log.saved_recovery_point < kept:
                    log.checkpoints.write()
        except LogFullError as failure:
            # Only the deletion makes room.
            logger.warning("producers may be forgotten if the machine crashes now: %s", failure)
