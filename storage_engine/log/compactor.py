"""The work of a compaction pass, on any thread. Its one rule: it reads closed segments and writes
files that nobody knows of yet.

First the newest offset of every dirty key is learned, as far as memory allows; then each group of
segments is copied without what is out of date. Records are decoded about a MiB at a time. A batch
stays although it is empty when it is among the last of its producer, whose sequence it tells;
control batches stay for now. Source: R-LOG10, KIP-98, KIP-534.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storage_engine.core.compaction import (
    NO_HORIZON,
    CompactionRules,
    kept_records,
    new_delete_horizon,
    tombstones_are_due,
)
from storage_engine.log.cleaned_segment import CancelledError
from storage_engine.log.closed_segment import ClosedSegment
from storage_engine.log.disk import Disk
from storage_engine.log.key_hashes import KeyHasher, KeyHashes
from storage_engine.log.log_segment import LogSegment
from storage_engine.log.newest_offsets import NewestOffsets
from storage_engine.protocol.record_batch import HEADER_BYTES, BytesLike
from storage_engine.protocol.record_filter import OpenBatches, StoredBatch, emptied

GROUP_BYTES = 1 << 20
"""Decompressed, of batches decoded in one pass: a pass costs some hundred microseconds however
few they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOrder:
    """What a pass needs to know, fixed when it begins."""

    disk: Disk
    segments: tuple[ClosedSegment, ...]
    """All that lie below the first uncleanable offset, clean ones too."""
    first_dirty_offset: int
    rules: CompactionRules
    now_ms: int
    keys_max_bytes: int
    kept_batches: frozenset[int]
    """Last offsets of batches that stay even when they are empty."""


class Compactor:
    """One pass over one log."""

    def __init__(self, order: PassOrder, is_cancelled: Callable[[], bool]) -> None:
        self._order = order
        self._is_cancelled = is_cancelled
        self._hasher = KeyHasher()
        self._newest = NewestOffsets(order.keys_max_bytes)
        self.end_offset = order.first_dirty_offset
        """Up to here the pass knows all keys, and will have cleaned."""
        self.dropped_records = 0

    def prepare(self) -> None:
        """Finds the newest offset of every key from the first dirty offset on, until memory is
        full.
        """
        order = self._order
        for segment in order.segments:
            if segment.next_offset <= order.first_dirty_offset:
                continue
            for batches in _groups(segment.batches(order.disk, order.first_dirty_offset)):
                self._check_cancelled()
                self._learn([batch for batch in batches if batch.has_records])
                self.end_offset = batches[-1].header.next_offset
                if self._newest.is_full:
                    return
            self.end_offset = segment.next_offset

    def _learn(self, batches: list[StoredBatch]) -> None:
        if not batches:
            return
        opened = OpenBatches(batches)
        has_key = opened.has_key
        hashes = self._hasher.hash(opened.keys)
        if not has_key.all():
            hashes = KeyHashes(hashes.high[has_key], hashes.low[has_key])
        self._newest.add(hashes, opened.offsets[has_key])

    def copy(self, group: slice, write: Callable[[BytesLike], None]) -> bool:
        """Gives what stays of those segments to `write`, batch by batch; whether that differs."""
        changed = False
        for source in self._order.segments[group]:
            for batches in _groups(source.batches(self._order.disk)):
                self._check_cancelled()
                for batch, data in self._cleaned(batches):
                    changed = changed or data is not batch.data
                    if data is not None:
                        write(data)
        return changed

    def _cleaned(
        self, batches: list[StoredBatch]
    ) -> Iterator[tuple[StoredBatch, BytesLike | None]]:
        """Each batch and what becomes of it; None when it goes."""
        inside = [
            batch
            for batch in batches
            if batch.header.next_offset <= self.end_offset and batch.has_records
        ]
        rewritten = iter(self._filtered(inside)) if inside else iter(())
        for batch in batches:
            header = batch.header
            if header.next_offset > self.end_offset or header.is_control:
                yield batch, batch.data
                continue
            data = next(rewritten) if header.records_count else None
            if data is None and header.last_offset in self._order.kept_batches:
                data = emptied(header) if header.records_count else batch.data
            yield batch, data

    def _filtered(self, batches: list[StoredBatch]) -> list[BytesLike | None]:
        order = self._order
        opened = OpenBatches(batches)
        has_key, is_tombstone = opened.has_key, opened.is_tombstone
        horizons = [batch.delete_horizon_ms for batch in batches]
        due = [
            tombstones_are_due(NO_HORIZON if horizon is None else horizon, order.now_ms)
            for horizon in horizons
        ]
        newest = self._newest.newest(self._hasher.hash(opened.keys))
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
        return opened.rewritten(
            kept,
            [
                new_horizon if horizon is None and new_tombstones[number] else None
                for number, horizon in enumerate(horizons)
            ],
        )

    def _check_cancelled(self) -> None:
        if self._is_cancelled():
            raise CancelledError


def closed_segments(segments: Sequence[LogSegment]) -> tuple[ClosedSegment, ...]:
    """What a pass needs to know of them."""
    return tuple(
        ClosedSegment(segment.file.path, segment.base_offset, segment.next_offset, segment.size)
        for segment in segments
    )


def _groups(batches: Iterable[StoredBatch]) -> Iterator[list[StoredBatch]]:
    """Decompressed, until they have GROUP_BYTES."""
    group: list[StoredBatch] = []
    size = 0
    for batch in batches:
        opened = batch.decompressed() if batch.has_records else batch
        group.append(opened)
        size += len(opened.records) + HEADER_BYTES
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
