"""All logs of a broker. A partition has one folder, in one of the log dirs, and one open log there.

New partitions go to the log dir with the fewest. At a stop all logs are settled, then flushed many
at a time. Only the slow halves of flushes, which touch nothing but descriptors of their own, may
run on other threads. A log whose flush has failed is closed without another: the kernel may count
its pages as clean by then. Source: R-LOG1, R-LOG4, R-LOG8, R-CTL4, R-CTL6, KIP-112.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from storage_engine.core.errors import LogDirError, LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background, Clock
from storage_engine.log.dirs.log_dir import DELETED_FOLDER_SUFFIX, STRAY_FOLDER_SUFFIX
from storage_engine.log.dirs.log_dirs import LogDirs
from storage_engine.log.dirs.log_loading import LogLoading
from storage_engine.log.dirs.log_moves import LogMoves
from storage_engine.log.dirs.open_logs import OpenLogs
from storage_engine.log.files.disk import REAL_DISK, Disk, storage_error
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.state.checkpoints import read_topic_id, write_topic_id
from storage_engine.log.state.flush_state import FlushJob

logger = logging.getLogger(__name__)


LOGS_PER_ROUND = 64
"""Flushes that are prepared together: each holds some six descriptors until it has run."""

RunFlushes = Callable[[Sequence[Callable[[], None]]], list[Exception | None]]
"""Runs all of these, on any threads; returns what each has raised, in their order."""


def one_after_another(works: Sequence[Callable[[], None]]) -> list[Exception | None]:
    errors: list[Exception | None] = []
    for work in works:
        try:
            work()
            errors.append(None)
        except OSError as error:
            errors.append(error)
    return errors


class LogClosing:
    """The closing of all logs at a stop. Used once."""

    def __init__(self, open_logs: OpenLogs, run_flushes: RunFlushes) -> None:
        self._open_logs = open_logs
        self._run_flushes = run_flushes
        self._failed: LogStorageError | None = None

    def close_all(self) -> LogStorageError | None:
        """Returns an error where a log could not be flushed, so that the stop is not clean."""
        settled = list(self._usable())
        for log in settled:
            self._try(log, log.settle)
        rounds = iter(settled)
        while part := list(islice(rounds, LOGS_PER_ROUND)):
            self._flush(part)
        return self._failed

    def _usable(self) -> Iterator[PartitionLog]:
        """Yield the logs whose log dir has not failed; close the others."""
        for topic_partition, log in self._open_logs.logs.items():
            if self._open_logs.dir_of[topic_partition].failed:
                log.close_without_flush()
            else:
                yield log

    def _flush(self, logs: Sequence[PartitionLog]) -> None:
        """Run the first flush of each log, then close it, which flushes the rest of a long one."""
        jobs: list[tuple[PartitionLog, FlushJob]] = []
        for log in logs:
            if log.flush_state.is_behind:
                try:
                    jobs.append((log, log.flush_state.prepare()))
                except LogStorageError as failure:
                    self._note(log, failure)
        broken: set[TopicPartition] = set()
        errors = self._run_flushes([job.run for _, job in jobs])
        for (log, job), error in zip(jobs, errors, strict=True):
            if error is None:
                job.finish()
            else:
                self._note(log, LogDirError(f"can't flush {log.directory}: {error}"))
                log.close_without_flush()
                broken.add(log.topic_partition)
        for log in logs:
            if log.topic_partition not in broken:
                self._try(log, log.close)

    def _try(self, log: PartitionLog, step: Callable[[], None]) -> None:
        try:
            step()
        except LogStorageError as error:
            self._note(log, error)

    def _note(self, log: PartitionLog, error: LogStorageError) -> None:
        logger.error("log not closed partition=%s error=%s", log.topic_partition, error)
        self._failed = error


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerSettings:
    """The part of a broker's configuration that concerns its logs."""

    log_dirs: Sequence[Path]
    broker_id: int
    default_config: LogConfig
    """The settings of logs that are opened before those of their topics are known."""
    reserve_bytes: int = 0
    """The bytes that stay free in the file system of each log dir; 0: the free space is never
    checked."""


class LogManager:
    """Invariant: every log in `logs` has its folder in exactly one of the log dirs."""

    def __init__(
        self,
        settings: LogManagerSettings,
        *,
        clock: Clock,
        config_of: Callable[[str], LogConfig] | None = None,
        disk: Disk = REAL_DISK,
        background: Background | None = None,
    ) -> None:
        """Locks and checks the log dirs; `load` opens the logs. StorageError when a log dir must
        not be used, or none can be.

        `config_of` gives a topic's settings (default: `default_config` for all). Without
        `background`, long work is done where it is asked for.
        """
        self._disk = disk
        self.dirs = LogDirs(
            disk,
            settings.log_dirs,
            broker_id=settings.broker_id,
            reserve_bytes=settings.reserve_bytes,
        )
        self._open_logs = OpenLogs(
            disk, clock, config_of or (lambda topic: settings.default_config), background
        )
        self.logs = self._open_logs.logs
        self.moves = LogMoves(self._open_logs)
        self._loading = LogLoading(self.dirs, self._open_logs)
        self._loaded = False

    def load(self, cluster_id: str | None = None) -> None:
        """Opens all logs. From here on a stop without `close` is unclean. A log dir that fails is
        left out while there is another.
        """
        if cluster_id is not None:
            self.dirs.set_cluster_id(cluster_id)
        self._loading.run(self.moves)
        self._loaded = True

    @property
    def recovered_bytes(self) -> int:
        """The number of bytes that had to be checked when the logs were opened."""
        return self._loading.recovered_bytes

    def close(self, run_flushes: RunFlushes = one_after_another) -> None:
        """Flushes and closes all logs, writes the checkpoints, marks the stop as clean, unlocks the
        log dirs. When `load` failed or was not called, it only closes files and unlocks.

        `run_flushes` may run the slow halves of flushes side by side: a file system brings what
        many wait for to the medium together, but makes each that comes alone wait.
        """
        if not self._loaded:
            self.abandon()
            return
        self._loaded = False
        self.moves.close()
        closing = LogClosing(self._open_logs, run_flushes)
        failed = closing.close_all()
        for log_dir in self.dirs.working:
            try:
                self._open_logs.write_lowered(log_dir)
                self._open_logs.write_scrub_times(log_dir)
                if failed is None:
                    log_dir.mark_clean()
            except OSError as error:
                failed = LogStorageError(f"can't write the checkpoints: {error}")
        self.dirs.unlock()
        if failed is not None:
            raise failed

    def abandon(self) -> None:
        """Closes files and unlocks the log dirs without a flush, as after a killed process."""
        self._loaded = False
        self.moves.close()
        for log in self.logs.values():
            log.close_without_flush()
        self.dirs.unlock()

    def fail_dir(self, path: Path) -> bool:
        """Stops all use of a log dir that has failed; returns False when that was known."""
        for log_dir in self.dirs.working:
            if log_dir.path == path:
                log_dir.failed = True
                self.moves.fail_dir(log_dir)
                return True
        return False

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self.logs.get(topic_partition)

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        config: LogConfig | None = None,
        *,
        topic_id: uuid.UUID | None = None,
    ) -> PartitionLog:
        """Return the partition's log; an empty one when there is none. A log of another topic that
        had the same name is put aside first. LogStorageError when it is, or may be, in a log dir
        that failed.
        """
        log = self._usable(topic_partition)
        if log is not None and topic_id is not None:
            known = read_topic_id(self._disk, log.directory)
            if known is None:
                write_topic_id(self._disk, log.directory, topic_id, sync=True)
            elif known != topic_id:
                target = self._take_out(log, STRAY_FOLDER_SUFFIX)
                logger.error(
                    "log of an earlier topic put aside partition=%s topic_id=%s folder=%s: the "
                    "topic of that name is now %s; remove the folder when it is not needed",
                    topic_partition, known, target, topic_id,
                )  # fmt: skip
                log = None
        if log is None:
            return self._create(topic_partition, config, topic_id)
        if config is not None and config != log.config:
            log.update_config(config)
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Removes the partition from this broker at once, and its files in the background."""
        log = self._usable(topic_partition)
        if log is not None:
            self._open_logs.remove_folder(self._take_out(log, DELETED_FOLDER_SUFFIX))
            logger.info("log deleted partition=%s", topic_partition)

    def put_aside(self, topic_partition: TopicPartition) -> None:
        """Removes the log of a topic that is gone from the partitions; its files stay."""
        log = self._usable(topic_partition)
        if log is not None:
            target = self._take_out(log, STRAY_FOLDER_SUFFIX)
            logger.error(
                "log put aside, its topic is gone partition=%s folder=%s: remove the folder "
                "when it is not needed",
                topic_partition, target,
            )  # fmt: skip

    def remove_files(self, paths: list[Path]) -> None:
        """Removes files of deleted segments (see `SegmentList.take_deleted_files`); on any thread.
        When one can't be removed, the others still are: they may be on other disks.
        """
        for path in paths:
            try:
                self._disk.remove(path)
            except OSError as error:
                logger.error("file of a deleted segment not removed file=%s error=%s", path, error)

    def retry_removals(self) -> None:
        """Tries again to remove folders of deleted partitions; called once in a while."""
        self._open_logs.retry_removals()

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """Return the last high watermark that was kept, or that of the checkpoint file at the
        start; at most the log's end, and where unflushed records may be lost, at most the recovery
        point. 0 when there is none."""
        log = self.logs.get(topic_partition)
        if log is None:
            return 0
        known = self._open_logs.dir_of[topic_partition].high_watermarks.get(topic_partition, 0)
        return min(known, log.log_end_offset)

    def keep_high_watermark(self, topic_partition: TopicPartition, high_watermark: int) -> None:
        """Keeps the high watermark of a replica that ends for now: the log's next replica begins
        with it."""
        log_dir = self._open_logs.dir_of.get(topic_partition)
        if log_dir is not None:
            log_dir.high_watermarks[topic_partition] = high_watermark

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.dirs.write_in_each(
            lambda log_dir: self._open_logs.write_high_watermarks(log_dir, offsets)
        )

    def write_recovery_points(self) -> None:
        self.dirs.write_in_each(self._open_logs.write_recovery_points)

    def write_log_starts(self) -> dict[Path, OSError]:
        """Writes the log start offsets; returns the log dirs where that failed, with their
        errors."""
        return self.dirs.write_in_each(self._open_logs.write_log_starts)

    def write_cleaner_offsets(self) -> None:
        """Writes the first dirty offset of each log."""
        self.dirs.write_in_each(self._open_logs.write_cleaner_offsets)

    def write_scrub_times(self) -> None:
        """Writes the times of the last scrubs of each log's older segments."""
        self.dirs.write_in_each(self._open_logs.write_scrub_times)

    def _usable(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the partition's log, if there is one. LogDirError when its log dir failed."""
        log = self.logs.get(topic_partition)
        if log is not None and self._open_logs.dir_of[topic_partition].failed:
            raise LogDirError(f"the log dir of {topic_partition} failed")
        return log

    def _create(
        self, topic_partition: TopicPartition, config: LogConfig | None, topic_id: uuid.UUID | None
    ) -> PartitionLog:
        log_dir = self.dirs.for_new_log(topic_partition, self._open_logs.counts)
        try:
            self._open_logs.forget(log_dir, topic_partition)
        except OSError as error:
            raise storage_error(
                "write the checkpoints of", log_dir.path, error, unchanged=True
            ) from error
        log = self._open_logs.open(log_dir, topic_partition, config, clean=True)
        self._open_logs.put(log, log_dir)
        if topic_id is not None:
            write_topic_id(self._disk, log.directory, topic_id)
        logger.info("log created partition=%s log_dir=%s", topic_partition, log_dir.path)
        return log

    def _take_out(self, log: PartitionLog, suffix: str) -> Path:
        """Renames the folder, so that it is no partition's any more, and forgets the log."""
        topic_partition = log.topic_partition
        self.moves.cancel(topic_partition)
        try:
            target = self._open_logs.dir_of[topic_partition].rename_out(topic_partition, suffix)
        except OSError as error:
            # The log stays known, so that the next try does not take it for gone.
            raise storage_error("rename", log.directory, error) from error
        self._open_logs.remove(topic_partition)
        log.close_without_flush()
        return target
