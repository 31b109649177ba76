"""The segments of one log, oldest first. The tuple is replaced, never changed, so that readers keep
theirs.

Deleted files are renamed at once and removed `file.delete.delay.ms` later. Deletions at the end go
from the newest segment to the oldest and at the beginning the other way round, so that a crash in
between leaves a log without holes. Source: R-LOG1, R-LOG2, R-LOG9.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from storage_engine.core.errors import LogShortageError
from storage_engine.core.ports import Clock
from storage_engine.log.files.disk import Disk, sync_names
from storage_engine.log.files.segment_files import OpenFiles
from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.transaction_index import TransactionIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFolder:
    """A log's folder and settings, replaced as a whole when either changes."""

    disk: Disk
    pool: OpenFiles
    path: Path
    config: LogConfig

    def segment(self, base_offset: int, *, created_ms: int, size: int = 0) -> LogSegment:
        """Return a segment whose files exist, with `size` bytes of batches."""
        return LogSegment(
            self.disk,
            self.pool,
            self.path,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            index_max_bytes=self.config.segment_index_bytes,
            created_ms=created_ms,
            size=size,
        )

    def new_segment(self, base_offset: int, *, created_ms: int) -> LogSegment:
        """Return an empty segment with a new `.log` file; leftovers of the same names are
        removed."""
        segment = self.segment(base_offset, created_ms=created_ms)
        for path in segment.paths():
            self.disk.remove(path)
        segment.file.create()
        return segment


SEGMENTS_PER_FLUSH = 32
"""The most segments of one flush, which opens all its files at once; more segments take several
flushes."""


class Unflushed(NamedTuple):
    """The files that a flush has to bring to the medium."""

    paths: list[Path]
    indexes: list[TransactionIndex]
    """The transaction indexes whose files are among `paths`."""
    end_offset: int
    """The end offset of these segments, exclusive."""


class SegmentList:
    """Invariant: not empty, base offsets ascending, `active` is the last one."""

    def __init__(self, folder: LogFolder, segments: tuple[LogSegment, ...], clock: Clock) -> None:
        self.folder = folder
        self._clock = clock
        self.all = segments
        self.active = segments[-1]
        self.name_changes = 1
        """The number of changes of names in the folder so far; a roll, a cut or a swap is one."""
        self._synced_name_changes = 0
        self._deleted: tuple[tuple[int, LogSegment, list[Path]], ...] = ()
        self._deletions = 0
        """The number that distinguishes the next deleted segment from others of its base offset."""
        self._moved: tuple[Path, ...] = ()
        """The files of segments that are about to be replaced."""
        self.is_cut_short = False
        """See `PartitionLog.is_cut_short`."""

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.all)

    def check_whole(self) -> None:
        """Raise LogShortageError while `is_cut_short`."""
        if self.is_cut_short:
            raise LogShortageError(
                f"a change of the log in {self.folder.path} was cut short, it is to be opened again"
            )

    @property
    def unsynced_names(self) -> bool:
        """True when the folder has names that may not be on the medium."""
        return self._synced_name_changes < self.name_changes

    def names_are_synced(self, name_changes: int) -> None:
        """Records that the first `name_changes` changes of names are on the medium, in the parent
        folder too."""
        self._synced_name_changes = max(self._synced_name_changes, name_changes)

    @property
    def first(self) -> LogSegment:
        return self.all[0]

    def number_of(self, offset: int) -> int:
        """Return the number of the segment with `offset`."""
        if offset >= self.active.base_offset:
            return len(self.all) - 1
        return max(0, bisect_right(self.all, offset, key=attrgetter("base_offset")) - 1)

    def roll(self, base_offset: int) -> None:
        """Seals the active segment and begins one at `base_offset`; after an OSError nothing has
        changed."""
        self.active.seal()
        self._sync_names()
        segment = self.folder.new_segment(base_offset, created_ms=self._clock.wall_ms())
        self.active.next_offset = base_offset
        self.all = (*self.all, segment)
        self.active = segment
        self.name_changes += 1

    def start_anew_at(self, offset: int) -> None:
        """Deletes all segments and begins an empty one at `offset`."""
        has_records = any(segment.size for segment in self.all)
        self._delete_from(0)
        if has_records:
            # Otherwise a crash could leave the oldest and the new one: a hole, or a gap of
            # compaction.
            sync_names(self.folder.disk, self.folder.path)
        self.active = self.folder.new_segment(offset, created_ms=self._clock.wall_ms())
        self.all = (self.active,)
        self.name_changes += 1

    def cut_to(self, offset: int) -> int:
        """Drops everything from `offset` on; returns the new end, which is lower if `offset` lies
        within a batch.
        """
        self._delete_from(self.number_of(offset) + 1)
        # This includes snapshots: none from before the cut may reappear when newer batches stand
        # above it.
        self.name_changes += 1
        self.active = active = self.all[-1]
        found = active.find(offset)
        position = active.size if found is None else found[0]
        active.truncate(position, active.end_offset_at(position))
        return active.next_offset

    def drop_oldest(self, count: int) -> None:
        """Deletes the first `count` segments, not all of them."""
        assert count < len(self.all)
        if count:
            self._sync_names()
        dropped, self.all = self.all[:count], self.all[count:]
        for segment in dropped:
            self._delete(segment)

    def move_away(self, segments: Sequence[LogSegment]) -> None:
        """Renames the files of segments that are about to be replaced; reads of them continue."""
        for segment in segments:
            self._moved += tuple(self._renamed(segment))

    def replace(self, segments: Sequence[LogSegment], replacement: LogSegment) -> None:
        """Puts one segment, which has its files, in the place of some that were moved away."""
        number = self.all.index(segments[0])
        following = number + len(segments)
        assert self.all[number:following] == tuple(segments)
        self.all = (*self.all[:number], replacement, *self.all[following:])
        self.name_changes += 1
        due_ms = self._due_ms()
        self._deleted += tuple((due_ms, segment, []) for segment in segments)
        self._deleted += ((due_ms, segments[0], list(self._moved)),)
        self._moved = ()

    @property
    def has_deleted_files(self) -> bool:
        return bool(self._deleted)

    def take_deleted_files(self, now_ms: int) -> list[Path]:
        """Return files of deleted segments whose delay is over; the caller removes them."""
        due = [entry for entry in self._deleted if entry[0] <= now_ms]
        self._deleted = tuple(entry for entry in self._deleted if entry[0] > now_ms)
        for _, segment, _ in due:
            # An open file would keep its space.
            segment.close()
        return [path for _, _, paths in due for path in paths]

    def unflushed(
        self, recovery_point: int, most_segments: int, *, with_indexes: bool
    ) -> Unflushed:
        """Return the files of the oldest few segments that may have unflushed content. The active
        segment's indexes can wait until it is sealed or closed (`with_indexes`)."""
        # A segment that was sealed at the recovery point has indexes that were never flushed.
        above = [
            segment
            for segment in self.all
            if segment is self.active or segment.next_offset >= recovery_point
        ]
        paths: list[Path] = []
        indexes: list[TransactionIndex] = []
        end_offset = recovery_point
        for segment in above[:most_segments]:
            index = segment.transaction_index
            waits = segment is self.active and not with_indexes
            paths += segment.paths()[:1] if waits else segment.paths()[:-1]
            if index.is_unsynced:
                index.file.flush()
                indexes.append(index)
                paths.append(index.file.path)
            end_offset = segment.next_offset
        return Unflushed(paths, indexes, end_offset)

    def folder_is_renamed(self, path: Path) -> None:
        """Records the folder's new path; the files keep their names."""
        assert not self._deleted and not self._moved, "nothing was deleted yet"
        self.folder = replace(self.folder, path=path)
        for segment in self.all:
            segment.folder_is_renamed(path)

    def close(self) -> None:
        for segment in (*self.all, *(segment for _, segment, _ in self._deleted)):
            segment.close()

    def _sync_names(self) -> None:
        """Brings the names to the medium, before the next segment is created or the oldest ones are
        deleted: a crash could otherwise leave a segment without those before it, or no trace of the
        log's end. Mostly a flush has done it already."""
        if self.unsynced_names:
            sync_names(self.folder.disk, self.folder.path)

    def _delete_from(self, number: int) -> None:
        while len(self.all) > number:
            segment = self.all[-1]
            self.all = self.all[:-1]
            self._delete(segment)

    def _delete(self, segment: LogSegment) -> None:
        self._deleted += ((self._due_ms(), segment, self._renamed(segment)),)

    def _renamed(self, segment: LogSegment) -> list[Path]:
        """Renames the files of a deleted segment, and returns their new paths."""
        number, self._deletions = self._deletions, self._deletions + 1
        return segment.mark_deleted(number)

    def _due_ms(self) -> int:
        return self._clock.monotonic_ms() + self.folder.config.file_delete_delay_ms
