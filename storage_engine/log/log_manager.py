"""All logs of a broker. Its one rule: a partition has one folder, in one of the data folders, and
one log open on it.

Opening locks the data folders, loads every partition, and recovers it when the last stop was not in
order. New partitions go to the data folder that has the fewest. Source: R-LOG1, R-LOG8, R-CTL4,
R-CTL6.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from storage_engine.core.errors import LogStorageError, StorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background, Clock
from storage_engine.log.checkpoints import (
    CLEANER_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_STARTS_FILE,
    RECOVERY_POINTS_FILE,
    write_offsets,
)
from storage_engine.log.data_folder import DELETED_FOLDER_SUFFIX, DataFolder
from storage_engine.log.disk import REAL_DISK, Disk
from storage_engine.log.log_config import LogConfig
from storage_engine.log.open_files import OpenFiles
from storage_engine.log.partition_log import PartitionLog

PROGRESS_INTERVAL_MS = 2000
"""A recovery that takes longer tells how far it is."""

FILE_NAME_MAX_BYTES = 255

logger = logging.getLogger(__name__)


class LogManager:
    """Invariant: every log in `logs` has its folder in exactly one of the data folders."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        default_config: LogConfig,
        *,
        broker_id: int,
        clock: Clock,
        cluster_id: str | None = None,
        config_of: Callable[[str], LogConfig] | None = None,
        disk: Disk = REAL_DISK,
        background: Background | None = None,
        pool: OpenFiles | None = None,
    ) -> None:
        """Locks and checks the data folders; `load` opens the logs. StorageError when a folder
        can't be used.

        `config_of` gives a topic's settings (default: `default_config` for all). Without
        `background`, long work is done where it is asked for.
        """
        self._clock = clock
        self._disk = disk
        self._background = background
        self._pool = OpenFiles() if pool is None else pool
        self._config_of = config_of or (lambda topic: default_config)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._folder_of: dict[TopicPartition, DataFolder] = {}
        self._folders: list[DataFolder] = []
        try:
            for path in dict.fromkeys(path.absolute() for path in log_dirs):
                self._folders.append(
                    DataFolder(disk, path, broker_id=broker_id, cluster_id=cluster_id)
                )
        except StorageError:
            self._unlock()
            raise
        self.is_new = all(folder.is_new for folder in self._folders)
        """No data folder held anything of a broker before."""
        self.was_clean_shutdown = all(folder.was_clean_shutdown for folder in self._folders)
        """The last stop was in order on every data folder; False for folders that are new."""
        self.same_boot = all(folder.same_boot for folder in self._folders)
        """The machine has run on since the last start, so that the page cache lost nothing; False
        for new folders.
        """
        self.recovered_bytes = 0
        self._loaded = False

    # -- life --------------------------------------------------------------------------------------

    def load(self, cluster_id: str | None = None) -> None:
        """Opens all logs. From here on a stop without `close` is unclean."""
        if cluster_id is not None:
            self.set_cluster_id(cluster_id)
        found = self._find_partitions()
        try:
            for folder in self._folders:
                folder.begin()
                for leftover in folder.deleted_folders():
                    self._remove_later(leftover)
            self._load_logs(found)
        except OSError as error:
            raise StorageError(f"can't load the logs: {error}") from error
        self._loaded = True

    def close(self) -> None:
        """Flushes and closes all logs, writes the checkpoints, marks the stop as clean, unlocks the
        folders. After a `load` that failed or never was, it only lets go.
        """
        if not self._loaded:
            self.abandon()
            return
        self._loaded = False
        failed: LogStorageError | None = None
        for step in (PartitionLog.settle, PartitionLog.close):
            for topic_partition, log in self.logs.items():
                try:
                    step(log)
                except LogStorageError as error:
                    logger.error("log not closed partition=%s error=%s", topic_partition, error)
                    failed = error
        try:
            self.write_recovery_points()
            self.write_log_starts()
            self.write_cleaner_offsets()
            if failed is None:
                for folder in self._folders:
                    folder.mark_clean()
        except OSError as error:
            raise LogStorageError(f"can't write the checkpoints: {error}") from error
        finally:
            self._unlock()
        if failed is not None:
            raise failed

    def abandon(self) -> None:
        """Lets go of files and locks without a flush, as if the process had been killed."""
        self._loaded = False
        for log in self.logs.values():
            log.close_without_flush()
        self._unlock()

    def set_cluster_id(self, cluster_id: str) -> None:
        """Keeps the cluster's id in the data folders; StorageError when they belong to another
        cluster.
        """
        for folder in self._folders:
            folder.set_cluster_id(cluster_id)

    # -- partitions --------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self.logs.get(topic_partition)

    def get_or_create(
        self, topic_partition: TopicPartition, config: LogConfig | None = None
    ) -> PartitionLog:
        """The partition's log; an empty one when there is none."""
        log = self.logs.get(topic_partition)
        if log is None:
            folder = min(self._folders, key=self._count_in)
            self._forget_checkpoints(folder, topic_partition)
            log = self._open(folder, topic_partition, config, clean=True)
            logger.info("log created partition=%s folder=%s", topic_partition, folder.path)
        elif config is not None and config != log.config:
            log.update_config(config)
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Removes the partition from this broker: at once out of sight, the files in the
        background.
        """
        log = self.logs.get(topic_partition)
        if log is None:
            return
        suffix = f".{uuid.uuid4().hex}{DELETED_FOLDER_SUFFIX}"
        name = str(topic_partition)[: FILE_NAME_MAX_BYTES - len(suffix)] + suffix
        target = log.directory.with_name(name)
        try:
            self._disk.rename(log.directory, target)
        except OSError as error:
            # It is still known, so that the next try does not take it for deleted.
            raise LogStorageError(f"can't delete {log.directory}: {error}") from error
        del self.logs[topic_partition]
        del self._folder_of[topic_partition]
        log.close_without_flush()
        self._remove_later(target)
        logger.info("log deleted partition=%s", topic_partition)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """Gives new settings to all logs of a topic."""
        for topic_partition, log in self.logs.items():
            if topic_partition.topic == topic:
                log.update_config(config)

    # -- checkpoints -------------------------------------------------------------------------------

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """That of the checkpoint file as it was at the start, at most the log's end; 0 when there
        is none.
        """
        log = self.logs.get(topic_partition)
        if log is None:
            return 0
        known = self._folder_of[topic_partition].high_watermarks.get(topic_partition, 0)
        return min(known, log.log_end_offset)

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keeps the high watermarks of the logs that are here; OSError when the disk fails."""
        self._write(HIGH_WATERMARKS_FILE, lambda tp, log: offsets.get(tp))

    def write_recovery_points(self) -> None:
        for folder, points in self._write(RECOVERY_POINTS_FILE, lambda tp, log: log.recovery_point):
            folder.recovery_points = points

    def write_log_starts(self) -> None:
        for folder, starts in self._write(
            LOG_STARTS_FILE, lambda tp, log: log.log_start_offset or None
        ):
            folder.log_starts = starts

    def write_cleaner_offsets(self) -> None:
        """Up to where each log was compacted."""
        for folder, offsets in self._write(
            CLEANER_OFFSETS_FILE, lambda tp, log: log.compaction.first_dirty_offset or None
        ):
            folder.cleaner_offsets = offsets

    def _write(
        self, name: str, value_of: Callable[[TopicPartition, PartitionLog], int | None]
    ) -> list[tuple[DataFolder, dict[TopicPartition, int]]]:
        written = []
        for folder in self._folders:
            offsets = {}
            for topic_partition, log in self.logs.items():
                if self._folder_of[topic_partition] is folder:
                    value = value_of(topic_partition, log)
                    if value is not None:
                        offsets[topic_partition] = value
            write_offsets(self._disk, folder.path / name, offsets)
            written.append((folder, offsets))
        return written

    # -- helpers -----------------------------------------------------------------------------------

    def _find_partitions(self) -> list[tuple[DataFolder, TopicPartition]]:
        places: dict[TopicPartition, DataFolder] = {}
        for folder in self._folders:
            for topic_partition in folder.partitions():
                if topic_partition in places:
                    raise StorageError(
                        f"partition {topic_partition} is in two data folders,"
                        f" {places[topic_partition].path} and {folder.path}: move one of them away"
                    )
                places[topic_partition] = folder
        return [(folder, topic_partition) for topic_partition, folder in places.items()]

    def _load_logs(self, found: list[tuple[DataFolder, TopicPartition]]) -> None:
        last_told_ms = self._clock.monotonic_ms()
        for number, (folder, topic_partition) in enumerate(found):
            log = self._open(folder, topic_partition, None, clean=folder.was_clean_shutdown)
            self.recovered_bytes += log.recovered_bytes
            now_ms = self._clock.monotonic_ms()
            if now_ms - last_told_ms >= PROGRESS_INTERVAL_MS:
                last_told_ms = now_ms
                logger.info(
                    "loading logs done=%d of=%d recovered_bytes=%d",
                    number + 1,
                    len(found),
                    self.recovered_bytes,
                )
        logger.info(
            "logs loaded partitions=%d clean=%s recovered_bytes=%d",
            len(found),
            self.was_clean_shutdown,
            self.recovered_bytes,
        )

    def _open(
        self,
        folder: DataFolder,
        topic_partition: TopicPartition,
        config: LogConfig | None,
        *,
        clean: bool,
    ) -> PartitionLog:
        log = PartitionLog.open(
            folder.path / str(topic_partition),
            topic_partition,
            config or self._config_of(topic_partition.topic),
            clock=self._clock,
            log_start_offset=folder.log_starts.get(topic_partition, 0),
            recovery_point=folder.recovery_points.get(topic_partition, 0),
            first_dirty_offset=folder.cleaner_offsets.get(topic_partition, 0),
            clean=clean,
            disk=self._disk,
            pool=self._pool,
            on_recovery_point_lowered=self._write_lowered,
        )
        self.logs[topic_partition] = log
        self._folder_of[topic_partition] = folder
        return log

    def _forget_checkpoints(self, folder: DataFolder, topic_partition: TopicPartition) -> None:
        """A partition made anew must not inherit the offsets of one deleted before, not even after
        a crash.
        """
        if topic_partition in folder.recovery_points:
            self.write_recovery_points()
        if topic_partition in folder.log_starts:
            self.write_log_starts()
        if topic_partition in folder.cleaner_offsets:
            self.write_cleaner_offsets()
        folder.high_watermarks.pop(topic_partition, None)

    def _write_lowered(self) -> None:
        self.write_recovery_points()
        self.write_cleaner_offsets()

    def _count_in(self, folder: DataFolder) -> int:
        return sum(1 for place in self._folder_of.values() if place is folder)

    def _remove_later(self, path: Path) -> None:
        if self._background is None:
            self._disk.remove_tree(path)
            return
        self._background.submit(
            lambda: self._disk.remove_tree(path),
            lambda _: None,
            lambda error: logger.error("folder not removed folder=%s error=%s", path, error),
        )

    def _unlock(self) -> None:
        for folder in self._folders:
            folder.unlock()
