"""The log dirs of a broker, and which of them are usable.

A log dir whose disk fails is not touched before the next start, nor are the partitions in it; the
others are served. Source: KIP-112, KIP-113, R-CTL4, R-CTL6.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from storage_engine.core.errors import ErrorCode, KafkaError, LogDirError, StorageError
from storage_engine.core.ids import TAIL_LOST_NOW, BrokerEpoch, TopicPartition
from storage_engine.core.system_errors import Reach, passes_by_itself, reach_of_file_error
from storage_engine.log.dirs.log_dir import BrokerLogDir, UnusableLogDirError
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.segment_files import descriptor_limit

logger = logging.getLogger(__name__)


PREFERRED_MAX = 10_000
"""The most replicas with a preferred log dir; beyond it the oldest are forgotten, since clients
could name any number."""


class LogDirs:
    """The log dirs are locked while the broker runs."""

    def __init__(
        self,
        disk: Disk,
        paths: Sequence[Path],
        *,
        broker_id: int,
        reserve_bytes: int,
    ) -> None:
        """Locks and checks the log dirs. StorageError when one must not be used, or none can be."""
        self.on_failed: Callable[[Path, Exception], None] | None = None
        """Called with a log dir that failed in background work."""
        self.cordoned: frozenset[Path] = frozenset()
        """The log dirs that take no new replicas (`cordoned.log.dirs`), as absolute paths."""
        self._preferred: dict[TopicPartition, Path] = {}
        """The log dirs that clients prefer for replicas that this broker does not have yet; kept
        while the broker runs, as in Kafka."""
        self._lost: list[Path] = []
        """Log dirs that could not be used at the start: any unknown partition may be in them."""
        self._all: list[BrokerLogDir] = []
        absolute = list(dict.fromkeys(path.absolute() for path in paths))
        self._configured = tuple(sorted(absolute))
        failure: UnusableLogDirError | None = None
        try:
            for path in absolute:
                try:
                    self._all.append(
                        BrokerLogDir(disk, path, broker_id=broker_id, reserve_bytes=reserve_bytes)
                    )
                except UnusableLogDirError as error:
                    failure = failure or error
                    self._note_lost(path, error)
            if not self._all and failure is not None:
                raise failure
            self._make_up_for_missed_registrations()
        except StorageError:
            self.unlock()
            raise
        self.were_shut_down_clean = all(log_dir.was_clean_shutdown for log_dir in self._all)
        """True when the last stop was clean on all of them; False when one is new."""

    def unlock(self) -> None:
        for log_dir in self._all:
            log_dir.unlock()

    @property
    def unusable_count(self) -> int:
        """Log dirs that have failed, or could not be used at the start."""
        failed = {log_dir.path for log_dir in self._all if log_dir.failed}
        return len(failed.union(self._lost))

    @property
    def working(self) -> list[BrokerLogDir]:
        return [log_dir for log_dir in self._all if not log_dir.failed]

    @property
    def working_paths(self) -> list[Path]:
        return [log_dir.path for log_dir in self.working]

    def at(self, path: Path) -> BrokerLogDir:
        """Return a log dir for new logs. KafkaError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR."""
        for log_dir in self._all:
            if log_dir.path == path:
                if log_dir.failed:
                    raise LogDirError(f"the log dir {path} failed")
                return log_dir
        if path in self._lost:
            raise LogDirError(f"the log dir {path} could not be used at the start")
        raise KafkaError(f"{path} is not in log.dirs", ErrorCode.LOG_DIR_NOT_FOUND)

    def check_not_cordoned(self, path: Path) -> None:
        """Raises KafkaError INVALID_REPLICA_ASSIGNMENT for a log dir that takes no new replicas."""
        if path in self.cordoned:
            raise KafkaError(
                f"the log dir {path} takes no new replicas: take it out of cordoned.log.dirs first",
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )

    def prefer(self, topic_partition: TopicPartition, path: Path) -> None:
        """Records the log dir that is preferred for a replica; the latest one counts."""
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = path
        if len(self._preferred) > PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def for_new_log(
        self, topic_partition: TopicPartition, log_counts: Mapping[Path, int]
    ) -> BrokerLogDir:
        """Choose the log dir for a new log: the preferred log dir if there is one, else the one
        with the fewest logs; a cordoned one only where there is no other, since the replica may
        have been placed before the cordon was known. LogDirError when the log may be in a log dir
        that can't be used, or all have failed."""
        if self._lost:
            raise LogDirError(
                f"no log made for {topic_partition}: it may be in {self._lost[0]}, which could not"
                " be used at the start; repair it, or take it out of log.dirs, and restart"
            )
        working = self.working
        if not working:
            raise LogDirError(f"no log made for {topic_partition}: all log dirs failed")
        preferred = self._preferred.pop(topic_partition, None)
        open_dirs = [log_dir for log_dir in working if log_dir.path not in self.cordoned] or working
        for log_dir in open_dirs:
            if log_dir.path == preferred:
                return log_dir
        return min(open_dirs, key=lambda log_dir: log_counts.get(log_dir.path, 0))

    def do_at_start(self, work: Callable[[BrokerLogDir], None]) -> None:
        """Does `work` in each of them. One that fails is left out while there is another.
        StorageError when descriptors or memory are short, or none is left."""
        for log_dir in self.working:
            try:
                work(log_dir)
            except OSError as error:
                if reach_of_file_error(error) is Reach.SHORTAGE:
                    raise cannot_start(error) from error
                self.lose(log_dir, error)
            except LogDirError as error:
                self.lose(log_dir, error)

    def lose(self, log_dir: BrokerLogDir, error: Exception) -> None:
        """Goes on with the start without a log dir; StorageError when it was the last."""
        log_dir.failed = True
        if not self.working:
            raise StorageError(f"can't load the logs in {log_dir.path}: {error}") from error
        self._note_lost(log_dir.path, error)

    def set_cluster_id(self, cluster_id: str) -> None:
        """Keeps the cluster's id in the log dirs; StorageError when they have another cluster's."""
        self.do_at_start(lambda log_dir: log_dir.set_cluster_id(cluster_id))

    def _note_lost(self, path: Path, error: Exception) -> None:
        logger.error("log dir left out until the next start log_dir=%s: %s", path, error)
        self._lost.append(path)

    def write_in_each(self, write: Callable[[BrokerLogDir], None]) -> dict[Path, OSError]:
        """Does `write` in each working log dir; returns the failed ones with their errors. A
        failure does not stop the others."""
        failed = {}
        for log_dir in self.working:
            try:
                write(log_dir)
            except OSError as error:
                logger.error("checkpoint not written log_dir=%s error=%s", log_dir.path, error)
                failed[log_dir.path] = error
                if not passes_by_itself(error) and self.on_failed is not None:
                    self.on_failed(log_dir.path, error)
        return failed

    def refresh_free_space(self) -> None:
        """Has what others wrote to the disks counted from now on; called once in a while."""
        for log_dir in self._all:
            log_dir.room.refresh()

    @property
    def tail_lost_epoch(self) -> BrokerEpoch:
        """Return the broker's first incarnation since a stop that may have cut one of its logs
        (records were not flushed, and the machine went down); TAIL_LOST_NOW: since the last stop;
        NO_TAIL_LOST: never.
        """
        epochs = [log_dir.tail_lost_epoch for log_dir in self._all]
        return TAIL_LOST_NOW if TAIL_LOST_NOW in epochs else max(epochs)

    def keep_registration(self, epoch: BrokerEpoch) -> None:
        """Replaces TAIL_LOST_NOW by the epoch with which the broker has registered, and keeps the
        first epoch of this boot."""
        first = min(self._boot_epochs(), default=epoch)

        def keep(log_dir: BrokerLogDir) -> None:
            if log_dir.tail_lost_epoch == TAIL_LOST_NOW:
                log_dir.keep_tail_lost_epoch(epoch)
            if log_dir.boot_epoch(self._configured) is None:
                log_dir.keep_boot_epoch(first, self._configured)

        self.write_in_each(keep)

    def _make_up_for_missed_registrations(self) -> None:
        """Log dirs that failed before the first registration of this boot take its epoch."""
        late = [log_dir for log_dir in self._all if log_dir.has_missed_registrations]
        first = min(self._boot_epochs(), default=None) if late else None
        if first is not None:
            for log_dir in late:
                log_dir.take_tail_lost_epoch(first)

    def _boot_epochs(self) -> Iterator[BrokerEpoch]:
        for log_dir in self.working:
            epoch = log_dir.boot_epoch(self._configured)
            if epoch is not None:
                yield epoch


def cannot_start(error: Exception) -> StorageError:
    """Return the error for a shortage of descriptors or memory. No log dir is left out for that:
    without its logs a broker would lead empty ones."""
    return StorageError(
        f"can't load the logs: {error}; this process may have {descriptor_limit()} files open:"
        " raise that limit (ulimit -n) or give the machine memory, and start again"
    )
