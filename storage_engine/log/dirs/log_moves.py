"""Replicas that move from one log dir of a broker to another. At every moment a start finds exactly
one log of the partition, and it has all that was acknowledged.

    <topic>-<partition>.<uuid>-future   in the new log dir: a copy that grows
    <topic>-<partition>.<uuid>-moved    in the new log dir: the copy has everything, on the medium
    <topic>-<partition>.<uuid>-delete   in the old log dir, what was the log: with this name it is
                                        settled that the copy takes its place
    <topic>-<partition>                 in the new log dir: the log

Each name is on the medium before the next is given, and nothing between two of them needs a
descriptor: a shortage comes before the first, and leaves the log where it is. A start that finds
the log in the old log dir goes on with that one and copies it anew; one that finds none takes the
folder that is called moved. The checkpoint files of the new log dir have the copy's offsets before
the copy is called moved. Source: KIP-113.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from storage_engine.core.errors import (
    ErrorCode,
    KafkaError,
    LogBusyError,
    LogDirError,
    LogStorageError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.system_errors import passes_by_itself
from storage_engine.log.dirs.log_dir import (
    DELETED_FOLDER_SUFFIX,
    FILE_NAME_MAX_BYTES,
    FUTURE_FOLDER_SUFFIX,
    MOVED_FOLDER_SUFFIX,
    BrokerLogDir,
)
from storage_engine.log.dirs.open_logs import OpenLogs
from storage_engine.log.files.disk import storage_error
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.state.checkpoints import read_topic_id, write_topic_id
from storage_engine.log.state.flush_state import UnfollowedCuts

logger = logging.getLogger(__name__)


class FutureLog:
    """The copy of a log in another log dir."""

    __slots__ = ("current", "cuts", "log", "log_dir", "was_completed")

    def __init__(self, current: PartitionLog, log: PartitionLog, log_dir: BrokerLogDir) -> None:
        self.current = current
        self.log = log
        self.log_dir = log_dir
        self.cuts = UnfollowedCuts()
        """The cuts of the current log that the copy has not followed."""
        self.was_completed = False
        """True when it was closed to replace the log, and that has to be tried again."""

    def follow_cuts(self) -> None:
        """Removes from the copy what the current log has lost at its end or its beginning.
        LogBusyError when the copy can't follow yet."""
        if self.was_completed or self.log.is_cut_short:
            self.log.open_again()
            self.was_completed = False
        log, start = self.log, self.current.log_start_offset
        lowest = self.cuts.lowest_end_offset
        if lowest is not None and lowest < log.log_end_offset:
            log.truncation.truncate_to(lowest)
        self.cuts.lowest_end_offset = None
        if start > log.log_end_offset:
            log.truncation.truncate_fully_and_start_at(start)
        elif start > log.log_start_offset:
            log.retention.advance_log_start(start)

    def end_with_current(self) -> None:
        """Ends the copy at the current log's end offset; called when it has every record. Offsets
        may be missing at the end of the current log, where it was truncated behind a gap of
        compaction."""
        if self.lag:
            self.log.follower_appends.end_at(self.current.log_end_offset)

    @property
    def lag(self) -> int:
        """Return how many offsets the copy lacks."""
        return max(0, self.current.log_end_offset - self.log.log_end_offset)


class LogMoves:
    """All copies under way on one broker."""

    def __init__(self, open_logs: OpenLogs) -> None:
        self._disk = open_logs.disk
        self._open_logs = open_logs
        self.under_way: dict[TopicPartition, FutureLog] = {}
        self.interrupted: dict[TopicPartition, tuple[BrokerLogDir, Path]] = {}
        """Copies that the broker's last run did not complete: log dir, and folder of the copy."""

    def recover(self, log_dirs: Sequence[BrokerLogDir]) -> None:
        """Gives moved copies the names of logs, and remembers copies that were under way; called
        before the logs are opened. OSError when a disk refuses."""
        for log_dir in log_dirs:
            for topic_partition, path in log_dir.named(MOVED_FOLDER_SUFFIX):
                name = str(topic_partition)
                if any(self._disk.exists(each.path / name) for each in log_dirs):
                    # The log goes on without the copy, which a later start must not take for the
                    # log.
                    stem = path.name.removesuffix(MOVED_FOLDER_SUFFIX)
                    future = path.with_name(stem + FUTURE_FOLDER_SUFFIX)
                    self._disk.rename(path, future)
                    log_dir.sync_names()
                    continue
                self._disk.rename(path, log_dir.path / name)
                log_dir.sync_names()
                logger.info("move ended partition=%s log_dir=%s", topic_partition, log_dir.path)
            for topic_partition, path in log_dir.named(FUTURE_FOLDER_SUFFIX):
                self._remember(topic_partition, log_dir, path)

    def begin(self, topic_partition: TopicPartition, log_dir: BrokerLogDir) -> FutureLog:
        """Begins an empty copy in that log dir. Raises KafkaError."""
        name = f"{topic_partition}.{uuid.uuid4().hex}{FUTURE_FOLDER_SUFFIX}"
        if len(name) > FILE_NAME_MAX_BYTES:
            raise KafkaError(
                f"{topic_partition} can't be moved: its name leaves no room for the name of a copy",
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            )
        current = self._open_logs.logs[topic_partition]
        log = self._new_copy(current, log_dir, log_dir.path / name)
        # This comes last: where no copy can be made, the one before stays, and its owner asks
        # again.
        self.cancel(topic_partition)
        future = FutureLog(current, log, log_dir)
        current.unfollowed_cuts = future.cuts
        self.under_way[topic_partition] = future
        logger.info("move begun partition=%s log_dir=%s", topic_partition, log_dir.path)
        return future

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Removes the copy, if there is one."""
        self.forget_interrupted(topic_partition)
        future = self._end(topic_partition)
        if future is not None and not future.log_dir.failed:
            self._discard(future.log_dir, future.log.directory)
            logger.info("move cancelled partition=%s", topic_partition)

    def forget_interrupted(self, topic_partition: TopicPartition) -> None:
        """Removes the copy of the last run, if there is one."""
        log_dir, path = self.interrupted.pop(topic_partition, (None, None))
        if log_dir is not None and path is not None and not log_dir.failed:
            self._discard(log_dir, path)

    def fail_dir(self, log_dir: BrokerLogDir) -> None:
        """Ends all copies to or from a log dir that failed; the next start continues them."""
        for topic_partition, future in list(self.under_way.items()):
            if log_dir in (future.log_dir, self._open_logs.dir_of.get(topic_partition)):
                self._end(topic_partition)

    def close(self) -> None:
        """Ends all copies; the next start begins them anew."""
        for topic_partition in list(self.under_way):
            self._end(topic_partition)

    def take_over(
        self, topic_partition: TopicPartition, high_watermarks: Mapping[TopicPartition, int]
    ) -> PartitionLog:
        """Makes the copy the partition's log and returns it, opened anew. It must have every record
        of the current log. `high_watermarks` are those of all partitions now.

        When it raises and the copy is still under way, the current log stays. LogBusyError: the
        copy too, for another try. LogDirError: the log dir of the copy has failed. When the copy is
        not under way any more: LogStorageError: the current log stays, the copy is gone.
        LogDirError: the partition can't be written to until the next start.
        """
        future = self.under_way[topic_partition]
        current, log_dir = future.current, future.log_dir
        source = self._open_logs.dir_of[topic_partition]
        assert not future.lag and not future.cuts.begun_anew, "the copy has everything"
        moved, log = self._complete(topic_partition, future, high_watermarks)
        removed = self._exchange(topic_partition, log, moved, log_dir)
        log.folder_is_renamed(log_dir.path / str(topic_partition))
        log.take_epochs_of(current)
        self._open_logs.put(log, log_dir)
        log_dir.high_watermarks[topic_partition] = high_watermarks.get(topic_partition, 0)
        current.close_without_flush()
        self._open_logs.remove_folder(removed)
        logger.info("moved partition=%s from=%s to=%s", topic_partition, source.path, log_dir.path)
        return log

    def _complete(
        self,
        topic_partition: TopicPartition,
        future: FutureLog,
        high_watermarks: Mapping[TopicPartition, int],
    ) -> tuple[Path, PartitionLog]:
        """Brings the copy to the medium, with all state of the log; returns its path, and the copy
        opened as the log. The steps that follow need no descriptor."""
        copied, log_dir = future.log, future.log_dir
        path = copied.directory
        moved = path.with_name(path.name.removesuffix(FUTURE_FOLDER_SUFFIX) + MOVED_FOLDER_SUFFIX)
        future.was_completed = True
        log: PartitionLog | None = None
        try:
            copied.take_state_of(future.current)
            copied.close()
            self._open_logs.incoming[topic_partition] = copied, log_dir
            try:
                self._open_logs.write_lowered(log_dir)
                self._open_logs.write_high_watermarks(log_dir, high_watermarks)
            finally:
                del self._open_logs.incoming[topic_partition]
            # This comes before the names change: a shortage of descriptors after that would leave
            # no log.
            log = self._open_logs.open_copy(
                path,
                log_dir,
                future.current,
                recovery_point=copied.log_end_offset,
                grows=False,
            )
            # The batches of its producers may be deleted.
            log.snapshots.sync(log.log_end_offset)
            self._disk.rename(path, moved)
            log_dir.sync_names()
        except (OSError, LogStorageError) as error:
            if log is not None:
                log.close_without_flush()
            failure = (
                storage_error("complete the copy in", path, error, unchanged=True)
                if isinstance(error, OSError)
                else error
            )
            is_renamed = self._disk.exists(moved)
            if isinstance(failure, LogDirError) or (
                isinstance(failure, LogBusyError) and not is_renamed
            ):
                raise failure from error
            self._end(topic_partition)
            self._discard(log_dir, moved if is_renamed else path)
            raise LogStorageError(f"{path} can't become the log: {error}") from error
        self._end(topic_partition)
        return moved, log

    def _exchange(
        self, topic_partition: TopicPartition, log: PartitionLog, moved: Path, log_dir: BrokerLogDir
    ) -> Path:
        """Gives the copy the log's name; returns the path of the former log. Raises as
        `take_over`."""
        source = self._open_logs.dir_of[topic_partition]
        name = str(topic_partition)
        removed: Path | None = None
        try:
            removed = source.rename_out(topic_partition, DELETED_FOLDER_SUFFIX)
            source.sync_names()
            self._disk.rename(moved, log_dir.path / name)
            log_dir.sync_names()
        except OSError as error:
            log.close_without_flush()
            # Nothing is undone after a failed sync: then the log dir has failed.
            if removed is not None and passes_by_itself(error) and self._disk.exists(moved):
                removed = self._taken_back(removed, source, name)
            if removed is None:
                self._discard(log_dir, moved)
                raise LogStorageError(
                    f"{topic_partition} stays in {source.path}, a folder can't be renamed: {error}"
                ) from error
            # Until now the checkpoint files of both log dirs have its offsets.
            self._open_logs.incoming[topic_partition] = log, log_dir
            raise LogDirError(
                f"{topic_partition} moves from {source.path} to {log_dir.path}, and only the "
                f"next start can find which of the two holds it: {error}"
            ) from error
        return removed

    def _taken_back(self, removed: Path, source: BrokerLogDir, name: str) -> Path | None:
        """Gives the log its name again, on the medium; returns None on success."""
        try:
            self._disk.rename(removed, source.path / name)
            source.sync_names()
        except OSError as error:
            logger.error("log not renamed back folder=%s error=%s", removed, error)
            return removed
        return None

    def _new_copy(self, current: PartitionLog, log_dir: BrokerLogDir, path: Path) -> PartitionLog:
        """Return an empty copy; nothing is left of it when that fails."""
        try:
            # The copy must keep the order of records and tombstones of the log.
            current.cleaning.stop()
            topic_id = read_topic_id(self._disk, current.directory)
        except LogDirError as error:
            # The old log dir has failed; reads of the log will notice that.
            raise LogStorageError(f"no copy can be made of {current.directory}: {error}") from error
        log: PartitionLog | None = None
        try:
            log = self._open_logs.open_copy(
                path,
                log_dir,
                current,
                recovery_point=0,
                grows=True,
            )
            if topic_id is not None:
                write_topic_id(self._disk, path, topic_id)
        except (OSError, LogStorageError) as error:
            if log is not None:
                log.close_without_flush()
            if self._disk.exists(path):
                self._discard(log_dir, path)
            if isinstance(error, OSError):
                raise storage_error("make a copy in", path, error, unchanged=True) from error
            raise
        return log

    def _end(self, topic_partition: TopicPartition) -> FutureLog | None:
        future = self.under_way.pop(topic_partition, None)
        if future is not None:
            future.current.unfollowed_cuts = None
            future.log.close_without_flush()
        return future

    def _remember(self, topic_partition: TopicPartition, log_dir: BrokerLogDir, path: Path) -> None:
        if topic_partition in self.interrupted:
            # This is an older copy, whose removal was interrupted too.
            self._discard(log_dir, path)
        else:
            self.interrupted[topic_partition] = log_dir, path

    def _discard(self, log_dir: BrokerLogDir, path: Path) -> None:
        """Removes a copy; gives it another name at once, so that no start continues it."""
        gone = path.with_name(path.name.rpartition("-")[0] + DELETED_FOLDER_SUFFIX)
        try:
            self._disk.rename(path, gone)
            log_dir.sync_names()
        except OSError as error:
            logger.error("copy not removed folder=%s error=%s", path, error)
            return
        self._open_logs.remove_folder(gone)
