"""Reads the batches of a closed segment on any thread, through a descriptor of its own. Every batch
is checked before it is returned.

The segment may be deleted or replaced meanwhile; its bytes stay readable through the descriptor.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from storage_engine.core.errors import CorruptRecordError
from storage_engine.log.files.disk import Disk
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    MAGIC,
    crc_matches,
    read_header,
)
from storage_engine.protocol.records.record_filter import StoredBatch
from storage_engine.protocol.typed.damage import damaged_part

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
