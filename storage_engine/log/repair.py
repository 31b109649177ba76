"""Finds damage in the closed segments of a log, and repairs it.

Source: R-LOG8.
"""

from storage_engine.log.cleaning.compaction_job import CompactionJob
from storage_engine.log.cleaning.segment_patch import Replacements, SegmentPatch
from storage_engine.log.cleaning.segment_scrub import SegmentScrub
from storage_engine.log.log_state import LogState
from storage_engine.log.segments.bad_range import BadRange
from storage_engine.log.state.aborted_transactions import find_aborted


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
