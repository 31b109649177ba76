"""Brings a partition's folder into memory. Its one rule: after it the files are a log again,
whatever was there before.

Order of work: leftovers of deletions go; segments from the one with the recovery point on are
checked unless the last stop was clean; what follows a cut is dropped; then the leader epochs and
the producers are brought to the same end. Source: R-LOG8.
"""

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from storage_engine.core.errors import LogStorageError
from storage_engine.core.replication.leader_epochs import LeaderEpochCache
from storage_engine.core.retained.producer_state import ProducerStates
from storage_engine.core.system_errors import passes_by_itself
from storage_engine.log.files.checkpoints import LEADER_EPOCHS_FILE, read_epochs, write_epochs
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.files.storage_errors import storage_error
from storage_engine.log.log_config import LogConfig
from storage_engine.log.recovery.recovery import Recovered, recover_segment
from storage_engine.log.segments.log_segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    LogSegment,
    file_name,
    offset_in_name,
)
from storage_engine.log.segments.placing import MAX_RELATIVE_OFFSET
from storage_engine.log.segments.swap_files import CLEANED_SUFFIX, finish_swaps, sync_names
from storage_engine.log.state.aborted_transactions import is_good
from storage_engine.log.state.producer_replay import load_producers
from storage_engine.log.state.producer_snapshots import ProducerSnapshots

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """What was found, made consistent. Invariant: `segments` is not empty, bases ascending."""

    segments: tuple[LogSegment, ...]
    log_start_offset: int
    epochs: LeaderEpochCache
    producers: ProducerStates
    snapshots: ProducerSnapshots
    recovered_bytes: int


@dataclass(slots=True)
class _Checked:
    """What became of the segments."""

    recovered_bytes: int = 0
    damaged: list[LogSegment] = field(default_factory=list)
    """Those whose transaction index is not to be believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFolder:
    """Where a log lives and how it is set up."""

    disk: Disk
    pool: OpenFiles
    path: Path
    config: LogConfig
    on_checked: Callable[[int], None] = lambda size: None
    """Hears of the bytes that a recovery has gone through."""

    def segment(self, base_offset: int, *, created_ms: int, size: int = 0) -> LogSegment:
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
        """An empty segment whose file exists."""
        segment = self.segment(base_offset, created_ms=created_ms)
        for path in segment.paths():
            self.disk.remove(path)
        segment.file.create()
        return segment


class Gaps(NamedTuple):
    """Where offsets may be missing in order."""

    may_be: bool
    """Anywhere within segments: the log is or was compacted, or copied from one that was."""
    none_above: int | None
    """See `load_log`."""

    def may_be_between(self, end_offset: int, base_offset: int) -> bool:
        """Whether offsets may be missing between a segment that ends at one offset and the next
        one, which begins at the other; if not, the former has lost its end."""
        if not self.may_be or self.none_above is None or base_offset <= self.none_above:
            return self.may_be
        # No segment is that long: this is a gap that no index reaches across, before which all was
        # flushed.
        return base_offset - end_offset > MAX_RELATIVE_OFFSET + 1


def load_log(
    folder: LogFolder,
    *,
    log_start_offset: int,
    recovery_point: int,
    has_gaps: bool,
    clean: bool,
    now_ms: int,
    no_gap_above: int | None = None,
) -> LoadedLog:
    """Raises LogStorageError when the folder can't be read or written.

    `has_gaps`: offsets may be missing, because the log is or was compacted. `no_gap_above`: between
    a segment that begins above this offset and the one before it none are; None: they may.
    """
    gaps = Gaps(has_gaps, no_gap_above)
    try:
        return _load(folder, log_start_offset, recovery_point, gaps, clean, now_ms)
    except OSError as error:
        if passes_by_itself(error):
            # Opening does all of it again the next time.
            raise storage_error("open the log in", folder.path, error, unchanged=True) from error
        raise LogStorageError(f"can't open the log in {folder.path}: {error}") from error


def _load(
    folder: LogFolder,
    log_start_offset: int,
    recovery_point: int,
    gaps: Gaps,
    clean: bool,
    now_ms: int,
) -> LoadedLog:
    disk = folder.disk
    disk.make_directory(folder.path)
    names = disk.list_names(folder.path)
    if finish_swaps(disk, folder.path, names):
        logger.info("finished the swap of compacted segments folder=%s", folder.path)
        names = disk.list_names(folder.path)
    names = _remove_leftovers(folder, names)
    segments = _segments_of(folder, names, now_ms)
    epochs_path = folder.path / LEADER_EPOCHS_FILE
    saved_epochs = read_epochs(disk, epochs_path)
    epochs = LeaderEpochCache(saved_epochs)
    snapshots = ProducerSnapshots(disk, folder.path, names)
    if not clean:
        snapshots.remove_above(recovery_point)
    checked = _check(folder, segments, epochs, recovery_point, gaps, clean)
    if segments and log_start_offset > segments[-1].next_offset:
        logger.warning(
            "log ends before its start, it begins anew folder=%s end=%d start=%d",
            folder.path, segments[-1].next_offset, log_start_offset,
        )  # fmt: skip
        _drop(folder, segments, 0, "it lies before the log's start")
    if not segments:
        segments.append(folder.new_segment(log_start_offset, created_ms=now_ms))
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    end_offset = segments[-1].next_offset
    epochs.truncate_from_end(end_offset)
    if not epochs.entries or (not clean and _lacks_first_epoch(segments, epochs, log_start_offset)):
        epochs.clear()
        rebuild_epochs(segments, epochs)
    epochs.truncate_from_start(log_start_offset)
    if list(epochs.entries) != saved_epochs:
        write_epochs(disk, epochs_path, epochs.entries, sync=False)
    producers = load_producers(
        snapshots,
        tuple(segments),
        log_start_offset=log_start_offset,
        has_gaps=gaps.may_be,
        now_ms=now_ms,
        damaged=[segment for segment in checked.damaged if segment in segments],
    )
    for segment in segments:
        segment.close()
    return LoadedLog(
        segments=tuple(segments),
        log_start_offset=log_start_offset,
        epochs=epochs,
        producers=producers,
        snapshots=snapshots,
        recovered_bytes=checked.recovered_bytes,
    )


def rebuild_epochs(segments: list[LogSegment], epochs: LeaderEpochCache) -> None:
    """Learns the epochs from the batches; a segment is gone through only when an epoch begins in
    it.
    """
    filled = [segment for segment in segments if segment.size]
    first_epochs = [_first_epoch(segment) for segment in filled]
    for number, segment in enumerate(filled):
        is_last = number == len(filled) - 1
        if not is_last and first_epochs[number] == first_epochs[number + 1] == epochs.latest_epoch:
            continue
        for _, header in segment.scan():
            if header.partition_leader_epoch > epochs.latest_epoch:
                epochs.assign(header.partition_leader_epoch, header.base_offset)


def _lacks_first_epoch(
    segments: list[LogSegment], epochs: LeaderEpochCache, log_start_offset: int
) -> bool:
    """Whether the file is one of a later start of the log, or of what recovery alone has seen."""
    for segment in segments:
        if segment.size and segment.next_offset > log_start_offset:
            found = segment.find(log_start_offset)
            if found is not None:
                header = found[1]
                first = max(header.base_offset, log_start_offset)
                return epochs.epoch_at(first) != header.partition_leader_epoch
    return False


def _first_epoch(segment: LogSegment) -> int:
    for _, header in segment.scan():
        return header.partition_leader_epoch
    return -1


def _remove_leftovers(folder: LogFolder, names: list[str]) -> list[str]:
    """Removes what an interrupted deletion or replacement left, and indexes without a log."""
    kept = []
    for name in names:
        stem, dot, _ = name.partition(".")
        is_index = name.endswith(INDEX_SUFFIXES) and dot
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")) or (
            is_index and stem + LOG_SUFFIX not in names
        ):
            folder.disk.remove(folder.path / name)
        else:
            kept.append(name)
    return kept


def _segments_of(folder: LogFolder, names: list[str], now_ms: int) -> list[LogSegment]:
    offsets = (offset_in_name(name, LOG_SUFFIX) for name in names)
    bases = sorted(offset for offset in offsets if offset is not None)
    segments = []
    for base in bases:
        size = folder.disk.file_size(folder.path / file_name(base, LOG_SUFFIX))
        segments.append(folder.segment(base, created_ms=now_ms, size=size))
    for segment, following in itertools.pairwise(segments):
        segment.next_offset = following.base_offset
    return segments


def _check(
    folder: LogFolder,
    segments: list[LogSegment],
    epochs: LeaderEpochCache,
    recovery_point: int,
    gaps: Gaps,
    clean: bool,
) -> _Checked:
    """Makes every segment trustworthy, but for the transaction indexes of some."""
    names = set(folder.disk.list_names(folder.path)) if len(segments) > 1 else set()
    checked = _Checked()
    last_epoch = -1
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        # One that ends at the recovery point may have been sealed after the last flush.
        if clean or (following is not None and following < recovery_point):
            if following is None:
                trusted = segment.load_end()
                segment.transaction_index.must_be_sealed = segment.size > 0
                # Now, as it may grow; those of the others are looked at when they are used.
                if trusted and not is_good(segment):
                    checked.damaged.append(segment)
            else:
                trusted = True
                missing = {path.name for path in segment.paths()} - names
                segment.transaction_index.must_be_sealed = True
                if segment.transaction_index.file.path.name in missing:
                    missing.discard(segment.transaction_index.file.path.name)
                    if not is_good(segment):
                        checked.damaged.append(segment)
                if missing:
                    segment.repair_indexes()
        else:
            trusted = False
        if trusted:
            continue
        checked.recovered_bytes += segment.size
        checked.damaged.append(segment)
        cut, last_epoch = _recover(folder, segment, epochs, gaps.may_be, last_epoch)
        if following is not None:
            is_short = segment.next_offset < following and not (
                gaps.may_be_between(segment.next_offset, following)
            )
            if cut is not None or is_short or segment.next_offset > following:
                _drop(folder, segments, number + 1, "it follows the damage")
                break
            segment.next_offset = following
    return checked


def _recover(
    folder: LogFolder,
    segment: LogSegment,
    epochs: LeaderEpochCache,
    has_gaps: bool,
    least_epoch: int,
) -> Recovered:
    """Tells what was cut off."""
    size = segment.size
    logger.info("checking segment=%s bytes=%d", segment.file.path, size)
    recovered = recover_segment(
        folder.disk, segment, epochs, gaps_allowed=has_gaps, least_epoch=least_epoch
    )
    cut = recovered.cut
    folder.on_checked(size)
    if cut is not None:
        logger.warning(
            "cut segment=%s at_byte=%d end_offset=%d dropped_bytes=%d reason=%s",
            segment.file.path, cut.position, segment.next_offset, cut.dropped_bytes, cut.reason,
        )  # fmt: skip
    return recovered


def _drop(folder: LogFolder, segments: list[LogSegment], first: int, reason: str) -> None:
    """Removes the segments from number `first` on, the last one first, so that a crash leaves a
    shorter log; and for good, so that none of them is back behind what is appended now.
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
