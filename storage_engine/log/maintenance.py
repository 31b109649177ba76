"""The periodic work on all logs: flush, checkpoints, retention. Its one rule: a tick is short, what
takes long goes to the background.

Source: R-LOG4, R-LOG9, R-REP10.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage_engine.core.errors import LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background, Clock
from storage_engine.log.disk import REAL_DISK, Disk
from storage_engine.log.log_manager import LogManager
from storage_engine.log.partition_log import PartitionLog

FLUSHES_AT_ONCE = 16
"""More would only queue up at the disk; the others come with the next tick."""

logger = logging.getLogger(__name__)

Failure = Callable[[TopicPartition, Exception], None]


class LogMaintenance:
    """Call `tick` about once a second."""

    def __init__(
        self,
        manager: LogManager,
        *,
        clock: Clock,
        background: Background,
        high_watermark_of: Callable[[TopicPartition], int],
        on_failure: Failure,
        retention_interval_ms: int = 300_000,
        checkpoint_interval_ms: int = 60_000,
        disk: Disk = REAL_DISK,
    ) -> None:
        """`on_failure` is told of a log whose disk has failed; what it holds may not be on the
        medium.
        """
        self._manager = manager
        self._clock = clock
        self._background = background
        self._high_watermark_of = high_watermark_of
        self._on_failure = on_failure
        self._retention_interval_ms = retention_interval_ms
        self._checkpoint_interval_ms = checkpoint_interval_ms
        self._disk = disk
        self._flushing: set[TopicPartition] = set()
        self._failed: set[PartitionLog] = set()
        """Logs whose disk has failed: told once, then left alone."""
        self._retention_due_ms = clock.monotonic_ms() + retention_interval_ms
        self._checkpoint_due_ms = clock.monotonic_ms() + checkpoint_interval_ms

    def tick(self) -> None:
        """Starts what is due."""
        now_ms = self._clock.wall_ms()
        self._start_flushes(now_ms)
        if self._clock.monotonic_ms() >= self._retention_due_ms:
            self._retention_due_ms = self._clock.monotonic_ms() + self._retention_interval_ms
            self.apply_retention()
        if self._clock.monotonic_ms() >= self._checkpoint_due_ms:
            self._checkpoint_due_ms = self._clock.monotonic_ms() + self._checkpoint_interval_ms
            self._write_checkpoints()
        self._remove_doomed_files(now_ms)

    def apply_retention(self) -> int:
        """Deletes old segments of all logs and forgets idle producers; the number of segments
        deleted.
        """
        now_ms = self._clock.wall_ms()
        deleted = 0
        for topic_partition, log in list(self._manager.logs.items()):
            try:
                deleted += log.delete_old_segments(now_ms, self._high_watermark_of(topic_partition))
                log.expire_producers(now_ms)
            except LogStorageError as error:
                self._fail(topic_partition, log, error)
        return deleted

    def _start_flushes(self, now_ms: int) -> None:
        for topic_partition, log in self._manager.logs.items():
            if len(self._flushing) >= FLUSHES_AT_ONCE:
                return
            if log in self._failed or topic_partition in self._flushing:
                continue
            if log.needs_flush(now_ms):
                self._start_flush(topic_partition, log)

    def _start_flush(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        try:
            job = log.prepare_flush()
        except LogStorageError as error:
            self._fail(topic_partition, log, error)
            return
        self._flushing.add(topic_partition)

        def done(_: Any) -> None:
            self._flushing.discard(topic_partition)
            job.finish()

        def failed(error: Exception) -> None:
            self._flushing.discard(topic_partition)
            self._fail(topic_partition, log, error)

        self._background.submit(job.run, done, failed)

    def _fail(self, topic_partition: TopicPartition, log: PartitionLog, error: Exception) -> None:
        is_deleted = self._manager.get(topic_partition) is not log
        if not is_deleted and log not in self._failed:
            self._failed.add(log)
            self._on_failure(topic_partition, error)

    def _write_checkpoints(self) -> None:
        try:
            self._manager.write_recovery_points()
            self._manager.write_log_starts()
        except OSError as error:
            logger.error("checkpoints not written error=%s", error)

    def _remove_doomed_files(self, now_ms: int) -> None:
        paths: list[Path] = []
        for log in self._manager.logs.values():
            paths += log.take_doomed_files(now_ms)
        if paths:
            self._background.submit(
                lambda: self._remove(paths),
                lambda _: None,
                lambda error: logger.error("files not removed error=%s", error),
            )

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            self._disk.remove(path)
