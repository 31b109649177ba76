"""Checks the segments of a log when it is opened, and recovers those that may be damaged.

After an unclean stop the segments from the one with the recovery point on are checked batch by
batch. What follows a cut is dropped. Source: R-LOG8.
"""

import logging
from typing import NamedTuple

from storage_engine.core.replication.leader_epochs import LeaderEpochCache
from storage_engine.log.recovery.recovery import Recovered, recover_segment
from storage_engine.log.recovery.recovery_progress import RecoveryProgress
from storage_engine.log.segments.log_folder import LogFolder
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.offset_index import MAX_RELATIVE_OFFSET
from storage_engine.log.segments.swap_files import sync_names
from storage_engine.log.state.aborted_transactions import is_good

logger = logging.getLogger(__name__)


class Gaps(NamedTuple):
    """The places where offsets may be missing without damage."""

    may_be: bool
    """True when they may be missing anywhere within segments: the log is or was compacted, or
    copied from one that was."""
    none_above: int | None
    """See `LogStart.no_gap_above`."""

    def may_be_between(self, end_offset: int, base_offset: int) -> bool:
        """Return True when offsets may be missing between a segment that ends at one offset and the
        next one, which begins at the other; if not, the former has lost its end."""
        if not self.may_be or self.none_above is None or base_offset <= self.none_above:
            return self.may_be
        # No segment is that long: this is a gap that no index spans, and everything before it was
        # flushed.
        return base_offset - end_offset > MAX_RELATIVE_OFFSET + 1


class SegmentChecks:
    """The checks of one log while it is opened, and their findings."""

    def __init__(
        self,
        folder: LogFolder,
        epochs: LeaderEpochCache,
        gaps: Gaps,
        *,
        recovery_point: int,
        clean: bool,
        rewrites: bool,
        progress: RecoveryProgress | None,
    ) -> None:
        """`rewrites`: what lies above the recovery point is written anew, see `recovery`."""
        self._folder = folder
        self._epochs = epochs
        self._gaps = gaps
        self._recovery_point = recovery_point
        self._clean = clean
        self._rewrites_from = recovery_point if rewrites else None
        self._progress = progress
        self._last_epoch = -1
        """The leader epoch of the last batch that was checked."""
        self.recovered_bytes = 0
        self.damaged: list[LogSegment] = []
        """Segments whose transaction index may be wrong."""

    def run(self, segments: list[LogSegment]) -> None:
        """Checks and repairs every segment, except the transaction indexes of `damaged`; removes
        from `segments` those that follow a cut."""
        folder = self._folder
        names = set(folder.disk.list_names(folder.path)) if len(segments) > 1 else set()
        for number, segment in enumerate(segments):
            is_last = number + 1 == len(segments)
            if is_last:
                if not (self._clean and self._has_good_end(segment)):
                    self._recover(segment)
                continue
            following = segments[number + 1].base_offset
            # A segment that ends at the recovery point may have been sealed after the last flush.
            if self._clean or following < self._recovery_point:
                self._check_indexes(segment, names)
                continue
            cut = self._recover(segment).cut
            is_short = segment.next_offset < following and not (
                self._gaps.may_be_between(segment.next_offset, following)
            )
            if cut is not None or is_short or segment.next_offset > following:
                drop_segments(folder, segments, number + 1, "it follows the damage")
                break
            segment.next_offset = following

    def _has_good_end(self, segment: LogSegment) -> bool:
        """Return True when the newest segment ends as a clean stop leaves it. Records a damaged
        transaction index."""
        trusted = segment.load_end()
        segment.transaction_index.must_be_sealed = segment.size > 0
        # This index is checked now, as it may grow; those of the others are checked when they are
        # used.
        if trusted and not is_good(segment):
            self.damaged.append(segment)
        return trusted

    def _check_indexes(self, segment: LogSegment, names: set[str]) -> None:
        """Rebuilds indexes that are missing, of a segment whose batches are trusted."""
        missing = {path.name for path in segment.paths()} - names
        segment.transaction_index.must_be_sealed = True
        if segment.transaction_index.file.path.name in missing:
            missing.discard(segment.transaction_index.file.path.name)
            if not is_good(segment):
                self.damaged.append(segment)
        if missing:
            segment.repair_indexes()

    def _recover(self, segment: LogSegment) -> Recovered:
        size = segment.size
        self.recovered_bytes += size
        self.damaged.append(segment)
        logger.info("checking segment=%s bytes=%d", segment.file.path, size)
        recovered = recover_segment(
            self._folder.disk,
            segment,
            self._epochs,
            gaps_allowed=self._gaps.may_be,
            least_epoch=self._last_epoch,
            rewrites_from=self._rewrites_from,
        )
        self._last_epoch = recovered.last_epoch
        if self._progress is not None:
            self._progress.checked(size)
        cut = recovered.cut
        if cut is not None:
            logger.warning(
                "cut segment=%s at_byte=%d end_offset=%d dropped_bytes=%d reason=%s",
                segment.file.path, cut.position, segment.next_offset, cut.dropped_bytes, cut.reason,
            )  # fmt: skip
        return recovered


def drop_segments(folder: LogFolder, segments: list[LogSegment], first: int, reason: str) -> None:
    """Removes the segments from number `first` on, the last one first, so that a crash leaves a
    shorter log. It is on the medium when this returns: none of them may reappear behind what is
    appended now.
    """
    while len(segments) > first:
        segment = segments.pop()
        logger.warning(
            "dropped segment=%s bytes=%d reason=%s", segment.file.path, segment.size, reason
        )
        segment.close()
        for path in segment.paths():
            folder.disk.remove(path)
    sync_names(folder.disk, folder.path)
