"""One segment of a log: a `.log` file of record batches and its indexes. Only whole batches count.

    <base offset>.log        record batches as they came, one after the other, no padding
    <base offset>.index      see offset_index
    <base offset>.timeindex  see time_index
    <base offset>.txnindex   see transaction_index
    <base offset>.snapshot   the producers at `base offset`, see producer_snapshots

The base offset in the names has 20 digits. Whatever lies beyond `size` in the `.log` file is not
part of the segment. Source: R-LOG1.
"""

import re
from functools import lru_cache
from pathlib import Path

from storage_engine.log.files.disk import Buffer, Disk
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.segments.index_file import IndexFile
from storage_engine.log.segments.indexed_batches import NO_TIMESTAMP, IndexedBatches
from storage_engine.log.segments.log_file import LogFile
from storage_engine.log.segments.offset_index import OffsetIndex
from storage_engine.log.segments.time_index import TimeIndex
from storage_engine.log.segments.transaction_index import TransactionIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
DELETED_SUFFIX = ".deleted"

_OFFSET_STEM = re.compile("[0-9]{20}")


@lru_cache(64)  # Thousands of logs begin at offset 0: they share the names.
def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def offset_in_name(name: str, suffix: str) -> int | None:
    """Return the offset in a file name, the inverse of `file_name`; None for any other name."""
    stem = name.removesuffix(suffix)
    return int(stem) if name.endswith(suffix) and _OFFSET_STEM.fullmatch(stem) else None


class LogSegment(IndexedBatches):
    """The files of a run of offsets, and the batches in them."""

    __slots__ = ("created_ms", "cuts", "directory", "transaction_index", "wrote_ms")

    def __init__(
        self,
        disk: Disk,
        pool: OpenFiles,
        directory: Path,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_max_bytes: int,
        created_ms: int,
        size: int = 0,
    ) -> None:
        super().__init__(
            disk,
            LogFile(disk, pool, directory / file_name(base_offset, LOG_SUFFIX)),
            OffsetIndex(
                disk,
                pool,
                directory / file_name(base_offset, INDEX_SUFFIX),
                base_offset,
                index_max_bytes,
            ),
            TimeIndex(
                disk,
                pool,
                directory / file_name(base_offset, TIME_INDEX_SUFFIX),
                base_offset,
                index_max_bytes,
            ),
            base_offset=base_offset,
            index_interval_bytes=index_interval_bytes,
            size=size,
        )
        self.directory = directory
        self.created_ms = created_ms
        self.wrote_ms: int | None = None
        """The time of this process's last write."""
        self.cuts = 0
        """The number of truncations so far, each of which makes earlier slices invalid."""
        self.transaction_index = TransactionIndex(
            disk, pool, directory / file_name(base_offset, TRANSACTION_INDEX_SUFFIX)
        )

    def write(self, *pieces: Buffer) -> None:
        """Appends whole batches to the file; they count once `note` was called for each.

        After a failure the file is cut back, and LogStorageError raised.
        """
        self.file.append(pieces, self.size)

    def seal(self) -> None:
        """Writes the indexes to their files, and marks them as complete."""
        self.seal_sparse_indexes()
        self.transaction_index.seal()

    def view(self, position: int, size: int) -> memoryview:
        """Return the bytes, copied when they are few, else mapped."""
        return self.file.view(position, size, self.size)

    def read_bytes(self, position: int, size: int) -> bytes:
        return self.file.read(position, size, self.size)

    def written_ms(self) -> int:
        """Return when it was last written to, by this or an earlier process."""
        if self.wrote_ms is None:
            self.wrote_ms = self._disk.modified_ms(self.file.path)
        return self.wrote_ms

    def time_of_first_batch(self) -> int:
        """Return the timestamp of the first batch; NO_TIMESTAMP while the segment is empty."""
        if self.first_timestamp is None:
            for _, header in self.scan():
                self.first_timestamp = header.max_timestamp
                break
            else:
                return NO_TIMESTAMP
        return self.first_timestamp

    def truncate(self, position: int, next_offset: int) -> None:
        """Cuts the file at the end of a batch."""
        self.cuts += 1
        self.file.truncate(position)
        self.offset_index.truncate_to(position)
        self.time_index.truncate_to(next_offset)
        self.transaction_index.truncate_to(next_offset)
        self.size = position
        self.next_offset = max(self.base_offset, next_offset)
        self._bytes_since_index = 0
        self._indexed_timestamp = NO_TIMESTAMP
        self.indexes_full = False
        if position == 0:
            self.first_timestamp = None
        if self.max_timestamp is None or self.max_timestamp_offset >= self.next_offset:
            self._reload_max_timestamp()

    def close(self) -> None:
        """Closes what is open; the segment opens it again when used."""
        self.offset_index.file.close()
        self.time_index.file.close()
        self.transaction_index.file.close()
        self.file.close()

    def paths(self) -> list[Path]:
        """The log first, the transaction index last."""
        return [self.file.path, *(index.path for index in self._index_files())]

    def folder_is_renamed(self, path: Path) -> None:
        """Records the folder's new path. The files keep their names, and open files stay open."""
        self.directory = path
        for holder in (self.file, *self._index_files()):
            holder.path = path / holder.path.name

    def _index_files(self) -> tuple[IndexFile, IndexFile, IndexFile]:
        return self.offset_index.file, self.time_index.file, self.transaction_index.file

    def mark_deleted(self, number: int) -> list[Path]:
        """Renames the files; readers that have a slice continue. Returns the new paths.

        `number` distinguishes deleted segments of the same base offset.
        """
        renamed = []
        for holder in (self.file, *self._index_files()):
            target = holder.path.with_name(f"{holder.path.name}.{number}{DELETED_SUFFIX}")
            if self._disk.exists(holder.path):
                self._disk.rename(holder.path, target)
                renamed.append(target)
            holder.path = target
        return renamed
