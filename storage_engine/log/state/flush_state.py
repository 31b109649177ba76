"""The recovery point of a log, which never claims more than was flushed, and the flushes that move
it.

A flush is a `FlushJob` with two halves. `run` syncs the files, which may take long, on any thread
and by descriptors of its own; `finish` then moves the recovery point, on the log's own thread.
Source: R-LOG4, R-LOG8.
"""

from collections.abc import Callable
from pathlib import Path

from storage_engine.core.errors import LogDirError, LogShortageError
from storage_engine.core.ports import Clock
from storage_engine.log.files.disk import Disk, storage_errors
from storage_engine.log.log_config import NO_TIME_LIMIT
from storage_engine.log.segments.segment_list import SEGMENTS_PER_FLUSH, SegmentList
from storage_engine.log.state.checkpoints import (
    PARTITION_METADATA_FILE,
    LeaderEpochCheckpoint,
    LogCheckpoints,
)


class FlushJob:
    """Brings files of a log to the medium, and the names in its folder when a `directory` is
    given.
    """

    __slots__ = ("_descriptors", "_disk", "_folders", "_on_flushed", "end_offset")

    def __init__(
        self,
        disk: Disk,
        files: list[Path],
        folders: list[Path],
        end_offset: int,
        on_flushed: Callable[[], None],
    ) -> None:
        """Opens all files, so that later changes of their names don't matter; OSError when that
        fails.
        """
        self._disk = disk
        self._on_flushed = on_flushed
        self.end_offset = end_offset
        """All below it is on the medium when the job is done, unless the log was truncated in
        between."""
        self._descriptors: list[int] = []
        self._folders: list[int] = []
        try:
            self._descriptors += map(disk.open_existing, files)
            self._folders += map(disk.open_directory, folders)
        except OSError:
            self._close()
            raise

    @property
    def syncs(self) -> int:
        """Return how many files and folders it brings to the medium, while it has not run."""
        return len(self._descriptors) + len(self._folders)

    def run(self) -> None:
        """Runs the slow half, on any thread; OSError when the medium fails."""
        try:
            for descriptor in self._descriptors:
                self._disk.sync(descriptor)
            for descriptor in self._folders:
                self._disk.sync_names(descriptor)
        finally:
            self._close()

    def finish(self) -> None:
        """Runs the quick half, on the log's own thread, after `run` has succeeded."""
        self._on_flushed()

    def _close(self) -> None:
        for descriptor in (*self._descriptors, *self._folders):
            self._disk.close(descriptor)
        self._descriptors, self._folders = [], []


class FlushState:
    """The recovery point of one log and the flushes that move it."""

    def __init__(
        self,
        segments: SegmentList,
        epochs: LeaderEpochCheckpoint,
        clock: Clock,
        *,
        recovery_point: int,
        is_recovered: bool,
        checkpoints: LogCheckpoints,
    ) -> None:
        """`is_recovered`: opening has changed files, so that they differ from the medium."""
        self._segments = segments
        self._epochs = epochs
        self._clock = clock
        self._checkpoints = checkpoints
        self._generation = 0
        self._unfinished: dict[int, tuple[list[Path], list[Path]]] = {}
        """The files and folders of flushes that have not finished: a later flush that ends first
        must sync them too, before it moves the recovery point."""
        self._cut_unsynced = is_recovered
        self._is_topic_id_flushed = False
        self._is_used = False
        self._is_settling = False
        self._last_flush_ms = clock.monotonic_ms()
        self.recovery_point = min(recovery_point, segments.active.next_offset)

    @property
    def is_behind(self) -> bool:
        """True when a clean stop has something to write: unflushed records, a truncation, or
        indexes."""
        return (
            self.recovery_point < self._segments.active.next_offset
            or self._cut_unsynced
            or self._is_settling
        )

    def settle(self) -> bool:
        """Prepares the closing of the log. Returns True when it was written to: then the newest
        segment's indexes are to be written, and flushed with the rest."""
        self._is_settling = self._is_used or self.is_behind
        return self._is_settling

    def is_due(self, now_ms: int) -> bool:
        """Return True when `flush.messages`, `flush.ms` or a finished segment demands a flush."""
        active = self._segments.active
        unflushed = active.next_offset - self.recovery_point
        if unflushed <= 0:
            return False
        config = self._segments.folder.config
        return (
            unflushed >= config.flush_messages
            or now_ms - self._last_flush_ms >= config.flush_ms
            or self.recovery_point < active.base_offset
        )

    @property
    def may_be_due(self) -> bool:
        """Return True when a flush is due, or will become due without another append. By default
        only finished segments are flushed, and it takes an append to finish one."""
        active = self._segments.active
        unflushed = active.next_offset - self.recovery_point
        config = self._segments.folder.config
        return unflushed > 0 and (
            config.flush_ms < NO_TIME_LIMIT
            or unflushed >= config.flush_messages
            or self.recovery_point < active.base_offset
        )

    def flush(self) -> None:
        """Brings everything in the log to the medium."""
        while self.recovery_point < self._segments.active.next_offset:
            self.run(self.prepare())

    def prepare(self) -> FlushJob:
        """Return a job for the present content of the log, or for the oldest part if that is a lot.
        If the log is truncated before the job ends, the job does not move the recovery point. Where
        descriptors are short it takes one segment, so that a log of many is flushed in the end.
        """
        self._segments.check_whole()
        try:
            return self._prepare(SEGMENTS_PER_FLUSH)
        except LogShortageError:
            return self._prepare(1)

    def _prepare(self, most_segments: int) -> FlushJob:
        segments, generation = self._segments, self._generation
        is_settling = self._is_settling
        with storage_errors("flush", segments.folder.path):
            unflushed = segments.unflushed(
                self.recovery_point, most_segments, with_indexes=is_settling
            )
        paths, end_offset = unflushed.paths, unflushed.end_offset
        is_last = segments.active.file.path in paths
        self._is_used = True
        if self._cut_unsynced and segments.active.file.path not in paths:
            paths.append(segments.active.file.path)
        disk, directory = segments.folder.disk, segments.folder.path
        segments.name_changes += len(unflushed.indexes)
        name_changes = segments.name_changes
        with_names = segments.unsynced_names

        number = max(self._unfinished, default=0) + 1

        def on_flushed() -> None:
            self._unfinished.pop(number, None)
            if with_names:
                segments.names_are_synced(name_changes)
            if is_settling and is_last:
                self._is_settling = False
            if self._generation == generation:
                self._cut_unsynced = False
                self.recovery_point = max(self.recovery_point, end_offset)

        folders: list[Path] = []
        takes_topic_id = False
        self._epochs.save()
        with storage_errors("flush", directory):
            if self._epochs.unsynced and disk.exists(self._epochs.path):
                # Replaced files count when their name does.
                paths.append(self._epochs.path)
                folders = [directory]
            if not self._is_topic_id_flushed and disk.exists(directory / PARTITION_METADATA_FILE):
                # Records without it would pass for those of another topic of the same name.
                takes_topic_id = True
                paths.append(directory / PARTITION_METADATA_FILE)
                folders = [directory]
            if is_settling:
                folders = [directory]
            if with_names:
                folders = [directory, directory.parent]
            for other_paths, other_folders in self._unfinished.values():
                folders += [path for path in other_folders if path not in folders]
                paths += [p for p in other_paths if p not in paths and disk.exists(p)]
            job = FlushJob(disk, paths, folders, end_offset, on_flushed)
        # These are taken only now: without the job they would not be brought to the medium.
        self._unfinished[number] = paths, folders
        self._is_topic_id_flushed = self._is_topic_id_flushed or takes_topic_id
        for index in unflushed.indexes:
            index.is_unsynced = False
        self._epochs.unsynced = False
        self._last_flush_ms = self._clock.monotonic_ms()
        return job

    def run(self, job: FlushJob) -> None:
        """Runs the job at once, on this thread. One that fails stays among the unfinished, so that
        the next one does its work too.
        """
        try:
            job.run()
        except OSError as error:
            # The errno does not matter: the kernel may count the pages as clean.
            raise LogDirError(f"can't flush {self._segments.folder.path}: {error}") from error
        job.finish()

    def log_is_cut_to(self, end_offset: int) -> None:
        """Lowers the recovery point before the log is truncated, on the medium: after a crash in
        between, recovery must check the files."""
        self._generation += 1
        self._cut_unsynced = True
        known = self.recovery_point
        if known > end_offset:
            self.recovery_point = end_offset
            try:
                self._checkpoints.write()
            except OSError:
                # The log is not truncated yet, and the next try must come here again.
                self.recovery_point = known
                raise


class UnfollowedCuts:
    """Records the truncations of a log while it is copied; the copy follows them."""

    __slots__ = ("begun_anew", "lowest_end_offset")

    def __init__(self) -> None:
        self.begun_anew = False
        """True when the log was emptied, and may begin anywhere: the copy must begin anew as
        well."""
        self.lowest_end_offset: int | None = None
        """The lowest end that the log had; None when it was not truncated."""

    def note_end(self, end_offset: int) -> None:
        """Records that the log was truncated, and ends at `end_offset` (exclusive)."""
        lowest = self.lowest_end_offset
        if lowest is None or end_offset < lowest:
            self.lowest_end_offset = end_offset

    def note_new_beginning(self) -> None:
        """Records that the log is empty now, or that the extent of its loss is unknown."""
        self.begun_anew = True
