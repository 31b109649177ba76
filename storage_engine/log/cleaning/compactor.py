"""The work of a compaction pass, on any thread. It reads closed segments, and writes files that no
reader sees before the job renames them.

First the newest offset of every dirty key is learned, as far as memory allows; then each group of
segments is copied without what is out of date or aborted. Records, or the columns of typed batches,
are decoded about a MiB at a time. A batch stays although it is empty when it is among the last of
its producer, whose sequence it tells, or the first of a leader epoch: a follower learns from it
where the epoch began, and as a leader says where others cut their logs. A marker stays when it
alone tells its producer's epoch. Every batch is checked before it is used; a segment may be deleted
or replaced meanwhile, its bytes stay readable. Source: R-LOG10, KIP-98, KIP-101, KIP-534.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.retained.producer_table import AbortedTransaction
from storage_engine.core.retained.retention import (
    NO_HORIZON,
    CleanedTransactions,
    CompactionRules,
    kept_records,
    new_delete_horizon,
    tombstones_are_due,
)
from storage_engine.core.typed.topic_schema import TopicSchema, UnknownSchemaVersionError
from storage_engine.log.cleaning.compaction_job import CancelledError
from storage_engine.log.cleaning.key_hashes import KeyHasher, KeyHashes, NewestOffsets
from storage_engine.log.files.disk import Disk
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.protocol.records.control_record import read_marker, with_delete_horizon
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    BytesLike,
    crc_matches,
    read_header,
)
from storage_engine.protocol.records.record_filter import (
    OpenBatches,
    StoredBatch,
    emptied,
)
from storage_engine.protocol.records.varints import Ints, Mask, Number
from storage_engine.protocol.typed.damage import damaged_part
from storage_engine.protocol.typed.kept_rows import OpenTypedBatches, decoded_size
from storage_engine.protocol.typed.typed_batch import is_typed

logger = logging.getLogger(__name__)


CHUNK_BYTES = 1 << 20
BATCH_MAX_BYTES = 128 << 20
"""The largest batch that is read: a damaged length must not cost more memory, and no setting allows
larger batches."""


class ClosedSegment(NamedTuple):
    """A closed segment as it was when a compaction pass began."""

    path: Path
    base_offset: int
    next_offset: int
    size: int

    def batches(self, disk: Disk, start_offset: int = 0) -> Iterator[StoredBatch]:
        """Yields every batch that ends at or after `start_offset`; CorruptRecordError names the
        first that is damaged.
        """
        descriptor = disk.open_existing(self.path)
        try:
            yield from self._batches(disk, descriptor, start_offset)
        finally:
            disk.close(descriptor)

    def _batches(self, disk: Disk, descriptor: int, start_offset: int) -> Iterator[StoredBatch]:
        position = 0
        chunk, chunk_start = memoryview(b""), 0
        next_offset = self.base_offset
        while position < self.size:
            at = position - chunk_start
            if len(chunk) - at < HEADER_BYTES:
                chunk, chunk_start, at = self._read(disk, descriptor, position, CHUNK_BYTES)
            header = read_header(chunk, at)
            size = header.size_in_bytes
            if position + size > self.size or size > BATCH_MAX_BYTES:
                raise self._damaged(position, f"it says it has {size} bytes")
            if len(chunk) - at < size:
                chunk, chunk_start, at = self._read(
                    disk, descriptor, position, max(size, CHUNK_BYTES)
                )
            if header.magic != MAGIC:
                raise self._damaged(position, f"it has magic {header.magic}")
            if not crc_matches(chunk, at, size):
                part = damaged_part(header, chunk[at : at + size])
                raise self._damaged(position, f"its CRC does not match{part}")
            if not next_offset <= header.base_offset <= header.last_offset < self.next_offset:
                raise self._damaged(position, f"offset {header.base_offset} does not fit in")
            next_offset = header.next_offset
            if header.last_offset >= start_offset:
                yield StoredBatch(header, chunk[at : at + size])
            position += size

    def _read(
        self, disk: Disk, descriptor: int, position: int, size: int
    ) -> tuple[memoryview, int, int]:
        size = min(size, self.size - position)
        data = disk.pread(descriptor, size, position)
        if len(data) < size:
            raise self._damaged(position, f"the file ends after {position + len(data)} bytes")
        return memoryview(data), position, 0

    def _damaged(self, position: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"the record batch at byte {position} of {self.path} is damaged: {reason}"
        )


GROUP_BYTES = 1 << 20
"""The decompressed bytes of the batches that are decoded in one pass: a pass costs some hundred
microseconds, even for few batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOrder:
    """The input of a pass, fixed when it begins."""

    disk: Disk
    segments: tuple[ClosedSegment, ...]
    """All segments below the first uncleanable offset, clean ones too."""
    first_dirty_offset: int
    rules: CompactionRules
    now_ms: int
    keys_max_bytes: int
    kept_batches: frozenset[int]
    """The last offsets of batches that stay even when they are empty."""
    epoch_starts: frozenset[int]
    """The base offsets of the first batches of leader epochs, which stay so too."""
    kept_markers: frozenset[tuple[int, int]]
    """The (producer id, epoch) of producers of which the log has nothing but a marker."""
    aborted: tuple[AbortedTransaction, ...]
    """All aborted transactions with data in `segments`; their markers may lie behind these."""
    schema: TopicSchema | None = None
    """The schema of a typed topic, which says what the keys of its batches are."""


class OpenedBatches(Protocol):
    """Some batches, with a column per property and a row per record, whatever their format."""

    @property
    def unreadable(self) -> Mapping[int, str]:
        """The reasons why batches have to stay unchanged, by the batches' numbers."""
        ...

    @property
    def has_key(self) -> Mask:
        """Whether each row has a key; to be read after `key_arrays`."""
        ...

    @property
    def is_tombstone(self) -> Mask: ...

    @property
    def offsets(self) -> Ints: ...

    def key_arrays(self) -> Iterable[pa.Array]:
        """Return all keys as binary; null where `has_key` is False."""
        ...

    def __len__(self) -> int: ...

    def per_record(self, per_batch: npt.NDArray[Number]) -> npt.NDArray[Number]: ...

    def per_batch(self, per_record: Mask) -> Ints:
        """Return for how many records of each batch it is true."""
        ...

    def rewritten(self, kept: Mask, horizons: Sequence[int | None]) -> list[BytesLike | None]:
        """Return each batch with its `kept` records only; None for one that keeps none."""
        ...


class Compactor:
    """One pass over one log."""

    def __init__(self, order: PassOrder) -> None:
        self._order = order
        self.is_cancelled = False
        self._hasher = KeyHasher()
        self._newest = NewestOffsets(order.keys_max_bytes)
        self.end_offset = order.first_dirty_offset
        """Exclusive: up to here the pass has the keys, and compacts."""
        self.dropped_records = 0
        self._transactions = CleanedTransactions(order.aborted)

    def prepare(self) -> None:
        """Finds the newest offset of every key from the first dirty offset on, until memory is
        full.
        """
        order = self._order
        transactions = CleanedTransactions(order.aborted)
        for segment in order.segments:
            if segment.next_offset <= order.first_dirty_offset:
                continue
            for batches in _groups(segment.batches(order.disk, order.first_dirty_offset)):
                self._check_cancelled()
                self._learn(
                    [
                        batch
                        for batch in batches
                        if not _is_aborted(transactions, batch) and batch.has_records
                    ]
                )
                self.end_offset = batches[-1].header.next_offset
                if self._newest.is_full:
                    return
            self.end_offset = segment.next_offset

    def _learn(self, batches: list[StoredBatch]) -> None:
        if not batches:
            return
        opened = self._opened(batches)
        hashes = self._hashes(opened)
        has_key = opened.has_key
        if not has_key.all():
            hashes = KeyHashes(hashes.high[has_key], hashes.low[has_key])
        self._newest.add(hashes, opened.offsets[has_key])

    def copy(
        self,
        group: slice,
        write: Callable[[BytesLike], None],
        note_aborted: Callable[[AbortedTransaction], None],
    ) -> bool:
        """Passes the remaining batches of those segments to `write`, and what is left of aborted
        transactions to `note_aborted`; returns True when the batches differ. Called for all
        segments in order.
        """
        changed = False
        for source in self._order.segments[group]:
            for batches in _groups(source.batches(self._order.disk)):
                self._check_cancelled()
                for batch, data in self._cleaned(batches, note_aborted):
                    changed = changed or data is not batch.data
                    if data is not None:
                        write(data)
        return changed

    def _cleaned(
        self, batches: list[StoredBatch], note_aborted: Callable[[AbortedTransaction], None]
    ) -> Iterator[tuple[StoredBatch, BytesLike | None]]:
        """Yields each batch with its replacement; None when it is dropped."""
        judged = [(batch, self._counts(batch, note_aborted)) for batch in batches]
        inside = [
            batch
            for batch, is_live in judged
            if is_live and batch.has_records and batch.header.next_offset <= self.end_offset
        ]
        rewritten = iter(self._filtered(inside)) if inside else iter(())
        for batch, is_live in judged:
            header = batch.header
            if header.next_offset > self.end_offset:
                data: BytesLike | None = batch.data
            elif header.is_control:
                data = self._marker(batch, has_data=is_live)
            else:
                if not is_live:
                    self.dropped_records += header.records_count
                data = next(rewritten) if is_live and header.records_count else None
                if data is None and self._stays(header):
                    data = emptied(header) if header.records_count else batch.data
            yield batch, data

    def _counts(
        self, batch: StoredBatch, note_aborted: Callable[[AbortedTransaction], None]
    ) -> bool:
        """Return for a data batch whether its transaction was not aborted; for a marker whether the
        log has data of its transaction."""
        header = batch.header
        if not header.is_control:
            return not _is_aborted(self._transactions, batch)
        has_data, aborted = self._transactions.note_marker(header.producer_id, header.base_offset)
        if aborted is not None:
            note_aborted(aborted)
        return has_data

    def _stays(self, header: BatchHeader) -> bool:
        order = self._order
        return header.last_offset in order.kept_batches or header.base_offset in order.epoch_starts

    def _marker(self, batch: StoredBatch, *, has_data: bool) -> BytesLike | None:
        header, order = batch.header, self._order
        if (
            has_data
            or self._stays(header)
            or (header.producer_id, header.producer_epoch) in order.kept_markers
            or read_marker(batch.data) is None
        ):
            return batch.data
        horizon = batch.delete_horizon_ms
        if horizon is None:
            return with_delete_horizon(batch.data, new_delete_horizon(order.now_ms, order.rules))
        return None if tombstones_are_due(horizon, order.now_ms) else batch.data

    def _filtered(self, batches: list[StoredBatch]) -> list[BytesLike | None]:
        order = self._order
        opened = self._opened(batches)
        hashes = self._hashes(opened)
        has_key, is_tombstone = opened.has_key, opened.is_tombstone
        horizons = [batch.delete_horizon_ms for batch in batches]
        due = [
            tombstones_are_due(NO_HORIZON if horizon is None else horizon, order.now_ms)
            for horizon in horizons
        ]
        newest = self._newest.newest(hashes)
        newest[~has_key] = -1
        kept = kept_records(
            offsets=opened.offsets,
            newest_offsets=newest,
            is_tombstone=is_tombstone,
            tombstone_is_due=opened.per_record(np.array(due, np.bool_)),
        )
        self.dropped_records += len(opened) - int(np.count_nonzero(kept))
        new_tombstones = opened.per_batch(kept & is_tombstone)
        new_horizon = new_delete_horizon(order.now_ms, order.rules)
        rewritten = opened.rewritten(
            kept,
            [
                new_horizon if horizon is None and new_tombstones[number] else None
                for number, horizon in enumerate(horizons)
            ],
        )
        for reason in opened.unreadable.values():
            logger.warning("compaction leaves a batch as it is: %s", reason)
        return rewritten

    def _hashes(self, opened: OpenedBatches) -> KeyHashes:
        parts = [self._hasher.hash(keys) for keys in opened.key_arrays()]
        if len(parts) == 1:
            return parts[0]
        return KeyHashes(
            np.concatenate([part.high for part in parts]),
            np.concatenate([part.low for part in parts]),
        )

    def _opened(self, batches: list[StoredBatch]) -> OpenedBatches:
        """Open batches of one group, which are all typed or all plain."""
        if not is_typed(batches[0].header):
            return OpenBatches(batches)
        if self._order.schema is None:
            # The topic's settings are still on their way to this broker: a later pass has them.
            raise UnknownSchemaVersionError(
                f"the batch at offset {batches[0].header.base_offset} is typed, and the schema of"
                " its topic is not known here yet"
            )
        return OpenTypedBatches(batches, self._order.schema)

    def _check_cancelled(self) -> None:
        if self.is_cancelled:
            raise CancelledError


def _is_aborted(transactions: CleanedTransactions, batch: StoredBatch) -> bool:
    header = batch.header
    if not header.is_transactional or header.is_control:
        return False
    return transactions.note_data(header.producer_id, header.base_offset)


def closed_segments(segments: Sequence[LogSegment]) -> tuple[ClosedSegment, ...]:
    """Return the segments as a pass reads them."""
    return tuple(
        ClosedSegment(segment.file.path, segment.base_offset, segment.next_offset, segment.size)
        for segment in segments
    )


def _groups(batches: Iterable[StoredBatch]) -> Iterator[list[StoredBatch]]:
    """Yield batches in groups of about GROUP_BYTES, plain ones decompressed. A group has no plain
    records beside typed ones."""
    group: list[StoredBatch] = []
    size = 0
    has_typed: bool | None = None
    """Whether the records of the group are typed; None while it has none."""
    for batch in batches:
        opened, weight = batch, HEADER_BYTES
        if batch.has_records:
            typed = is_typed(batch.header)
            if has_typed is not None and typed is not has_typed:
                yield group
                group, size = [], 0
            has_typed = typed
            if typed:
                weight += decoded_size(batch)
            else:
                opened = batch.decompressed()
                weight += len(opened.records)
        group.append(opened)
        size += weight
        if size >= GROUP_BYTES:
            yield group
            group, size, has_typed = [], 0, None
    if group:
        yield group
