"""Writes the batches of one partition into files of the store."""

from storage_engine.backup.manifest import BatchFile, LastBatch
from storage_engine.backup.store import BackupStore, FileWriter
from storage_engine.protocol.records.record_batch import BatchHeader

FILE_BYTES = 256 << 20
"""About how large a file becomes: restoring and deleting go file by file."""


class BatchFiles:
    """New files of one partition, in the order of its offsets."""

    def __init__(
        self, store: BackupStore, folder: str, *, suffix: str, file_bytes: int = FILE_BYTES
    ) -> None:
        """`suffix`: of the files' names, unique to this backup."""
        self._store = store
        self._folder = folder
        self._suffix = suffix
        self._file_bytes = file_bytes
        self._writer: FileWriter | None = None
        self._base_offset = 0
        self.files: list[BatchFile] = []
        self.last: LastBatch | None = None
        self.next_offset = 0
        """The offset behind the last batch."""

    def append(self, header: BatchHeader, batch: memoryview) -> None:
        if self._writer is not None and self._writer.size >= self._file_bytes:
            self.end_file()
        if self._writer is None:
            name = f"{self._folder}/{header.base_offset:020d}{self._suffix}"
            self._writer = self._store.writer(name)
            self._base_offset = header.base_offset
        self._writer.write(batch)
        self.next_offset = header.next_offset
        self.last = LastBatch(
            base_offset=header.base_offset,
            crc=header.crc,
            leader_epoch=header.partition_leader_epoch,
        )

    def end_file(self) -> None:
        """Close the present file: from here on it counts."""
        if self._writer is None:
            return
        stored = self._writer.close()
        self._writer = None
        self.files.append(
            BatchFile(
                name=stored.name,
                size=stored.size,
                crc=stored.crc,
                base_offset=self._base_offset,
                end_offset=self.next_offset,
            )
        )

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
