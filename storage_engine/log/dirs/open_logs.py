"""The open logs of a broker, and what they need: their checkpoint files, and their folders.

The checkpoint files of a log dir have the offsets of the logs in it, and are replaced as a whole.
Source: R-LOG8, R-LOG10, R-REP10; the files are drawn in `checkpoints`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background, Clock
from storage_engine.log.dirs.log_dir import BrokerLogDir
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.segment_files import OpenFiles
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.recovery.log_loader import LogStart
from storage_engine.log.recovery.recovery import RecoveryProgress
from storage_engine.log.segments.segment_list import LogFolder
from storage_engine.log.state.checkpoints import (
    CLEANER_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_STARTS_FILE,
    RECOVERY_POINTS_FILE,
    SCRUB_TIMES_FILE,
    write_offsets,
)

logger = logging.getLogger(__name__)


class OpenLogs:
    """Invariant: `logs` and `dir_of` have the same keys, and each log has its folder in its log
    dir. The methods that write checkpoint files raise OSError."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        config_of: Callable[[str], LogConfig],
        background: Background | None,
    ) -> None:
        """`config_of` gives a topic's settings. Without `background` folders are removed at
        once."""
        self.disk = disk
        self.clock = clock
        self._config_of = config_of
        self._background = background
        self._pool = OpenFiles()
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.dir_of: dict[TopicPartition, BrokerLogDir] = {}
        self.counts: Counter[Path] = Counter()
        """The number of logs in each log dir; kept, since each new log asks for it."""
        self.incoming: dict[TopicPartition, tuple[PartitionLog, BrokerLogDir]] = {}
        """Logs that are, or at the next start may be, in another log dir than `dir_of` has."""
        self._not_removed: list[Path] = []

    def put(self, log: PartitionLog, log_dir: BrokerLogDir) -> None:
        """Replaces the log of the partition if there is one."""
        before = self.dir_of.get(log.topic_partition)
        if before is not None:
            self.counts[before.path] -= 1
        self.logs[log.topic_partition] = log
        self.dir_of[log.topic_partition] = log_dir
        self.counts[log_dir.path] += 1

    def remove(self, topic_partition: TopicPartition) -> PartitionLog:
        self.counts[self.dir_of.pop(topic_partition).path] -= 1
        return self.logs.pop(topic_partition)

    def of_dir(self, log_dir: BrokerLogDir) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        for topic_partition, log in self.logs.items():
            if self.dir_of[topic_partition] is log_dir:
                yield topic_partition, log

    def write_high_watermarks(
        self, log_dir: BrokerLogDir, offsets: Mapping[TopicPartition, int]
    ) -> None:
        self._write(log_dir, HIGH_WATERMARKS_FILE, lambda tp, log: offsets.get(tp))

    def write_recovery_points(self, log_dir: BrokerLogDir) -> None:
        log_dir.recovery_points = self._write(
            log_dir, RECOVERY_POINTS_FILE, lambda tp, log: log.recovery_point
        )

    def write_log_starts(self, log_dir: BrokerLogDir) -> None:
        log_dir.log_starts = self._write(
            log_dir, LOG_STARTS_FILE, lambda tp, log: log.log_start_offset or None
        )

    def write_cleaner_offsets(self, log_dir: BrokerLogDir) -> None:
        """Writes up to where each log was compacted."""
        log_dir.cleaner_offsets = self._write(
            log_dir, CLEANER_OFFSETS_FILE, lambda tp, log: log.cleaning.first_dirty_offset or None
        )

    def write_scrub_times(self, log_dir: BrokerLogDir) -> None:
        """Writes when the older segments of each log were last scrubbed."""
        log_dir.scrub_times = self._write(
            log_dir, SCRUB_TIMES_FILE, lambda tp, log: log.scrubbed_ms or None
        )

    def write_lowered(self, log_dir: BrokerLogDir) -> None:
        """Writes all offsets that a cut of a log lowers."""
        self.write_recovery_points(log_dir)
        self.write_log_starts(log_dir)
        self.write_cleaner_offsets(log_dir)

    def lower_recovery_points(self, log_dir: BrokerLogDir) -> None:
        """Lowers the recovery point of a log that was found to end below it: the log may grow past
        it again, and its new records must not count as flushed after a crash."""
        points = log_dir.recovery_points
        if any(
            log.recovery_point < points.get(topic_partition, 0)
            for topic_partition, log in self.of_dir(log_dir)
        ):
            self.write_lowered(log_dir)

    def forget(self, log_dir: BrokerLogDir, topic_partition: TopicPartition) -> None:
        """Removes a partition's offsets, so that a partition of the same name does not inherit
        them, not even after a crash.
        """
        if topic_partition in log_dir.recovery_points:
            self.write_recovery_points(log_dir)
        if topic_partition in log_dir.log_starts:
            self.write_log_starts(log_dir)
        if topic_partition in log_dir.cleaner_offsets:
            self.write_cleaner_offsets(log_dir)
        log_dir.high_watermarks.pop(topic_partition, None)

    def _write(
        self,
        log_dir: BrokerLogDir,
        name: str,
        value_of: Callable[[TopicPartition, PartitionLog], int | None],
    ) -> dict[TopicPartition, int]:
        offsets = {}
        for topic_partition, log in self.of_dir(log_dir):
            value = value_of(topic_partition, log)
            if value is not None:
                offsets[topic_partition] = value
        for topic_partition, (log, target) in self.incoming.items():
            value = value_of(topic_partition, log) if target is log_dir else None
            if value is not None:
                offsets[topic_partition] = value
        write_offsets(self.disk, log_dir.path / name, offsets)
        return offsets

    def open(
        self,
        log_dir: BrokerLogDir,
        topic_partition: TopicPartition,
        config: LogConfig | None = None,
        *,
        clean: bool,
        progress: RecoveryProgress | None = None,
    ) -> PartitionLog:
        """Opens the partition's log in that log dir, as its checkpoint files describe it. Without
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
        path = log_dir.path / str(topic_partition)
        config = config or self._config_of(topic_partition.topic)
        return self._opened(path, log_dir, topic_partition, config, start, progress=progress)

    def open_copy(
        self,
        path: Path,
        log_dir: BrokerLogDir,
        like: PartitionLog,
        *,
        recovery_point: int,
        grows: bool,
    ) -> PartitionLog:
        """Opens a log in `path`, in that log dir, that is or becomes the same as another.

        `grows`: it is not the partition's log yet, and the checkpoint files do not have its
        offsets.
        """
        start = LogStart(
            log_start_offset=like.log_start_offset,
            recovery_point=recovery_point,
            first_dirty_offset=like.cleaning.first_dirty_offset,
            clean=True,
        )
        return self._opened(
            path, log_dir, like.topic_partition, like.config, start, has_entry=not grows
        )

    def _opened(
        self,
        path: Path,
        log_dir: BrokerLogDir,
        topic_partition: TopicPartition,
        config: LogConfig,
        start: LogStart,
        *,
        has_entry: bool = True,
        progress: RecoveryProgress | None = None,
    ) -> PartitionLog:
        return PartitionLog(
            LogFolder(disk=self.disk, pool=self._pool, path=path, config=config),
            topic_partition,
            start,
            clock=self.clock,
            room=log_dir.room,
            checkpoints=CheckpointsOfLog(self, log_dir, topic_partition, has_entry=has_entry),
            progress=progress,
        )

    def remove_folder(self, path: Path) -> None:
        """Removes the folder of a deleted partition, in the background; one that can't be removed
        is kept for `retry_removals`."""
        if self._background is not None:
            self._background.submit(
                partial(self.disk.remove_tree, path), _ignore, partial(self._keep, path)
            )
            return
        try:
            self.disk.remove_tree(path)
        except OSError as error:
            self._keep(path, error)

    def retry_removals(self) -> None:
        """Tries again to remove the folders that could not be removed; called once in a while."""
        failed, self._not_removed = self._not_removed, []
        for path in failed:
            self.remove_folder(path)

    def _keep(self, path: Path, error: Exception) -> None:
        logger.error("folder not removed, it stays for now folder=%s error=%s", path, error)
        self._not_removed.append(path)


class CheckpointsOfLog:
    """Implements `LogCheckpoints` for one log in a log dir."""

    __slots__ = ("_has_entry", "_log_dir", "_logs", "_topic_partition")

    def __init__(
        self,
        logs: OpenLogs,
        log_dir: BrokerLogDir,
        topic_partition: TopicPartition,
        *,
        has_entry: bool = True,
    ) -> None:
        """`has_entry` False: the files do not have the offsets of this log yet."""
        self._logs = logs
        self._log_dir = log_dir
        self._topic_partition = topic_partition
        self._has_entry = has_entry

    def write(self) -> None:
        self._logs.write_lowered(self._log_dir)

    def saved_recovery_point(self) -> int | None:
        if not self._has_entry:
            return None
        return self._log_dir.recovery_points.get(self._topic_partition, 0)


def _ignore(_result: None) -> None: ...
