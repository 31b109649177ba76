"""Opens the logs of partitions in the data folders of a broker. Its one rule: what a log needs to
know of its past comes from the checkpoint files of its folder, or from the log that it replaces.

Source: R-LOG8.
"""

from pathlib import Path

from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.folders.data_folder import DataFolder
from storage_engine.log.folders.folder_checkpoints import CheckpointsOfLog, FolderCheckpoints
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.recovery.log_loader import LogStart
from storage_engine.log.recovery.recovery_progress import RecoveryProgress
from storage_engine.log.segments.log_folder import LogFolder


class LogOpener:
    """For all data folders of one broker."""

    def __init__(
        self, disk: Disk, clock: Clock, pool: OpenFiles, checkpoints: FolderCheckpoints
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._pool = pool
        self._checkpoints = checkpoints

    def open(
        self,
        folder: DataFolder,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        clean: bool,
        progress: RecoveryProgress | None = None,
    ) -> PartitionLog:
        """The partition's log in that folder, as its checkpoint files describe it."""
        recovery_point = folder.recovery_points.get(topic_partition, 0)
        start = LogStart(
            log_start_offset=folder.log_starts.get(topic_partition, 0),
            recovery_point=recovery_point,
            first_dirty_offset=folder.cleaner_offsets.get(
                topic_partition, folder.least_cleaner_offset
            ),
            clean=clean,
            no_gap_above=recovery_point if folder.tells_gaps else None,
        )
        return PartitionLog(
            self._log_folder(folder.path / str(topic_partition), config),
            topic_partition,
            start,
            clock=self._clock,
            room=folder.room,
            checkpoints=CheckpointsOfLog(self._checkpoints, folder, topic_partition),
            progress=progress,
        )

    def open_copy(
        self,
        path: Path,
        folder: DataFolder,
        like: PartitionLog,
        *,
        log_start_offset: int,
        recovery_point: int,
        grows: bool,
    ) -> PartitionLog:
        """A log in `path`, in that folder, that is or becomes the same as another.

        `grows`: it is not the partition's log yet, and the checkpoint files do not have its
        offsets.
        """
        start = LogStart(
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            first_dirty_offset=like.cleaning.first_dirty_offset,
            clean=True,
        )
        return PartitionLog(
            self._log_folder(path, like.config),
            like.topic_partition,
            start,
            clock=self._clock,
            room=folder.room,
            checkpoints=CheckpointsOfLog(
                self._checkpoints, folder, like.topic_partition, has_entry=not grows
            ),
        )

    def _log_folder(self, path: Path, config: LogConfig) -> LogFolder:
        return LogFolder(disk=self._disk, pool=self._pool, path=path, config=config)
