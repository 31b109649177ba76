"""Compacts the closed segments of a log: only the newest record of each key is kept.

Source: R-LOG10.
"""

import importlib
import logging
from typing import TYPE_CHECKING

from storage_engine.core.retained.compaction import (
    CompactionPlan,
    CompactionRules,
    SegmentSpan,
    is_overdue,
    plan_compaction,
)
from storage_engine.log.cleaning.compaction_job import CompactionJob
from storage_engine.log.files.storage_errors import storage_errors
from storage_engine.log.log_config import LogConfig
from storage_engine.log.log_state import LogState
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.state.aborted_transactions import find_aborted

if TYPE_CHECKING:
    from storage_engine.log.cleaning.compactor import PassOrder

logger = logging.getLogger(__name__)


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
