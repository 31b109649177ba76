"""The leader epochs of a log and their file. The file has every epoch below the recovery point.

Above it recovery learns the epochs from the batches that it checks, after a killed process as after
a crash of the machine. So neither an election nor its first batch writes a file: a failover of a
thousand partitions would write a thousand of them, on each broker. Source: KIP-101; R-REP8.
"""

from contextlib import suppress
from pathlib import Path

from storage_engine.core.errors import ErrorCode, KafkaError, LogBusyError
from storage_engine.core.replication.leader_epochs import EpochStart, LeaderEpochCache
from storage_engine.log.files.checkpoints import LEADER_EPOCHS_FILE, write_epochs
from storage_engine.log.files.storage_errors import storage_errors
from storage_engine.log.segments.log_folder import LogFolder
from storage_engine.protocol.records.record_batch import BatchHeader


class LeaderEpochCheckpoint:
    """Changes `cache`, and the file with it."""

    __slots__ = ("_disk", "_folder", "cache", "unsaved", "unsynced")

    def __init__(self, folder: LogFolder, cache: LeaderEpochCache) -> None:
        self._disk = folder.disk
        self._folder = folder.path
        self.cache = cache
        self.unsaved = False
        """True when the file differs from the cache: `save` before the recovery point rises."""
        self.unsynced = True
        """True when the file's content may not be on the medium."""

    @property
    def path(self) -> Path:
        return self._folder / LEADER_EPOCHS_FILE

    def start_epoch(self, epoch: int, start_offset: int) -> None:
        """Records that a leader of `epoch` will write from `start_offset` on."""
        latest = self.cache.latest_epoch
        if epoch < latest:
            raise KafkaError(
                f"leader epoch {epoch} is older than epoch {latest} in {self.path.parent}",
                ErrorCode.FENCED_LEADER_EPOCH,
            )
        if self.cache.assign(epoch, start_offset):
            self.unsaved = True

    def replace(self, entries: tuple[EpochStart, ...]) -> None:
        """Takes the epochs of another log with the same records."""
        if entries != self.cache.entries:
            self.cache.clear()
            for epoch, start_offset in entries:
                self.cache.assign(epoch, start_offset)
            self.unsaved = True

    def folder_is_renamed(self, path: Path) -> None:
        self._folder = path

    def save(self) -> None:
        """Writes the cache to the file."""
        if self.unsaved:
            self._save()

    def note_batches(self, batches: list[tuple[int, BatchHeader]]) -> None:
        """Records batches that a follower is about to append, with the epochs of their leaders."""
        cache = self.cache
        for _, header in batches:
            epoch = header.partition_leader_epoch
            if epoch >= 0 and epoch != cache.latest_epoch:
                self.unsaved |= cache.assign(epoch, header.base_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        if self.cache.truncate_from_end(end_offset):
            self._save_if_it_can_be()

    def truncate_from_start(self, start_offset: int) -> None:
        if self.cache.truncate_from_start(start_offset):
            self._save_if_it_can_be()

    def _save_if_it_can_be(self) -> None:
        """Saves epochs outside the log, which opening the log would find out as well; an error is
        ignored."""
        with suppress(LogBusyError):
            self._save()

    def _save(self) -> None:
        self.unsynced = self.unsaved = True
        with storage_errors("write", self.path, unchanged=True):
            write_epochs(self._disk, self.path, self.cache.entries)
        self.unsaved = False
