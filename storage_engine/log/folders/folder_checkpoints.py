"""The checkpoint files of a broker's data folders, as its logs are now. Their one rule: a folder's
file tells of the logs in that folder, and is replaced as a whole.

Source: R-LOG8, R-LOG10, R-REP10; the files are drawn in `checkpoints`.
"""

from collections.abc import Callable, Mapping

from storage_engine.core.ids import TopicPartition
from storage_engine.log.files.checkpoints import (
    CLEANER_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_STARTS_FILE,
    RECOVERY_POINTS_FILE,
    SCRUB_TIMES_FILE,
    write_offsets,
)
from storage_engine.log.files.disk import Disk
from storage_engine.log.folders.data_folder import DataFolder
from storage_engine.log.partition_log import PartitionLog


class FolderCheckpoints:
    """Writes them, one folder at a time; an OSError is the caller's."""

    def __init__(
        self,
        disk: Disk,
        logs: Mapping[TopicPartition, PartitionLog],
        folder_of: Mapping[TopicPartition, DataFolder],
    ) -> None:
        """`logs`, `folder_of`: as they are at any time; not copied."""
        self._disk = disk
        self._logs = logs
        self._folder_of = folder_of
        self.incoming: dict[TopicPartition, tuple[PartitionLog, DataFolder]] = {}
        """Logs that are, or at the next start may be, those of another folder than `folder_of`
        says."""

    def write_high_watermarks(
        self, folder: DataFolder, offsets: Mapping[TopicPartition, int]
    ) -> None:
        self._write(folder, HIGH_WATERMARKS_FILE, lambda tp, log: offsets.get(tp))

    def write_recovery_points(self, folder: DataFolder) -> None:
        folder.recovery_points = self._write(
            folder, RECOVERY_POINTS_FILE, lambda tp, log: log.recovery_point
        )

    def write_log_starts(self, folder: DataFolder) -> None:
        folder.log_starts = self._write(
            folder, LOG_STARTS_FILE, lambda tp, log: log.log_start_offset or None
        )

    def write_cleaner_offsets(self, folder: DataFolder) -> None:
        """Up to where each log was compacted."""
        folder.cleaner_offsets = self._write(
            folder, CLEANER_OFFSETS_FILE, lambda tp, log: log.cleaning.first_dirty_offset or None
        )

    def write_scrub_times(self, folder: DataFolder) -> None:
        """When the older segments of each log were last gone through."""
        folder.scrub_times = self._write(
            folder, SCRUB_TIMES_FILE, lambda tp, log: log.scrubbed_ms or None
        )

    def write_lowered(self, folder: DataFolder) -> None:
        """Whatever a cut of a log brings down."""
        self.write_recovery_points(folder)
        self.write_log_starts(folder)
        self.write_cleaner_offsets(folder)

    def lower_recovery_points(self, folder: DataFolder) -> None:
        """A log that was found to end below its recovery point may grow past it again: what is new
        there must not count as flushed after a crash."""
        points = folder.recovery_points
        if any(
            log.recovery_point < points.get(topic_partition, 0)
            for topic_partition, log in self._logs.items()
            if self._folder_of[topic_partition] is folder
        ):
            self.write_lowered(folder)

    def forget(self, folder: DataFolder, topic_partition: TopicPartition) -> None:
        """A partition made anew must not inherit the offsets of one deleted before, not even after
        a crash.
        """
        if topic_partition in folder.recovery_points:
            self.write_recovery_points(folder)
        if topic_partition in folder.log_starts:
            self.write_log_starts(folder)
        if topic_partition in folder.cleaner_offsets:
            self.write_cleaner_offsets(folder)
        folder.high_watermarks.pop(topic_partition, None)

    def _write(
        self,
        folder: DataFolder,
        name: str,
        value_of: Callable[[TopicPartition, PartitionLog], int | None],
    ) -> dict[TopicPartition, int]:
        offsets = {}
        for topic_partition, log in self._logs.items():
            if self._folder_of[topic_partition] is folder:
                value = value_of(topic_partition, log)
                if value is not None:
                    offsets[topic_partition] = value
        for topic_partition, (log, target) in self.incoming.items():
            value = value_of(topic_partition, log) if target is folder else None
            if value is not None:
                offsets[topic_partition] = value
        write_offsets(self._disk, folder.path / name, offsets)
        return offsets


class CheckpointsOfLog:
    """Implements `LogCheckpoints` for one log in a data folder."""

    __slots__ = ("_checkpoints", "_folder", "_has_entry", "_topic_partition")

    def __init__(
        self,
        checkpoints: FolderCheckpoints,
        folder: DataFolder,
        topic_partition: TopicPartition,
        *,
        has_entry: bool = True,
    ) -> None:
        """`has_entry` False: the files do not have the offsets of this log."""
        self._checkpoints = checkpoints
        self._folder = folder
        self._topic_partition = topic_partition
        self._has_entry = has_entry

    def write(self) -> None:
        self._checkpoints.write_lowered(self._folder)

    def saved_recovery_point(self) -> int | None:
        if not self._has_entry:
            return None
        return self._folder.recovery_points.get(self._topic_partition, 0)
