"""One partition's log while a backup copies it: what earlier backups have, and what is new."""

from dataclasses import dataclass, field
from uuid import UUID

from storage_engine.backup.batch_files import BatchFiles
from storage_engine.backup.manifest import BatchFile, LastBatch, PartitionBackup
from storage_engine.backup.store import BackupStore
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import BatchHeader

TAIL_SUFFIX = ".tail"
BODY_SUFFIX = ".log"


@dataclass(slots=True)
class LogCopy:
    """The copy of a log. It goes on behind an earlier backup only after the batch at its end was
    found in the log as it was. Else the log has been cut, or compacted there, and is copied anew.
    """

    tp: TopicPartition
    topic_id: UUID
    store: BackupStore
    suffix: str
    """The end of the names of new files."""
    start: int = 0
    position: int = 0
    """The end of what is copied."""
    last: LastBatch | None = None
    epoch: int = -1
    files: list[BatchFile] = field(default_factory=list)
    is_proven: bool = True
    """Whether the log is still the one that `files` hold."""
    new: BatchFiles | None = None
    end_offset: int = 0
    tail: BatchFile | None = None

    @property
    def folder(self) -> str:
        return f"data/{self.tp.topic}.{self.topic_id.hex}/{self.tp.partition}"

    def go_on_behind(self, before: PartitionBackup) -> None:
        """Copy only what the earlier backup has not."""
        self.files = list(before.files)
        self.position, self.last, self.epoch = before.body_end, before.last, before.leader_epoch
        self.is_proven = before.last is None

    def log_starts_at(self, start: int) -> None:
        """Note where the log begins. Files below it are left out."""
        self.start = start
        if not self.is_proven and self.last is not None and start > self.last.base_offset:
            self.begin_anew()
        if start > self.position:
            self.position = start
        self.files = [each for each in self.files if each.end_offset > start]

    def begin_anew(self) -> None:
        """Forget what is copied: the log has changed."""
        self.abandon()
        self.files, self.last, self.position, self.is_proven = [], None, self.start, True

    def wanted(self, end: int) -> tuple[int, int] | None:
        """The range to read up to `end`; None where nothing is missing."""
        if self.position > end:
            self.begin_anew()
        if not self.is_proven:
            assert self.last is not None
            return self.last.base_offset, end
        return (self.position, end) if self.position < end else None

    def take(self, header: BatchHeader, batch: memoryview) -> bool:
        """Copy a batch, or compare it with the one at the end of the copy; False where the log has
        changed, and must be read anew."""
        if not self.is_proven:
            found = LastBatch(
                base_offset=header.base_offset,
                crc=header.crc,
                leader_epoch=header.partition_leader_epoch,
            )
            if found != self.last:
                self.begin_anew()
                return False
            self.is_proven = True
            return True
        if header.next_offset <= self.position:
            return True
        if self.new is None:
            self.new = BatchFiles(self.store, self.folder, suffix=self.suffix + BODY_SUFFIX)
        self.new.append(header, batch)
        self.epoch = max(self.epoch, header.partition_leader_epoch)
        return True

    def copied_to(self, end: int) -> bool:
        """End a pass: all below `end` is copied. False where the log must be read anew."""
        if not self.is_proven:
            self.begin_anew()
            return False
        if self.new is not None:
            self.new.end_file()
            self.files += self.new.files
            self.last = self.new.last
            self.new = None
        self.position = max(self.position, end)
        return True

    def abandon(self) -> None:
        if self.new is not None:
            self.new.abandon()
            self.new = None

    def backup(self) -> PartitionBackup:
        return PartitionBackup(
            partition=self.tp.partition,
            leader_epoch=self.epoch,
            start_offset=self.start,
            body_end=self.position,
            end_offset=max(self.end_offset, self.position),
            last=self.last,
            files=tuple(self.files),
            tail=self.tail,
        )
