"""The upkeep of a log's older segments: retention deletes the oldest, compaction keeps only the
newest record of each key, and damage is found and repaired. Source: R-LOG8 to R-LOG10.
"""

import importlib
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from storage_engine.core.errors import LogFullError, LogShortageError
from storage_engine.core.retained.retention import (
    CompactionPlan,
    CompactionRules,
    DeletionLimits,
    DeletionPolicy,
    KafkaDeletionPolicy,
    SegmentFacts,
    SegmentSpan,
    count_allowed,
    is_overdue,
    plan_compaction,
)
from storage_engine.log.cleaning.compaction_job import CompactionJob
from storage_engine.log.cleaning.segment_scrub import (
    BadRange,
    Replacements,
    SegmentPatch,
    SegmentScrub,
)
from storage_engine.log.files.disk import storage_errors
from storage_engine.log.log_config import LogConfig
from storage_engine.log.log_state import LogState
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.state.producer_replay import find_aborted

if TYPE_CHECKING:
    from storage_engine.log.cleaning.compactor import PassOrder

logger = logging.getLogger(__name__)


KAFKA_POLICY: DeletionPolicy = KafkaDeletionPolicy()


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


class Compaction:
    """Plans and begins passes over the log; `LogState.cleaning` then takes them from step to
    step."""

    __slots__ = ("_log",)

    def __init__(self, log: LogState) -> None:
        self._log = log

    def plan(self, now_ms: int, high_watermark: int) -> CompactionPlan | None:
        """Return the pass that is due; None when there is none, or a job is under way.

        Only records that are committed, with their transaction, and on the medium displace others.
        """
        log, cleaning = self._log, self._log.cleaning
        log.segments.check_whole()
        config = log.config
        if not config.compacts or cleaning.is_uncleanable:
            return None
        rules = _rules(config)
        with storage_errors("read", log.directory):
            first_ms = log.segments.active.time_of_first_batch()
        if is_overdue(first_ms, rules, now_ms):
            log.roll_at_end()
        if cleaning.is_busy:
            return None
        first_dirty = max(cleaning.first_dirty_offset, log.segments.first.base_offset)
        with storage_errors("look for what is to be compacted in", log.directory):
            spans = [
                SegmentSpan(
                    segment.base_offset,
                    segment.next_offset,
                    segment.size,
                    segment.largest_timestamp() if rules.min_lag_ms else -1,
                )
                for segment in log.segments.all[:-1]
            ]
            return plan_compaction(
                spans,
                first_dirty_offset=first_dirty,
                safe_offset=min(log.last_stable_offset(high_watermark), log.recovery_point),
                first_dirty_timestamp_ms=self._first_dirty_timestamp(first_dirty),
                rules=rules,
                now_ms=now_ms,
            )

    def begin(self, plan: CompactionPlan, *, keys_max_bytes: int, now_ms: int) -> CompactionJob:
        """Begins the pass of a plan that was made just now. No job may be under way."""
        # The imports are here and not above: see `load_codec`.
        from storage_engine.log.cleaning.compactor import Compactor

        log, cleaning = self._log, self._log.cleaning
        end_offset = plan.first_uncleanable_offset
        log.save_recovery_point(end_offset)
        sources = [each for each in log.segments.all[:-1] if each.next_offset <= end_offset]
        compactor = Compactor(self._order(plan, sources, keys_max_bytes, now_ms))
        cleaning.expect_gaps_durably("note the compaction of")

        def compacted() -> None:
            cleaning.first_dirty_offset = compactor.end_offset
            logger.info(
                "compacted folder=%s end_offset=%d dropped_records=%d",
                log.directory,
                compactor.end_offset,
                compactor.dropped_records,
            )

        return cleaning.begin(compactor, sources, compacted)

    def _order(
        self,
        plan: CompactionPlan,
        sources: list[LogSegment],
        keys_max_bytes: int,
        now_ms: int,
    ) -> "PassOrder":
        from storage_engine.log.cleaning.compactor import PassOrder, closed_segments

        log = self._log
        segments, end_offset = log.segments, plan.first_uncleanable_offset
        last_offsets, only_markers = log.producer_state.kept_in_log()
        kept_batches = {offset for offset in last_offsets if offset < end_offset}
        if not segments.active.size:
            # A consumer that waits for the last offset of the log must get a batch with it.
            kept_batches.add(segments.active.base_offset - 1)
        aborted = find_aborted(log.snapshots, segments, segments.first.base_offset, end_offset)
        return PassOrder(
            disk=log.disk,
            segments=closed_segments(sources),
            first_dirty_offset=plan.first_dirty_offset,
            rules=_rules(log.config),
            now_ms=now_ms,
            keys_max_bytes=keys_max_bytes,
            kept_batches=frozenset(kept_batches),
            # No replica can have records of an epoch before 0.
            epoch_starts=frozenset(
                start_offset for epoch, start_offset in log.leader_epochs.entries if epoch > 0
            ),
            kept_markers=frozenset(only_markers),
            aborted=tuple(aborted),
            schema=log.config.schema,
        )

    def _first_dirty_timestamp(self, first_dirty: int) -> int:
        for segment in self._log.segments.all[:-1]:
            if segment.next_offset > first_dirty and segment.size:
                return segment.time_of_first_batch()
        return -1


def load_codec() -> None:
    """Loads numpy and Arrow, for compaction and for the keys of compressed batches: 0.7 s of
    processor time, which a broker without compacted topics saves, and for which its event loop must
    not stop. May be called on any thread, before they are needed.
    """
    importlib.import_module("storage_engine.log.cleaning.compactor")


def _rules(config: LogConfig) -> CompactionRules:
    return CompactionRules(
        min_dirty_ratio=config.min_cleanable_dirty_ratio,
        min_lag_ms=config.min_compaction_lag_ms,
        max_lag_ms=config.max_compaction_lag_ms,
        delete_retention_ms=config.delete_retention_ms,
    )


class Repair:
    """Scrubs only read; a repair is a job that `LogState.cleaning` takes from step to step."""

    __slots__ = ("_log",)

    def __init__(self, log: LogState) -> None:
        self._log = log

    def next_scrub(self, offset: int) -> SegmentScrub | None:
        """Return a check of the segment that has `offset`; None when it is not closed and on the
        medium yet.
        """
        log = self._log
        segments = log.segments
        if segments.is_cut_short:
            return None
        segment = segments.all[segments.number_of(offset)]
        if segment is segments.active or segment.next_offset > log.recovery_point:
            return None
        return SegmentScrub(
            log.disk,
            segment,
            epochs=log.leader_epochs.entries,
            gaps_allowed=log.cleaning.may_have_gaps,
        )

    def close_segment_with(self, offset: int) -> None:
        """Begins a new segment if `offset` is in the active one, which then can be checked."""
        log = self._log
        log.segments.check_whole()
        if log.segments.active.base_offset <= offset < log.log_end_offset:
            log.roll_at_end()

    def note_damage(self, scrub: SegmentScrub) -> None:
        """Records the damage that a finished check has found, in place of what was known of the
        segment."""
        log = self._log
        # Where bytes are missing no reader could take any for good.
        found = [bad for bad in scrub.bad_ranges if bad.end_position > bad.position]
        log.damaged = tuple(sorted([*self._damage_elsewhere(scrub), *found]))

    def begin(self, scrub: SegmentScrub, replacements: Replacements) -> CompactionJob:
        """Replaces the bad ranges of a segment. Its check is not outdated, and no job is under
        way."""
        log = self._log
        segment = scrub.segment
        log.save_recovery_point(segment.next_offset)
        found = find_aborted(log.snapshots, log.segments, segment.base_offset, segment.next_offset)
        aborted = tuple(each for each in found if each.last_offset < segment.next_offset)

        def repaired() -> None:
            log.cleaning.is_uncleanable = False
            log.damaged = tuple(self._damage_elsewhere(scrub))

        patch = SegmentPatch(log.disk, scrub, replacements, aborted)
        return log.cleaning.begin(patch, [segment], repaired)

    def _damage_elsewhere(self, scrub: SegmentScrub) -> list[BadRange]:
        """Return the known damage of other segments."""
        start, end = scrub.base_offset, scrub.end_offset
        return [bad for bad in self._log.damaged if not start <= bad.start_offset < end]
