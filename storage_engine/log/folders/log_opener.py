"""Opens the logs of partitions in the data folders of a broker. Its one rule: what a log needs to
know of its past comes from the checkpoint files of its folder, or from the log that it replaces.

Source: R-LOG8.
"""

from collections.abc import Callable
from pathlib import Path

from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.folders.data_folder import DataFolder
from storage_engine.log.folders.folder_checkpoints import FolderCheckpoints
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog


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
        on_checked: Callable[[int], None],
    ) -> PartitionLog:
        """The partition's log in that folder; see `PartitionLog.open`."""
        return PartitionLog.open(
            folder.path / str(topic_partition),
            topic_partition,
            config,
            clock=self._clock,
            log_start_offset=folder.log_starts.get(topic_partition, 0),
            recovery_point=folder.recovery_points.get(topic_partition, 0),
            first_dirty_offset=folder.cleaner_offsets.get(
                topic_partition, folder.least_cleaner_offset
            ),
            clean=clean,
            disk=self._disk,
            pool=self._pool,
            room=folder.room,
            on_recovery_point_lowered=lambda: self._checkpoints.write_lowered(folder),
            saved_recovery_point=lambda: folder.recovery_points.get(topic_partition, 0),
            no_gap_above=(
                folder.recovery_points.get(topic_partition, 0) if folder.tells_gaps else None
            ),
            on_checked=on_checked,
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

        `grows`: it is not the partition's log yet, and the checkpoint files do not tell of it.
        """
        tp = like.topic_partition
        return PartitionLog.open(
            path,
            tp,
            like.config,
            clock=self._clock,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            first_dirty_offset=like.compaction.first_dirty_offset,
            clean=True,
            disk=self._disk,
            pool=self._pool,
            room=folder.room,
            on_recovery_point_lowered=lambda: self._checkpoints.write_lowered(folder),
            saved_recovery_point=None if grows else lambda: folder.recovery_points.get(tp, 0),
        )
