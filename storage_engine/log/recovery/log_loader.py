"""Loads a log from a partition's folder, and repairs the files where they need it.

Order of work: swaps of compaction are finished, and leftovers of deletions removed; unless the last
stop was clean, the segments are checked, from the one with the recovery point on; all behind the
first damage is dropped; then leader epochs and producers are cut to the same end.

Source: R-LOG8.
"""

import itertools
import logging
from dataclasses import dataclass

from storage_engine.core.errors import LogStorageError
from storage_engine.core.replication.leader_epochs import LeaderEpochCache
from storage_engine.core.retained.producer_state import ProducerStates
from storage_engine.core.system_errors import passes_by_itself
from storage_engine.log.files.disk import storage_error, write_anew
from storage_engine.log.recovery.recovery import (
    Gaps,
    RecoveryProgress,
    SegmentChecks,
    drop_segments,
)
from storage_engine.log.segments.log_segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    LogSegment,
    file_name,
    offset_in_name,
)
from storage_engine.log.segments.segment_list import LogFolder
from storage_engine.log.segments.swap_files import CLEANED_SUFFIX, finish_swaps
from storage_engine.log.state.checkpoints import (
    LEADER_EPOCHS_FILE,
    PARTITION_METADATA_FILE,
    read_epochs,
    write_epochs,
)
from storage_engine.log.state.producer_replay import load_producers
from storage_engine.log.state.producer_snapshots import ProducerSnapshots

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """The parts of a log after loading, consistent with each other. Invariant: `segments` is not
    empty, bases ascending."""

    segments: tuple[LogSegment, ...]
    log_start_offset: int
    epochs: LeaderEpochCache
    producers: ProducerStates
    snapshots: ProducerSnapshots
    recovered_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """The knowledge about a log before it is opened. The offsets come from checkpoint files. An
    offset that no file has is 0: the log is checked from its first byte, and begins at its oldest
    segment again."""

    log_start_offset: int = 0
    """The start of an empty log."""
    recovery_point: int = 0
    """Everything below it was flushed."""
    first_dirty_offset: int = 0
    """The log was compacted below it; when it is above 0, offsets may be missing."""
    clean: bool = False
    """True when the last stop was clean, so that nothing needs to be checked."""
    is_cached: bool = True
    """True when the page cache may hold bytes that are not on the medium, and that no flush will
    write (see `recovery`); False when the machine was restarted since the log was written."""
    no_gap_above: int | None = None
    """No offsets are missing between a segment that begins above this offset and the one before it;
    None: some may be."""


def load_log(
    folder: LogFolder, start: LogStart, *, now_ms: int, progress: RecoveryProgress | None
) -> LoadedLog:
    """Load the log; LogStorageError when the folder can't be read or written. `progress` counts the
    bytes that were checked."""
    try:
        return _load(folder, start, now_ms, progress)
    except OSError as error:
        if passes_by_itself(error):
            # The next opening does all of it again.
            raise storage_error("open the log in", folder.path, error, unchanged=True) from error
        raise LogStorageError(f"can't open the log in {folder.path}: {error}") from error


def _load(
    folder: LogFolder, start: LogStart, now_ms: int, progress: RecoveryProgress | None
) -> LoadedLog:
    clean, log_start_offset = start.clean, start.log_start_offset
    may_have_gaps = folder.config.compacts or start.first_dirty_offset > 0
    gaps = Gaps(may_have_gaps, start.no_gap_above)
    disk = folder.disk
    names = _names_in_order(folder)
    segments = _segments_of(folder, names, now_ms)
    epochs = LeaderEpochCache(read_epochs(disk, folder.path / LEADER_EPOCHS_FILE))
    saved_epochs = list(epochs.entries)
    snapshots = ProducerSnapshots(disk, folder.path, names)
    if not clean:
        snapshots.remove_above(start.recovery_point)
    rewrites = start.is_cached and not clean
    if rewrites and disk.exists(folder.path / PARTITION_METADATA_FILE):
        # The first flush syncs it with the records.
        write_anew(disk, folder.path / PARTITION_METADATA_FILE)
    checks = SegmentChecks(
        folder,
        epochs,
        gaps,
        recovery_point=start.recovery_point,
        clean=clean,
        rewrites=rewrites,
        progress=progress,
    )
    checks.run(segments)
    if segments and log_start_offset > segments[-1].next_offset:
        logger.warning(
            "log ends before its start, it begins anew folder=%s end=%d start=%d",
            folder.path, segments[-1].next_offset, log_start_offset,
        )  # fmt: skip
        drop_segments(folder, segments, 0, "it lies before the log's start")
    if not segments:
        segments.append(folder.new_segment(log_start_offset, created_ms=now_ms))
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    _settle_epochs(epochs, segments, log_start_offset, clean=clean)
    if list(epochs.entries) != saved_epochs:
        write_epochs(disk, folder.path / LEADER_EPOCHS_FILE, epochs.entries)
    producers = load_producers(
        snapshots,
        tuple(segments),
        log_start_offset=log_start_offset,
        has_gaps=may_have_gaps,
        now_ms=now_ms,
        damaged=[segment for segment in checks.damaged if segment in segments],
    )
    for segment in segments:
        segment.close()
    return LoadedLog(
        segments=tuple(segments),
        log_start_offset=log_start_offset,
        epochs=epochs,
        producers=producers,
        snapshots=snapshots,
        recovered_bytes=checks.recovered_bytes,
    )


def _names_in_order(folder: LogFolder) -> list[str]:
    """The names in the folder once swaps are finished and leftovers are gone."""
    disk = folder.disk
    disk.make_directory(folder.path)
    names = disk.list_names(folder.path)
    if finish_swaps(disk, folder.path, names):
        logger.info("finished the swap of compacted segments folder=%s", folder.path)
        names = disk.list_names(folder.path)
    return _remove_leftovers(folder, names)


def _settle_epochs(
    epochs: LeaderEpochCache, segments: list[LogSegment], log_start_offset: int, *, clean: bool
) -> None:
    epochs.truncate_from_end(segments[-1].next_offset)
    if not epochs.entries or (not clean and _lacks_first_epoch(segments, epochs, log_start_offset)):
        epochs.clear()
        rebuild_epochs(segments, epochs)
    epochs.truncate_from_start(log_start_offset)


def rebuild_epochs(segments: list[LogSegment], epochs: LeaderEpochCache) -> None:
    """Learns the epochs from the batches; reads all headers of a segment only when an epoch begins
    in it."""
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
    """Return True when the checkpoint does not have the epoch of the log's first batch: it is of a
    later start of the log, or has only the epochs that recovery has seen."""
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
    """Removes the files that an interrupted deletion or replacement left, and indexes without a
    log."""
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
