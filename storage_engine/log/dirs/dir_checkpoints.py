"""The checkpoint files of a broker's log dirs, as its logs are now. The files of a log dir have the
offsets of the logs in it, and are replaced as a whole.

Source: R-LOG8, R-LOG10, R-REP10; the files are drawn in `checkpoints`.
"""

from collections.abc import Callable, Mapping

from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_dir import BrokerLogDir
from storage_engine.log.dirs.open_logs import OpenLogs
from storage_engine.log.files.checkpoints import (
    CLEANER_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_STARTS_FILE,
    RECOVERY_POINTS_FILE,
    SCRUB_TIMES_FILE,
    write_offsets,
)
from storage_engine.log.files.disk import Disk
from storage_engine.log.partition_log import PartitionLog


class DirCheckpoints:
    """Writes the files of one log dir at a time; all methods raise OSError."""

    def __init__(self, disk: Disk, open_logs: OpenLogs) -> None:
        self._disk = disk
        self._open_logs = open_logs
        self.incoming: dict[TopicPartition, tuple[PartitionLog, BrokerLogDir]] = {}
        """Logs that are, or at the next start may be, in another log dir than `open_logs` has."""

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
            for topic_partition, log in self._open_logs.of_dir(log_dir)
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
        for topic_partition, log in self._open_logs.of_dir(log_dir):
            value = value_of(topic_partition, log)
            if value is not None:
                offsets[topic_partition] = value
        for topic_partition, (log, target) in self.incoming.items():
            value = value_of(topic_partition, log) if target is log_dir else None
            if value is not None:
                offsets[topic_partition] = value
        write_offsets(self._disk, log_dir.path / name, offsets)
        return offsets


class CheckpointsOfLog:
    """Implements `LogCheckpoints` for one log in a log dir."""

    __slots__ = ("_checkpoints", "_has_entry", "_log_dir", "_topic_partition")

    def __init__(
        self,
        checkpoints: DirCheckpoints,
        log_dir: BrokerLogDir,
        topic_partition: TopicPartition,
        *,
        has_entry: bool = True,
    ) -> None:
        """`has_entry` False: the files do not have the offsets of this log yet."""
        self._checkpoints = checkpoints
        self._log_dir = log_dir
        self._topic_partition = topic_partition
        self._has_entry = has_entry

    def write(self) -> None:
        self._checkpoints.write_lowered(self._log_dir)

    def saved_recovery_point(self) -> int | None:
        if not self._has_entry:
            return None
        return self._log_dir.recovery_points.get(self._topic_partition, 0)
