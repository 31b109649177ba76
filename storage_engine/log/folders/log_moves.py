"""Replicas on their way from one data folder of a broker to another. Their one rule: at every
moment a start finds exactly one log of the partition, and it has all that was acknowledged.

    <topic>-<partition>.<uuid>-future   in the new folder: a copy that grows
    <topic>-<partition>.<uuid>-moved    in the new folder: the copy has everything, on the medium
    <topic>-<partition>.<uuid>-delete   in the old folder, what was the log: with this name it is
                                        settled that the copy takes its place
    <topic>-<partition>                 in the new folder: the log

Each name is on the medium before the next is given, and nothing between two of them needs a
descriptor: a shortage comes before the first, and leaves the log where it is. A start that finds
the log in the old folder goes on with that one and copies it anew; one that finds none takes what
is moved. What the checkpoint files must know of the copy is in those of the new folder before it is
called moved.
Source: KIP-113.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Protocol

from storage_engine.core.errors import (
    ErrorCode,
    KafkaError,
    LogBusyError,
    LogFolderError,
    LogStorageError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.system_errors import passes_by_itself
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.storage_errors import storage_error
from storage_engine.log.folders.data_folder import (
    DELETED_FOLDER_SUFFIX,
    FILE_NAME_MAX_BYTES,
    FUTURE_FOLDER_SUFFIX,
    MOVED_FOLDER_SUFFIX,
    DataFolder,
)
from storage_engine.log.folders.folder_checkpoints import FolderCheckpoints
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.state.partition_metadata import read_topic_id, write_topic_id
from storage_engine.log.state.unfollowed_cuts import UnfollowedCuts

logger = logging.getLogger(__name__)


class OpenLog(Protocol):
    """Opens the log in a folder as it was closed."""

    def __call__(
        self,
        path: Path,
        folder: DataFolder,
        like: PartitionLog,
        *,
        log_start_offset: int,
        recovery_point: int,
        grows: bool,
    ) -> PartitionLog: ...


class FutureLog:
    """The copy of a log in another data folder."""

    __slots__ = ("current", "cuts", "folder", "log", "was_completed")

    def __init__(self, current: PartitionLog, log: PartitionLog, folder: DataFolder) -> None:
        self.current = current
        self.log = log
        self.folder = folder
        self.cuts = UnfollowedCuts()
        """Cuts of the current log since the copy was last brought in line."""
        self.was_completed = False
        """It was closed to become the log, which then had to wait."""

    def bring_in_line(self) -> None:
        """What the current log has lost at its end or its beginning goes from the copy as well.
        LogBusyError: not yet."""
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
        """There is no record in the current log that the copy lacks, but offsets may be missing at
        its end, which a cut has left behind a gap of compaction."""
        if self.lag:
            self.log.follower_appends.end_at(self.current.log_end_offset)

    @property
    def lag(self) -> int:
        """Offsets that it has not yet."""
        return max(0, self.current.log_end_offset - self.log.log_end_offset)


class LogMoves:
    """The copies of one broker."""

    def __init__(
        self,
        *,
        disk: Disk,
        logs: MutableMapping[TopicPartition, PartitionLog],
        folder_of: MutableMapping[TopicPartition, DataFolder],
        checkpoints: FolderCheckpoints,
        open_log: OpenLog,
        remove_later: Callable[[Path], None],
    ) -> None:
        """`logs`, `folder_of`: those of the log manager, not copied."""
        self._disk = disk
        self._logs = logs
        self._folder_of = folder_of
        self._checkpoints = checkpoints
        self._open_log = open_log
        self._remove_later = remove_later
        self.under_way: dict[TopicPartition, FutureLog] = {}
        self.interrupted: dict[TopicPartition, tuple[DataFolder, Path]] = {}
        """Copies that the last run of the broker did not end, and their folders."""

    # -- starting ----------------------------------------------------------------------------------

    def recover(self, folders: Sequence[DataFolder]) -> None:
        """Before the logs are opened: what was moved gets its name, what was under way is
        remembered. OSError when a disk refuses."""
        for folder in folders:
            for topic_partition, path in folder.named(MOVED_FOLDER_SUFFIX):
                name = str(topic_partition)
                if any(self._disk.exists(each.path / name) for each in folders):
                    # The log goes on without it: a later start must not take it for the log.
                    stem = path.name.removesuffix(MOVED_FOLDER_SUFFIX)
                    future = path.with_name(stem + FUTURE_FOLDER_SUFFIX)
                    self._disk.rename(path, future)
                    folder.sync_names()
                    continue
                self._disk.rename(path, folder.path / name)
                folder.sync_names()
                logger.info("move ended partition=%s folder=%s", topic_partition, folder.path)
            for topic_partition, path in folder.named(FUTURE_FOLDER_SUFFIX):
                self._remember(topic_partition, folder, path)

    # -- a copy ------------------------------------------------------------------------------------

    def begin(self, topic_partition: TopicPartition, folder: DataFolder) -> FutureLog:
        """An empty copy in that folder. Raises KafkaError."""
        name = f"{topic_partition}.{uuid.uuid4().hex}{FUTURE_FOLDER_SUFFIX}"
        if len(name) > FILE_NAME_MAX_BYTES:
            raise KafkaError(
                f"{topic_partition} can't be moved: its name leaves no room for the name of a copy",
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            )
        current = self._logs[topic_partition]
        log = self._new_copy(current, folder, folder.path / name)
        # Only now: a copy that can't be made is asked for again by the one before.
        self.cancel(topic_partition)
        future = FutureLog(current, log, folder)
        current.unfollowed_cuts = future.cuts
        self.under_way[topic_partition] = future
        logger.info("move begun partition=%s folder=%s", topic_partition, folder.path)
        return future

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Removes the copy, if there is one."""
        self.forget_interrupted(topic_partition)
        future = self._let_go(topic_partition)
        if future is not None and not future.folder.failed:
            self._discard(future.folder, future.log.directory)
            logger.info("move cancelled partition=%s", topic_partition)

    def forget_interrupted(self, topic_partition: TopicPartition) -> None:
        """The copy of the last run is of no use any more."""
        folder, path = self.interrupted.pop(topic_partition, (None, None))
        if folder is not None and path is not None and not folder.failed:
            self._discard(folder, path)

    def fail_folder(self, folder: DataFolder) -> None:
        """Lets go of all copies to or from a data folder that failed; the next start goes on."""
        for topic_partition, future in list(self.under_way.items()):
            if folder in (future.folder, self._folder_of.get(topic_partition)):
                self._let_go(topic_partition)

    def close(self) -> None:
        """Lets go of all copies; the next start begins them anew."""
        for topic_partition in list(self.under_way):
            self._let_go(topic_partition)

    # -- its end -----------------------------------------------------------------------------------

    def take_over(
        self, topic_partition: TopicPartition, high_watermarks: Mapping[TopicPartition, int]
    ) -> PartitionLog:
        """The copy becomes the log; returns it, opened anew. It must have every record of the
        current one. `high_watermarks`: of all partitions, as they are now.

        When it raises and the copy is still under way, the current log stays. LogBusyError: the
        copy too, for another try. LogFolderError: the folder of the copy has failed. When the copy
        is not under way any more: LogStorageError: the current log stays, the copy is gone.
        LogFolderError: nobody may write to the partition until the next start.
        """
        future = self.under_way[topic_partition]
        current, folder = future.current, future.folder
        source = self._folder_of[topic_partition]
        assert not future.lag and not future.cuts.begun_anew, "the copy has everything"
        moved, log = self._complete(topic_partition, future, high_watermarks)
        removed = self._exchange(topic_partition, log, moved, folder)
        log.folder_is_renamed(folder.path / str(topic_partition))
        log.take_epochs_of(current)
        self._logs[topic_partition] = log
        self._folder_of[topic_partition] = folder
        folder.high_watermarks[topic_partition] = high_watermarks.get(topic_partition, 0)
        current.close_without_flush()
        self._remove_later(removed)
        logger.info("moved partition=%s from=%s to=%s", topic_partition, source.path, folder.path)
        return log

    def _complete(
        self,
        topic_partition: TopicPartition,
        future: FutureLog,
        high_watermarks: Mapping[TopicPartition, int],
    ) -> tuple[Path, PartitionLog]:
        """Brings the copy to the medium, with all that is known of the log; its path, and the copy
        opened as the log. After it nobody needs a descriptor."""
        copied, folder = future.log, future.folder
        path = copied.directory
        moved = path.with_name(path.name.removesuffix(FUTURE_FOLDER_SUFFIX) + MOVED_FOLDER_SUFFIX)
        future.was_completed = True
        log: PartitionLog | None = None
        try:
            copied.take_state_of(future.current)
            copied.close()
            self._checkpoints.incoming[topic_partition] = copied, folder
            try:
                self._checkpoints.write_lowered(folder)
                self._checkpoints.write_high_watermarks(folder, high_watermarks)
            finally:
                del self._checkpoints.incoming[topic_partition]
            # Before the names change: for want of descriptors it would be nobody's log then.
            log = self._open_log(
                path,
                folder,
                future.current,
                log_start_offset=future.current.log_start_offset,
                recovery_point=copied.log_end_offset,
                grows=False,
            )
            self._disk.rename(path, moved)
            folder.sync_names()
        except (OSError, LogStorageError) as error:
            if log is not None:
                log.close_without_flush()
            failure = (
                storage_error("complete the copy in", path, error, unchanged=True)
                if isinstance(error, OSError)
                else error
            )
            is_renamed = self._disk.exists(moved)
            if isinstance(failure, LogFolderError) or (
                isinstance(failure, LogBusyError) and not is_renamed
            ):
                raise failure from error
            self._let_go(topic_partition)
            self._discard(folder, moved if is_renamed else path)
            raise LogStorageError(f"{path} can't become the log: {error}") from error
        self._let_go(topic_partition)
        return moved, log

    def _exchange(
        self, topic_partition: TopicPartition, log: PartitionLog, moved: Path, folder: DataFolder
    ) -> Path:
        """Has the copy take the log's name; the path of what was the log. Raises as `take_over`."""
        source = self._folder_of[topic_partition]
        name = str(topic_partition)
        removed: Path | None = None
        try:
            removed = source.rename_out(topic_partition, DELETED_FOLDER_SUFFIX)
            source.sync_names()
            self._disk.rename(moved, folder.path / name)
            folder.sync_names()
        except OSError as error:
            log.close_without_flush()
            # Not after a sync: one that has failed is of a folder that has.
            if removed is not None and passes_by_itself(error) and self._disk.exists(moved):
                removed = self._taken_back(removed, source, name)
            if removed is None:
                self._discard(folder, moved)
                raise LogStorageError(
                    f"{topic_partition} stays in {source.path}, a folder can't be renamed: {error}"
                ) from error
            # Until then the checkpoint files of both folders tell of it.
            self._checkpoints.incoming[topic_partition] = log, folder
            raise LogFolderError(
                f"{topic_partition} moves from {source.path} to {folder.path}, and only the next"
                f" start can tell which of the two holds it: {error}"
            ) from error
        return removed

    # -- helpers -----------------------------------------------------------------------------------

    def _taken_back(self, removed: Path, source: DataFolder, name: str) -> Path | None:
        """Gives the log its name again, on the medium; None when it has it."""
        try:
            self._disk.rename(removed, source.path / name)
            source.sync_names()
        except OSError as error:
            logger.error("log not named again folder=%s error=%s", removed, error)
            return removed
        return None

    def _new_copy(self, current: PartitionLog, folder: DataFolder, path: Path) -> PartitionLog:
        """An empty one; nothing is left of it when that fails."""
        try:
            # The order of records and tombstones must not change under the copy.
            current.cleaning.stop()
            topic_id = read_topic_id(self._disk, current.directory)
        except LogFolderError as error:
            # Of the folder that it leaves; its own reads will tell.
            raise LogStorageError(f"no copy can be made of {current.directory}: {error}") from error
        log: PartitionLog | None = None
        try:
            log = self._open_log(
                path,
                folder,
                current,
                log_start_offset=current.log_start_offset,
                recovery_point=0,
                grows=True,
            )
            if topic_id is not None:
                write_topic_id(self._disk, path, topic_id)
        except (OSError, LogStorageError) as error:
            if log is not None:
                log.close_without_flush()
            if self._disk.exists(path):
                self._discard(folder, path)
            if isinstance(error, OSError):
                raise storage_error("make a copy in", path, error, unchanged=True) from error
            raise
        return log

    def _let_go(self, topic_partition: TopicPartition) -> FutureLog | None:
        future = self.under_way.pop(topic_partition, None)
        if future is not None:
            future.current.unfollowed_cuts = None
            future.log.close_without_flush()
        return future

    def _remember(self, topic_partition: TopicPartition, folder: DataFolder, path: Path) -> None:
        if topic_partition in self.interrupted:
            # An older one, whose removal was interrupted too.
            self._discard(folder, path)
        else:
            self.interrupted[topic_partition] = folder, path

    def _discard(self, folder: DataFolder, path: Path) -> None:
        """Under another name at once, so that no start goes on with it."""
        gone = path.with_name(path.name.rpartition("-")[0] + DELETED_FOLDER_SUFFIX)
        try:
            self._disk.rename(path, gone)
            folder.sync_names()
        except OSError as error:
            logger.error("copy not removed folder=%s error=%s", path, error)
            return
        self._remove_later(gone)
