"""A job that replaces closed segments in steps: compaction, and the repair of damage. `work` does
what takes long, on any thread; `advance` changes the log, on the log's own thread.

    step       work                                advance
    LEARN      the copier prepares itself          groups the segments
    COPY       writes the files of a group         renames the log among them to `.swap`
    COMMITTED  syncs the folder                    renames the old segments away
    MOVED      syncs the folder                    puts the new segment into the list; next group
    DONE       syncs the folder                    calls `on_done`

Before anything else changes the segments of the log, it calls `stop`: a swap that was committed is
brought to its end at once, everything before that is dropped. See swap_files for what a crash
leaves. Source: R-LOG8, R-LOG10.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Protocol

from storage_engine.core.retained.compaction import SegmentSpan, group_segments
from storage_engine.core.transactions.partition_transactions import AbortedTransaction
from storage_engine.log.cleaning.cleaned_segment import CancelledError, CleanedFacts, CleanedSegment
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.offset_index import MAX_RELATIVE_OFFSET
from storage_engine.log.segments.segment_list import SegmentList
from storage_engine.log.segments.swap_files import SwapFiles, sync_names
from storage_engine.protocol.records.record_batch import BytesLike


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

    # -- steps -------------------------------------------------------------------------------------

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
