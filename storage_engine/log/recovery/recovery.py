"""Checks the segments of a log when it is opened. After an unclean stop those from the one with the
recovery point on are checked batch by batch: every intact batch before the first damage is kept,
and nothing after it.

A batch is intact when it lies within the file, is of magic 2, its CRC matches and its offsets go on
where the last ones stopped. Base offset and leader epoch lie outside the CRC; a batch in which they
are damaged is recognised because it does not fit between its neighbours. A segment that begins with
an older leader epoch than the one before it ended with was cut off once: a crash of the machine
brought its name back.

What no flush is known to have brought to the medium is written anew, in place, before it is
checked. After a failed fsync Linux counts the pages as clean: they are read as if nothing had
happened, a later fsync succeeds without writing them, and the next loss of power takes them.
Source: R-LOG8.
"""

import logging
import mmap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.ports import Clock
from storage_engine.core.replication.leader_epochs import LeaderEpochCache
from storage_engine.log.files.disk import Disk, sync_names, write_fully
from storage_engine.log.segments.indexes import MAX_RELATIVE_OFFSET
from storage_engine.log.segments.log_segment import LOG_SUFFIX, LogSegment, offset_in_name
from storage_engine.log.segments.segment_list import LogFolder
from storage_engine.log.state.producer_replay import is_good
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    crc_matches,
    read_header,
)

logger = logging.getLogger(__name__)

INTERVAL_MS = 2000
"""A longer recovery logs its progress at this interval."""

MARK = "recovering log_dir="
"""The beginning of each line; programs that start brokers search their logs for it."""

_MIB = 1 << 20


class RecoveryProgress:
    def __init__(self, path: Path, clock: Clock, *, partitions: int, total_bytes: int) -> None:
        self._path = path
        self._clock = clock
        self._partitions = partitions
        self._total_bytes = total_bytes
        self._done_partitions = 0
        self._done_bytes = 0
        self._start_ms = self._logged_ms = clock.monotonic_ms()

    def checked(self, size: int) -> None:
        """Counts `size` more bytes as checked."""
        self._done_bytes += size
        self._log()

    def opened(self) -> None:
        """Counts one more log as open."""
        self._done_partitions += 1
        self._log()

    def _log(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._logged_ms >= INTERVAL_MS:
            self._logged_ms = now_ms
            logger.info("%s%s", MARK, self.text(now_ms))

    def text(self, now_ms: int) -> str:
        total = max(self._total_bytes, self._done_bytes)
        seconds = max(1, now_ms - self._start_ms) / 1000
        rate = self._done_bytes / seconds
        if rate:
            left = f"about {(total - self._done_bytes) / rate:.0f} s left"
        else:
            of_partitions = self._partitions - self._done_partitions
            left = f"about {seconds * of_partitions / max(1, self._done_partitions):.0f} s left"
        return (
            f"{self._path}: {self._done_partitions} of {self._partitions} partitions,"
            f" {self._done_bytes // _MIB} of {total // _MIB} MiB, {rate / _MIB:.0f} MiB/s, {left}"
        )


def begin_progress(
    disk: Disk, clock: Clock, path: Path, recovery_points: Mapping[Path, int], *, clean: bool
) -> RecoveryProgress:
    """Return the progress for the log dir `path`, whose logs' folders have these recovery points;
    `clean`: they will only be opened.
    """
    try:
        total = 0 if clean else bytes_to_check(disk, recovery_points.items())
    except OSError:
        # Opening the logs will raise that error again.
        total = 0
    return RecoveryProgress(path, clock, partitions=len(recovery_points), total_bytes=total)


def bytes_to_check(disk: Disk, folders: Iterable[tuple[Path, int]]) -> int:
    """Return the bytes that recovery has to check in the logs of these folders with their recovery
    points."""
    total = 0
    for path, recovery_point in folders:
        bases = sorted(
            offset
            for name in disk.list_names(path)
            if (offset := offset_in_name(name, LOG_SUFFIX)) is not None
        )
        for number, base in enumerate(bases):
            is_last = number == len(bases) - 1
            if is_last or bases[number + 1] > recovery_point:
                total += disk.file_size(path / f"{base:020d}{LOG_SUFFIX}")
    return total


CHUNK_BYTES = 1 << 20
COPIED_BATCH_MAX_BYTES = 8 << 20
"""The size up to which a batch is checked in a copy. A larger one is checked through a mapping: a
damaged length must not cost that much memory.
"""


class Cut(NamedTuple):
    """The end of a segment that a recovery dropped."""

    position: int
    dropped_bytes: int
    reason: str


class Recovered(NamedTuple):
    cut: Cut | None
    last_epoch: int
    """The leader epoch of the last batch so far, in this segment or one before it."""


def recover_segment(
    disk: Disk,
    segment: LogSegment,
    epochs: LeaderEpochCache,
    *,
    gaps_allowed: bool,
    least_epoch: int = -1,
    rewrites_from: int | None = None,
) -> Recovered:
    """Rebuilds the segment from the bytes of its file, cuts the file at the first damage, and
    records the epochs. The transaction index is left to the caller, which has the producers.

    `gaps_allowed`: offsets may be missing between batches, as compaction leaves them.
    `least_epoch`: the epoch of the batches before it. `rewrites_from`: batches from this offset on
    are written anew; None: nothing is.
    """
    descriptor = segment.file.open()
    file_size = disk.size(descriptor)
    segment.reset()
    checker = _Checker(disk, segment, file_size, rewrites_from)
    # The indexes may be older or newer than the batches that are checked now.
    epochs.truncate_from_end(segment.base_offset)
    epoch = epochs.latest_epoch
    last_epoch = least_epoch
    for _, header in _that_fit_together(checker, segment.base_offset, gaps_allowed, least_epoch):
        segment.note(header.size_in_bytes, header.last_offset, header.max_timestamp)
        last_epoch = header.partition_leader_epoch
        if header.partition_leader_epoch != epoch and header.partition_leader_epoch >= 0:
            epoch = header.partition_leader_epoch
            epochs.assign(epoch, header.base_offset)
    if segment.size < file_size:
        disk.truncate(descriptor, segment.size)
    segment.seal_sparse_indexes()
    if segment.size == file_size:
        return Recovered(None, last_epoch)
    cut = Cut(segment.size, file_size - segment.size, checker.stopped_by)
    return Recovered(cut, last_epoch)


class _Checker:
    """Reads a file up to the first batch that is not intact in itself."""

    def __init__(
        self, disk: Disk, segment: LogSegment, file_size: int, rewrites_from: int | None
    ) -> None:
        self._disk = disk
        self._segment = segment
        self._file_size = file_size
        self._rewrites_from = rewrites_from
        self._rewrites = False
        """True from the first batch on that is to be written anew."""
        self.stopped_by = "end of file"

    def intact_batches(self) -> Iterator[tuple[int, BatchHeader]]:
        position = 0
        chunk = memoryview(b"")
        chunk_start = 0
        while position < self._file_size:
            at = position - chunk_start
            if len(chunk) - at < HEADER_BYTES:
                chunk, chunk_start, at = self._read(position, CHUNK_BYTES), position, 0
            try:
                header = read_header(chunk, at)
            except CorruptRecordError as error:
                self.stopped_by = str(error)
                return
            if not self._rewrites and self._is_to_be_rewritten(header):
                self._rewrites = True
                self._write_anew(position, chunk[position - chunk_start :])
            size = header.size_in_bytes
            problem = self._problem(position, header)
            if problem is None and len(chunk) - at < size:
                chunk, chunk_start, at = self._read(position, max(size, CHUNK_BYTES)), position, 0
            if problem is None and not crc_matches(chunk, at, size):
                problem = "the CRC does not match"
            if problem is not None:
                self.stopped_by = problem
                return
            yield position, header
            position += size

    def _problem(self, position: int, header: BatchHeader) -> str | None:
        if position + header.size_in_bytes > self._file_size:
            return "the batch goes beyond the end of the file"
        if header.magic != MAGIC:
            return f"magic {header.magic}"
        if header.last_offset_delta < 0 or header.base_offset < self._segment.base_offset:
            return "the offsets are impossible"
        if header.last_offset - self._segment.base_offset > MAX_RELATIVE_OFFSET:
            return "the offset is too far from the segment's base offset"
        return None

    def _is_to_be_rewritten(self, header: BatchHeader) -> bool:
        return self._rewrites_from is not None and header.last_offset >= self._rewrites_from

    def _read(self, position: int, size: int) -> memoryview:
        """Return bytes that are on the medium, or will be with the next flush."""
        descriptor = self._segment.file.open()
        size = min(size, self._file_size - position)
        if size <= COPIED_BATCH_MAX_BYTES:
            data = memoryview(self._disk.pread(descriptor, size, position))
        else:
            lead = position % mmap.ALLOCATIONGRANULARITY
            data = self._disk.map(descriptor, size + lead, position - lead)[lead:]
        if self._rewrites:
            self._write_anew(position, data)
        return data

    def _write_anew(self, position: int, data: memoryview) -> None:
        write_fully(self._disk, self._segment.file.open(), data, position)


def _that_fit_together(
    checker: _Checker, base_offset: int, gaps_allowed: bool, epoch: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the intact batches up to the first whose base offset or leader epoch does not fit its
    neighbours; `epoch` is that of the batch before them.
    """
    held: tuple[int, BatchHeader] | None = None
    next_offset = base_offset
    for place in checker.intact_batches():
        if held is None:
            if place[1].partition_leader_epoch < epoch:
                checker.stopped_by = f"it is older than leader epoch {epoch} of the segment before"
                return
        else:
            blamed = _which_is_bad(next_offset, epoch, held[1], place[1])
            if blamed is not held[1]:
                yield held
            if blamed is not None:
                checker.stopped_by = "base offset or leader epoch do not fit the neighbours"
                return
            next_offset, epoch = held[1].next_offset, held[1].partition_leader_epoch
        held = place
    if held is not None:
        if gaps_allowed or held[1].base_offset == next_offset:
            yield held
        else:
            checker.stopped_by = "offsets are missing before the last batch"


def _which_is_bad(
    next_offset: int, epoch: int, former: BatchHeader, latter: BatchHeader
) -> BatchHeader | None:
    """Return the one of two contradicting batches that does not continue from `next_offset` and
    `epoch`.
    """
    if latter.base_offset < former.next_offset:
        return latter if former.base_offset == next_offset else former
    if latter.partition_leader_epoch < former.partition_leader_epoch:
        return latter if latter.partition_leader_epoch < epoch else former
    return None


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
