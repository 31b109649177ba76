"""Opens the logs of partitions in the log dirs of a broker. The offsets of a log come from the
checkpoint files of its log dir, or from the log that it replaces.

Source: R-LOG8.
"""

from collections.abc import Callable
from pathlib import Path

from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.log.dirs.dir_checkpoints import CheckpointsOfLog, DirCheckpoints
from storage_engine.log.dirs.log_dir import BrokerLogDir
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.recovery.log_loader import LogStart
from storage_engine.log.recovery.recovery_progress import RecoveryProgress
from storage_engine.log.segments.log_folder import LogFolder


class LogOpener:
    """Opens logs in all log dirs of one broker."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        pool: OpenFiles,
        checkpoints: DirCheckpoints,
        config_of: Callable[[str], LogConfig],
    ) -> None:
        """`config_of` gives a topic's settings."""
        self._config_of = config_of
        self._disk = disk
        self._clock = clock
        self._pool = pool
        self._checkpoints = checkpoints

    def open(
        self,
        log_dir: BrokerLogDir,
        topic_partition: TopicPartition,
        config: LogConfig | None = None,
        *,
        clean: bool,
        progress: RecoveryProgress | None = None,
    ) -> PartitionLog:
        """Open the partition's log in that log dir, as its checkpoint files describe it. Without
        `config` it has the settings of its topic."""
        recovery_point = log_dir.recovery_points.get(topic_partition, 0)
        start = LogStart(
            log_start_offset=log_dir.log_starts.get(topic_partition, 0),
            recovery_point=recovery_point,
            first_dirty_offset=log_dir.cleaner_offsets.get(
                topic_partition, log_dir.least_cleaner_offset
            ),
            clean=clean,
            is_cached=log_dir.is_cached,
            no_gap_above=recovery_point if log_dir.gaps_prove_crash else None,
        )
        return PartitionLog(
            self._log_folder(
                log_dir.path / str(topic_partition),
                config or self._config_of(topic_partition.topic),
            ),
            topic_partition,
            start,
            clock=self._clock,
            room=log_dir.room,
            checkpoints=CheckpointsOfLog(self._checkpoints, log_dir, topic_partition),
            progress=progress,
        )

    def open_copy(
        self,
        path: Path,
        log_dir: BrokerLogDir,
        like: PartitionLog,
        *,
        log_start_offset: int,
        recovery_point: int,
        grows: bool,
    ) -> PartitionLog:
        """Open a log in `path`, in that log dir, that is or becomes the same as another.

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
            room=log_dir.room,
            checkpoints=CheckpointsOfLog(
                self._checkpoints, log_dir, like.topic_partition, has_entry=not grows
            ),
        )

    def _log_folder(self, path: Path, config: LogConfig) -> LogFolder:
        return LogFolder(disk=self._disk, pool=self._pool, path=path, config=config)
