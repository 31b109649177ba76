"""Writes the segment that replaces others, on any thread. Its files are on the medium when it is
done, and removed when it fails.
"""

from typing import NamedTuple

from storage_engine.core.transactions.partition_transactions import AbortedTransaction
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.log_config import MAX_SEGMENT_BYTES
from storage_engine.log.segments.log_file import WRITE_MAX_BYTES
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.swap_files import SwapFiles
from storage_engine.protocol.records.record_batch import BytesLike, read_header

_OPEN_FILES_MAX = 8
"""The limit of a pool of its own, since the broker's pool is not thread-safe."""


class CancelledError(Exception):
    """The log has changed or closes, so that the work is no longer needed."""


class CleanedFacts(NamedTuple):
    """The properties of the new segment that its object in the log needs."""

    size: int
    max_timestamp: int | None
    max_timestamp_offset: int


class CleanedSegment:
    """The files of one replacement while they are written."""

    def __init__(
        self, disk: Disk, files: SwapFiles, *, index_interval_bytes: int, index_max_bytes: int
    ) -> None:
        self._disk = disk
        self._files = files
        self._pending: list[BytesLike] = []
        self._pending_bytes = 0
        segment = LogSegment(
            disk,
            OpenFiles(_OPEN_FILES_MAX),
            files.directory,
            files.base_offset,
            index_interval_bytes=index_interval_bytes,
            index_max_bytes=index_max_bytes,
            created_ms=0,
        )
        segment.file.path = files.cleaned_log
        segment.offset_index.file.path = files.cleaned_index
        segment.time_index.file.path = files.cleaned_time_index
        segment.transaction_index.file.path = files.cleaned_transaction_index
        self._segment = segment

    def create(self) -> None:
        """Makes empty files; removes what an earlier try left."""
        for path in self._files.cleaned():
            self._disk.remove(path)
        self._segment.file.create()

    def write(self, batch: BytesLike) -> None:
        """Adds a batch."""
        self._pending.append(batch)
        self._pending_bytes += len(batch)
        if self._pending_bytes >= WRITE_MAX_BYTES:
            self._write_pending()

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Adds an aborted transaction whose marker is among the batches written."""
        self._segment.transaction_index.append(aborted)

    def finish(self) -> CleanedFacts:
        """Brings everything to the medium except the names."""
        self._write_pending()
        segment = self._segment
        segment.seal()
        segment.close()
        paths = self._files.cleaned()
        if not len(segment.transaction_index):
            # A lost file or seal is noticed later, and nothing else can be lost.
            paths.remove(self._files.cleaned_transaction_index)
        for path in paths:
            descriptor = self._disk.open_existing(path)
            try:
                self._disk.sync(descriptor)
            finally:
                self._disk.close(descriptor)
        return CleanedFacts(segment.size, segment.max_timestamp, segment.max_timestamp_offset)

    def remove(self) -> None:
        """Removes the files."""
        self._segment.close()
        for path in self._files.cleaned():
            self._disk.remove(path)

    def _write_pending(self) -> None:
        segment = self._segment
        if segment.size + self._pending_bytes > MAX_SEGMENT_BYTES:
            # Batches may compress worse than they did, but hardly ever by so much.
            raise OSError(f"{self._files.cleaned_log} would become too large for an index")
        if self._pending:
            segment.write(b"".join(self._pending))
        for batch in self._pending:
            header = read_header(batch)
            segment.note(header.size_in_bytes, header.last_offset, header.max_timestamp)
        self._pending, self._pending_bytes = [], 0
