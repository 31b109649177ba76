"""A job that replaces closed segments in steps: compaction, and the repair of damage. Each step has
two halves: `work` does the slow part, on any thread; then `advance` changes the log, on the log's
own thread.

    step       work                                advance
    LEARN      the copier prepares itself          groups the segments
    COPY       writes the files of a group         renames the log among them to `.swap`
    COMMITTED  syncs the folder                    renames the old segments away
    MOVED      syncs the folder                    puts the new segment into the list; next group
    DONE       syncs the folder                    calls `on_done`

Whoever else wants to change the segments of the log calls `stop` first: a job that has reached
COMMITTED is brought to its end at once, an earlier one is dropped. `swap_files` describes the files
after a crash. There is one job at a time, and none goes on once the log was truncated.

`first_dirty_offset` is kept in the log dir's cleaner-offset-checkpoint; when that is lost,
everything counts as dirty, which costs work. A value above 0 also says that offsets may be missing,
even if the topic's policy has changed. A log with a damaged batch is uncleanable until it is opened
again or truncated. Source: R-LOG8, R-LOG10.
"""

import enum
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from storage_engine.core.errors import CorruptRecordError, LogStorageError
from storage_engine.core.retained.producer_table import AbortedTransaction
from storage_engine.core.retained.retention import SegmentSpan, group_segments
from storage_engine.core.system_errors import Reach, reach_of_file_error
from storage_engine.log.files.disk import Disk, storage_error, storage_errors, sync_names
from storage_engine.log.files.segment_files import WRITE_MAX_BYTES, OpenFiles
from storage_engine.log.log_config import MAX_SEGMENT_BYTES
from storage_engine.log.segments.indexes import MAX_RELATIVE_OFFSET
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.segment_list import SegmentList
from storage_engine.log.segments.swap_files import SwapFiles
from storage_engine.log.state.checkpoints import LogCheckpoints
from storage_engine.protocol.records.record_batch import BytesLike, read_header

logger = logging.getLogger(__name__)


_OPEN_FILES_MAX = 8
"""The limit of the job's own pool of open files: the broker's pool is not thread-safe."""


class CancelledError(Exception):
    """The log has changed or closes, so that the work is no longer needed."""


class CleanedFacts(NamedTuple):
    """The properties of the new segment that its object in the log needs."""

    size: int
    max_timestamp: int | None
    max_timestamp_offset: int


class CleanedSegment:
    """The files of one replacement while they are written."""

    def __init__(
        self, disk: Disk, files: SwapFiles, *, index_interval_bytes: int, index_max_bytes: int
    ) -> None:
        self._disk = disk
        self._files = files
        self._pending: list[BytesLike] = []
        self._pending_bytes = 0
        segment = LogSegment(
            disk,
            OpenFiles(_OPEN_FILES_MAX),
            files.directory,
            files.base_offset,
            index_interval_bytes=index_interval_bytes,
            index_max_bytes=index_max_bytes,
            created_ms=0,
        )
        segment.file.path = files.cleaned_log
        segment.offset_index.file.path = files.cleaned_index
        segment.time_index.file.path = files.cleaned_time_index
        segment.transaction_index.file.path = files.cleaned_transaction_index
        self._segment = segment

    def create(self) -> None:
        """Makes empty files; removes what an earlier try left."""
        for path in self._files.cleaned():
            self._disk.remove(path)
        self._segment.file.create()

    def write(self, batch: BytesLike) -> None:
        self._pending.append(batch)
        self._pending_bytes += len(batch)
        if self._pending_bytes >= WRITE_MAX_BYTES:
            self._write_pending()

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Adds an aborted transaction whose marker is among the batches written."""
        self._segment.transaction_index.append(aborted)

    def finish(self) -> CleanedFacts:
        """Brings everything to the medium except the names."""
        self._write_pending()
        segment = self._segment
        segment.seal()
        segment.close()
        paths = self._files.cleaned()
        if not len(segment.transaction_index):
            # A lost file or seal is noticed later, and nothing else can be lost.
            paths.remove(self._files.cleaned_transaction_index)
        for path in paths:
            descriptor = self._disk.open_existing(path)
            try:
                self._disk.sync(descriptor)
            finally:
                self._disk.close(descriptor)
        return CleanedFacts(segment.size, segment.max_timestamp, segment.max_timestamp_offset)

    def remove(self) -> None:
        self._segment.close()
        for path in self._files.cleaned():
            self._disk.remove(path)

    def _write_pending(self) -> None:
        segment = self._segment
        if segment.size + self._pending_bytes > MAX_SEGMENT_BYTES:
            # Batches may compress worse than they did, but hardly ever by so much.
            raise OSError(f"{self._files.cleaned_log} would become too large for an index")
        if self._pending:
            segment.write(b"".join(self._pending))
        for batch in self._pending:
            header = read_header(batch)
            segment.note(header.size_in_bytes, header.last_offset, header.max_timestamp)
        self._pending, self._pending_bytes = [], 0


class SegmentCopier(Protocol):
    """Makes the content of the new segments. `prepare` and `copy` run on any thread."""

    end_offset: int
    """Segments that begin at or after it stay as they are; known once `prepare` is done."""
    is_cancelled: bool
    """Set by the job when it is stopped: `prepare` and `copy` then raise CancelledError soon."""

    def prepare(self) -> None:
        """Prepares the copies. Raises OSError, CorruptRecordError and CancelledError as
        `CompactionJob.work`."""
        ...

    def copy(
        self,
        group: slice,
        write: Callable[[BytesLike], None],
        note_aborted: Callable[[AbortedTransaction], None],
    ) -> bool:
        """Passes the remaining batches of those sources to `write`, and aborted transactions that
        end in them to `note_aborted`; returns True when the batches differ."""
        ...


class Step(enum.Enum):
    """The next step of `work`; see the table above."""

    LEARN = "learn"
    COPY = "copy"
    COMMITTED = "committed"
    MOVED = "moved"
    DONE = "done"


class CompactionJob:
    """Invariant: while `step` is COMMITTED or MOVED, the present group has its swap file."""

    def __init__(
        self,
        copier: SegmentCopier,
        segments: SegmentList,
        sources: Sequence[LogSegment],
        on_done: Callable[[], None],
    ) -> None:
        """Replaces `sources` by what `copier` makes of them; calls `on_done` at the end."""
        self.step = Step.LEARN
        self.is_done = False
        """True when everything was replaced, whether in steps or by `stop`."""
        self._disk = segments.folder.disk
        self._segments = segments
        self._sources = sources
        self._on_done = on_done
        self._copier = copier
        self._groups: list[slice] = []
        self._files: SwapFiles | None = None
        self._facts: CleanedFacts | None = None

    def work(self) -> None:
        """The slow half of a step. OSError when the disk fails, CorruptRecordError when a segment
        is damaged, CancelledError after `stop`.
        """
        match self.step:
            case Step.LEARN:
                self._copier.prepare()
            case Step.COPY:
                self._facts = self._copy()
            case Step.COMMITTED | Step.MOVED | Step.DONE:
                self._sync_names()

    def advance(self) -> bool:
        """Runs the quick half; returns True when there is more to do. OSError when the disk
        fails."""
        if self.is_stopped:
            self._remove_cleaned()
            return False
        match self.step:
            case Step.LEARN:
                self._group()
            case Step.COPY:
                if self._facts is None:
                    self._next_group()
                else:
                    self._commit()
            case Step.COMMITTED:
                self._move_away()
            case Step.MOVED:
                self._replace()
            case Step.DONE:
                self._finish()
                return False
        return True

    def stop(self) -> None:
        """Ends the job: nothing of it is done any more when this returns. On OSError, when the disk
        fails, the job is where it was, and can be stopped, or continued, later.
        """
        if self.is_stopped:
            return
        if self.step is Step.COMMITTED:
            self._sync_names()
            self._move_away()
        if self.step is Step.MOVED:
            self._sync_names()
            self._replace()
            if not self._groups:
                # The pass is complete.
                self._sync_names()
                self._finish()
        self.cancel()

    @property
    def is_stopped(self) -> bool:
        """Return True when nothing of this job is done any more."""
        return self._copier.is_cancelled

    def cancel(self) -> None:
        """Stops the job where it is; files that are half replaced stay so."""
        self._copier.is_cancelled = True

    @property
    def is_half_done(self) -> bool:
        """Return True when a failure now would leave the log's files different from the log's
        state."""
        return self.step in (Step.COMMITTED, Step.MOVED)

    def _finish(self) -> None:
        self.cancel()
        self.is_done = True
        self._on_done()

    def _group(self) -> None:
        """Form groups of segments. Those that begin at or after the end of the pass have nothing to
        clean."""
        end = self._copier.end_offset
        self._sources = [segment for segment in self._sources if segment.base_offset < end]
        config = self._segments.folder.config
        self._groups = group_segments(
            [
                SegmentSpan(segment.base_offset, segment.next_offset, segment.size, -1)
                for segment in self._sources
            ],
            max_bytes=config.segment_bytes,
            max_offsets=MAX_RELATIVE_OFFSET,
        )
        self._groups.reverse()
        self._next_group(first=True)

    def _next_group(self, *, first: bool = False) -> None:
        if not first:
            self._groups.pop()
        self._files = self._facts = None
        if not self._groups:
            self.step = Step.DONE
            return
        group = self._group_sources()
        self.step = Step.COPY
        self._files = SwapFiles(
            self._segments.folder.path, group[0].base_offset, group[-1].next_offset
        )

    def _group_sources(self) -> Sequence[LogSegment]:
        return self._sources[self._groups[-1]]

    def _copy(self) -> CleanedFacts | None:
        """Writes the replacement of a group; None when the group stays as it is."""
        assert self._files is not None
        config = self._segments.folder.config
        cleaned = CleanedSegment(
            self._disk,
            self._files,
            index_interval_bytes=config.index_interval_bytes,
            index_max_bytes=config.segment_index_bytes,
        )
        try:
            cleaned.create()
            changed = self._copier.copy(self._groups[-1], cleaned.write, cleaned.note_aborted)
            if changed or len(self._group_sources()) > 1:
                facts = cleaned.finish()
                self._sync_names()
                if self.is_stopped:
                    raise CancelledError
                return facts
        except BaseException:
            cleaned.remove()
            raise
        cleaned.remove()
        return None

    def _commit(self) -> None:
        assert self._files is not None
        self._disk.rename(self._files.cleaned_log, self._files.swap)
        self.step = Step.COMMITTED

    def _move_away(self) -> None:
        self._segments.move_away(self._group_sources())
        self.step = Step.MOVED

    def _replace(self) -> None:
        assert self._files is not None and self._facts is not None
        files, facts, replaced = self._files, self._facts, self._group_sources()
        folder = self._segments.folder
        segment = folder.segment(
            files.base_offset,
            created_ms=min(source.created_ms for source in replaced),
            size=facts.size,
        )
        segment.next_offset = files.end_offset
        segment.max_timestamp = facts.max_timestamp
        segment.max_timestamp_offset = facts.max_timestamp_offset
        segment.transaction_index.must_be_sealed = True
        disk = self._disk
        disk.rename(files.cleaned_index, segment.offset_index.file.path)
        disk.rename(files.cleaned_time_index, segment.time_index.file.path)
        disk.rename(files.cleaned_transaction_index, segment.transaction_index.file.path)
        disk.rename(files.swap, segment.file.path)
        self._segments.replace(replaced, segment)
        self._next_group()

    def _remove_cleaned(self) -> None:
        """Removes a copy that was made while the job was stopped."""
        if self.step is Step.COPY and self._files is not None:
            for path in self._files.cleaned():
                self._disk.remove(path)

    def _sync_names(self) -> None:
        sync_names(self._disk, self._segments.folder.path)


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
