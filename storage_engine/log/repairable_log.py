"""The side of a log whose closed segments are replaced: compaction, and the repair of damage. Its
one rule: one job at a time, and none goes on once the log was cut.

Source: R-LOG8, R-LOG10.
"""

from storage_engine.core.retained.compaction import CompactionPlan
from storage_engine.log.cleaning.compaction_job import CompactionJob
from storage_engine.log.cleaning.segment_patch import Replacements
from storage_engine.log.cleaning.segment_scrub import BadRange, SegmentScrub
from storage_engine.log.cuttable_log import CuttableLog
from storage_engine.log.files.storage_errors import storage_errors


class RepairableLog(CuttableLog):
    """Its jobs are led from step to step by `compaction`."""

    __slots__ = ()

    # -- compact -----------------------------------------------------------------------------------

    def plan_compaction(self, now_ms: int, high_watermark: int) -> CompactionPlan | None:
        """A pass that is due. A record that is not committed (its transaction too) and on the
        medium displaces none."""
        self._segments.check_whole()
        if self.compaction.active_is_overdue(self._config, now_ms):
            with storage_errors("roll", self.directory):
                self._tail.roll(self.log_end_offset)
        return self.compaction.plan(
            safe_offset=min(self.last_stable_offset(high_watermark), self.recovery_point),
            config=self._config,
            now_ms=now_ms,
        )

    def begin_compaction(
        self, plan: CompactionPlan, *, keys_max_bytes: int, now_ms: int
    ) -> CompactionJob:
        """The pass of a plan that was made just now; `compaction` leads it from step to step."""
        self.save_recovery_point(plan.first_uncleanable_offset)
        return self.compaction.begin(
            plan,
            config=self._config,
            producers=self.producer_state,
            find_aborted=self.aborted_transactions,
            keys_max_bytes=keys_max_bytes,
            now_ms=now_ms,
        )

    # -- scrub -------------------------------------------------------------------------------------

    def next_scrub(self, offset: int) -> SegmentScrub | None:
        """A check of the segment that has `offset`; None when it is not closed and on the medium
        yet.
        """
        segments = self._segments
        if segments.is_cut_short:
            return None
        segment = segments.all[segments.number_of(offset)]
        if segment is segments.active or segment.next_offset > self.recovery_point:
            return None
        return SegmentScrub(
            self.disk,
            segment,
            epochs=self.leader_epochs.entries,
            gaps_allowed=self.compaction.may_have_gaps,
        )

    def close_segment_with(self, offset: int) -> None:
        """Begins a new segment if `offset` is in the active one, which then can be checked."""
        self._segments.check_whole()
        if self._segments.active.base_offset <= offset < self.log_end_offset:
            with storage_errors("roll", self.directory):
                self._tail.roll(self.log_end_offset)

    def note_damage(self, scrub: SegmentScrub) -> None:
        """What a finished check has found, in place of what was known of the segment."""
        others = [bad for bad in self.damaged if not _is_within(bad, scrub)]
        # Where bytes are missing there is nothing that could be taken for good.
        found = [bad for bad in scrub.bad_ranges if bad.end_position > bad.position]
        self.damaged = tuple(sorted(others + found))

    def begin_repair(self, scrub: SegmentScrub, replacements: Replacements) -> CompactionJob:
        """Replaces what is bad in a segment, which is not outdated; `compaction` leads the job."""

        def repaired() -> None:
            self.damaged = tuple(bad for bad in self.damaged if not _is_within(bad, scrub))

        segment = scrub.segment
        self.save_recovery_point(segment.next_offset)
        found = self.aborted_transactions(segment.base_offset, segment.next_offset)
        aborted = tuple(each for each in found if each.last_offset < segment.next_offset)
        return self.compaction.begin_repair(scrub, replacements, repaired, aborted)


def _is_within(bad: BadRange, scrub: SegmentScrub) -> bool:
    return scrub.base_offset <= bad.start_offset < scrub.end_offset
