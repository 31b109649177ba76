"""The extent to which a log is compacted, and the job that replaces its closed segments. There is
one job at a time, and none goes on once the log was truncated.

`first_dirty_offset` is kept in the log dir's cleaner-offset-checkpoint; when that is lost,
everything counts as dirty, which costs work. A value above 0 also says that offsets may be missing,
even if the topic's policy has changed. A log with a damaged batch is uncleanable until it is opened
again or truncated. Source: R-LOG8, R-LOG10.
"""

import logging
from collections.abc import Callable, Sequence

from storage_engine.core.errors import CorruptRecordError, LogStorageError
from storage_engine.core.system_errors import Reach, reach_of_file_error
from storage_engine.log.cleaning.compaction_job import CompactionJob, SegmentCopier
from storage_engine.log.files.storage_errors import storage_error, storage_errors
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.segment_list import SegmentList
from storage_engine.log.state.log_checkpoints import LogCheckpoints

logger = logging.getLogger(__name__)


class CleaningState:
    """Invariant: everything below `first_dirty_offset` has at most one record per key, not counting
    records without a key.
    """

    __slots__ = ("_checkpoints", "_job", "_segments", "first_dirty_offset", "is_uncleanable")

    def __init__(
        self, segments: SegmentList, *, first_dirty_offset: int, checkpoints: LogCheckpoints
    ) -> None:
        self._segments = segments
        self._checkpoints = checkpoints
        self._job: CompactionJob | None = None
        # A log that ends below its first dirty offset is not the log that was cleaned.
        end_offset = segments.active.next_offset
        is_known = first_dirty_offset <= end_offset
        self.first_dirty_offset = first_dirty_offset if is_known else min(1, end_offset)
        self.is_uncleanable = False
        """True after a pass has found a damaged batch: the log is not compacted any more."""

    @property
    def may_have_gaps(self) -> bool:
        """Return True when offsets may be missing, because the log is or was compacted, or was
        copied from one that was."""
        return self._segments.folder.config.compacts or self.first_dirty_offset > 0

    def expect_gaps(self) -> bool:
        """Record that offsets may be missing. Return True when that is new and must be written to
        the checkpoint: without it recovery takes a gap for lost records, and drops what follows."""
        if self.first_dirty_offset:
            return False
        # A single record has no other of its key.
        self.first_dirty_offset = 1
        return True

    def expect_gaps_durably(self, action: str) -> None:
        """Do the same as `expect_gaps`, on the medium when this returns: recovery opens the log
        before the policy of its topic is known. LogStorageError names the `action`."""
        if self.expect_gaps():
            try:
                with storage_errors(action, self._segments.folder.path, unchanged=True):
                    self._checkpoints.write()
            except LogStorageError:
                # The next try must write it again.
                self.first_dirty_offset = 0
                raise

    @property
    def is_busy(self) -> bool:
        """Return True while a job is under way."""
        return self._job is not None

    def begin(
        self, copier: SegmentCopier, sources: Sequence[LogSegment], on_done: Callable[[], None]
    ) -> CompactionJob:
        """Return a job that replaces `sources`. The caller runs `CompactionJob.work` on any thread,
        and `advance` after each time; `on_done` is called when all are replaced."""
        assert self._job is None
        self._job = CompactionJob(copier, self._segments, sources, on_done)
        return self._job

    def advance(self, job: CompactionJob) -> bool:
        """Run the quick half of a step, after its `work` has succeeded; return True when there is
        more to do."""
        try:
            goes_on = job.advance()
        except OSError as error:
            self._job = None
            failure = self.failed(job, error)
            if failure is not None:
                raise failure from error
            return False
        if not goes_on:
            self._job = None
        return goes_on

    def goes_on_later(self, job: CompactionJob, error: Exception) -> bool:
        """Return True when a step's failed `work` has to be done again after a while, since it only
        lacked descriptors and the log's files are half replaced."""
        return (
            job.is_half_done
            and not job.is_stopped
            and isinstance(error, OSError)
            and reach_of_file_error(error) is Reach.SHORTAGE
        )

    def failed(self, job: CompactionJob, error: Exception) -> LogStorageError | None:
        """End the job after a failed `work`; return the error with which the log fails, if any."""
        self._job = None
        folder = self._segments.folder.path
        if job.is_stopped:
            return None
        job.cancel()
        if job.is_half_done:
            if isinstance(error, OSError) and reach_of_file_error(error) is Reach.LOG_DIR:
                return storage_error("replace segments of", folder, error)
            return LogStorageError(f"can't replace segments of {folder}: {error}")
        if isinstance(error, CorruptRecordError):
            self.is_uncleanable = True
            logger.error("not compacted any more, it is damaged folder=%s error=%s", folder, error)
        else:
            logger.error("not compacted this time folder=%s error=%s", folder, error)
        return None

    def stop(self) -> None:
        """Ends the job before the segments change: none is under way when this returns.
        LogStorageError when the disk fails."""
        if self._job is not None:
            with storage_errors("replace segments of", self._segments.folder.path):
                self._job.stop()

    def abandon(self) -> None:
        """Drops a job under way, since the log closes without regard to its files."""
        if self._job is not None:
            self._job.cancel()

    def log_is_cut_to(self, end_offset: int) -> None:
        """Lowers the first dirty offset: records that follow above `end_offset` are not those that
        were cleaned. OSError when that can't be brought to the medium."""
        self.is_uncleanable = False
        known = self.first_dirty_offset
        if known > end_offset:
            self.first_dirty_offset = end_offset
            try:
                self._checkpoints.write()
            except OSError:
                # The log is not truncated yet, and the next try must come here again.
                self.first_dirty_offset = known
                raise
