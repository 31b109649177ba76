"""All logs of a broker. Its one rule: a partition has one folder, in one of the data folders, and
one log open on it.

Opening locks the data folders, loads every partition, and recovers it when the last stop was not in
order. New partitions go to the data folder that has the fewest. A data folder whose disk fails is
left alone until the next start, with the partitions in it; the others go on. Source: R-LOG1,
R-LOG8, R-CTL4, R-CTL6, KIP-112.
"""

import logging
import resource
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from storage_engine.core.errors import (
    ErrorCode,
    KafkaError,
    LogFolderError,
    LogShortageError,
    LogStorageError,
    StorageError,
)
from storage_engine.core.ids import TAIL_LOST_NOW, BrokerEpoch, TopicPartition
from storage_engine.core.ports import Background, Clock
from storage_engine.core.system_errors import Reach, passes_by_itself, reach_of_file_error
from storage_engine.log.files.disk import REAL_DISK, Disk
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.files.storage_errors import storage_error
from storage_engine.log.folders.data_folder import (
    DELETED_FOLDER_SUFFIX,
    STRAY_FOLDER_SUFFIX,
    DataFolder,
    FolderFailedError,
)
from storage_engine.log.folders.folder_checkpoints import FolderCheckpoints
from storage_engine.log.folders.log_moves import LogMoves
from storage_engine.log.folders.log_opener import LogOpener
from storage_engine.log.folders.wanted_folders import WantedFolders
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.recovery.recovery_progress import RecoveryProgress, begin_progress
from storage_engine.log.state.partition_metadata import read_topic_id, write_topic_id

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
        reserve_bytes: int = 0,
    ) -> None:
        """Locks and checks the data folders; `load` opens the logs. StorageError when a folder
        must not be used, or none can be.

        `config_of` gives a topic's settings (default: `default_config` for all). Without
        `background`, long work is done where it is asked for. `reserve_bytes` stay free in each
        folder's file system; 0: nobody looks.
        """
        self._clock = clock
        self._disk = disk
        self._background = background
        self._pool = OpenFiles() if pool is None else pool
        self._config_of = config_of or (lambda topic: default_config)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._folder_of: dict[TopicPartition, DataFolder] = {}
        self._checkpoints = FolderCheckpoints(disk, self.logs, self._folder_of)
        self._opener = LogOpener(disk, clock, self._pool, self._checkpoints)
        self.moves = LogMoves(
            disk=disk,
            logs=self.logs,
            folder_of=self._folder_of,
            checkpoints=self._checkpoints,
            open_log=self._opener.open_copy,
            remove_later=self._remove_later,
        )
        self.wanted_folders = WantedFolders()
        self.on_folder_failed: Callable[[Path, Exception], None] = lambda path, error: None
        """Hears of a folder that failed in work that nobody else waits for."""
        self._leftovers: list[Path] = []
        """Folders of deleted partitions that are still to be removed."""
        self._lost: list[Path] = []
        """Folders that could not be used at the start: any unknown partition may be in them."""
        self._folders: list[DataFolder] = []
        failed: list[FolderFailedError] = []
        try:
            for path in dict.fromkeys(path.absolute() for path in log_dirs):
                try:
                    self._folders.append(
                        DataFolder(
                            disk,
                            path,
                            broker_id=broker_id,
                            cluster_id=cluster_id,
                            reserve_bytes=reserve_bytes,
                        )
                    )
                except FolderFailedError as error:
                    failed.append(error)
                    self._note_lost(path, error)
            if not self._folders:
                raise failed[0]
        except StorageError:
            self._unlock()
            raise
        self.is_new = all(folder.is_new for folder in self._folders)
        """No data folder held anything of a broker before."""
        self.was_clean_shutdown = all(folder.was_clean_shutdown for folder in self._folders)
        """The last stop was in order on every data folder; False for folders that are new."""
        self.recovered_bytes = 0
        self._loaded = False

    # -- life --------------------------------------------------------------------------------------

    def load(self, cluster_id: str | None = None) -> None:
        """Opens all logs. From here on a stop without `close` is unclean. A folder that fails is
        left out while there is another.
        """
        if cluster_id is not None:
            self.set_cluster_id(cluster_id)
        self._in_each_folder(self._begin)
        self._recover_moves()
        self._load_logs(self._find_partitions())
        self._in_each_folder(self._checkpoints.lower_recovery_points)
        self._in_each_folder(self._tell_gaps)
        self._loaded = True

    def close(self) -> None:
        """Flushes and closes all logs, writes the checkpoints, marks the stop as clean, unlocks the
        folders. After a `load` that failed or never was, it only lets go.
        """
        if not self._loaded:
            self.abandon()
            return
        self._loaded = False
        self.moves.close()
        failed: LogStorageError | None = None
        for step in (PartitionLog.settle, PartitionLog.close):
            for topic_partition, log in self.logs.items():
                if self._folder_of[topic_partition].failed:
                    log.close_without_flush()
                    continue
                try:
                    step(log)
                except LogStorageError as error:
                    logger.error("log not closed partition=%s error=%s", topic_partition, error)
                    failed = error
        for folder in self._working:
            try:
                self._checkpoints.write_lowered(folder)
                self._checkpoints.write_scrub_times(folder)
                if failed is None:
                    folder.mark_clean()
            except OSError as error:
                failed = LogStorageError(f"can't write the checkpoints: {error}")
        self._unlock()
        if failed is not None:
            raise failed

    def abandon(self) -> None:
        """Lets go of files and locks without a flush, as if the process had been killed."""
        self._loaded = False
        self.moves.close()
        for log in self.logs.values():
            log.close_without_flush()
        self._unlock()

    def set_cluster_id(self, cluster_id: str) -> None:
        """Keeps the cluster's id in the data folders; StorageError when they belong to another
        cluster.
        """
        self._in_each_folder(lambda folder: folder.set_cluster_id(cluster_id))

    @property
    def tail_lost_epoch(self) -> BrokerEpoch:
        """The broker's first incarnation since a stop that may have cut one of its logs (not
        flushed, and the machine went down); TAIL_LOST_NOW: since the last stop; NO_TAIL_LOST:
        never.
        """
        epochs = [folder.tail_lost_epoch for folder in self._folders]
        return TAIL_LOST_NOW if TAIL_LOST_NOW in epochs else max(epochs)

    def keep_tail_lost_epoch(self, epoch: BrokerEpoch) -> None:
        """The broker registered: what TAIL_LOST_NOW stood for."""

        def keep(folder: DataFolder) -> None:
            if folder.tail_lost_epoch == TAIL_LOST_NOW:
                folder.keep_tail_lost_epoch(epoch)

        self._in_each_working_folder(keep)

    # -- folders -----------------------------------------------------------------------------------

    @property
    def working_folders(self) -> list[Path]:
        return [folder.path for folder in self._working]

    def fail_folder(self, path: Path) -> bool:
        """Leaves a data folder alone from now on; False when that is no news."""
        for folder in self._working:
            if folder.path == path:
                folder.failed = True
                self.moves.fail_folder(folder)
                return True
        return False

    def folder_at(self, path: Path) -> DataFolder:
        """A data folder to put logs into. KafkaError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR."""
        for folder in self._folders:
            if folder.path == path:
                if folder.failed:
                    raise LogFolderError(f"the data folder {path} failed")
                return folder
        if path in self._lost:
            raise LogFolderError(f"the data folder {path} could not be used at the start")
        raise KafkaError(f"{path} is none of log.dirs", ErrorCode.LOG_DIR_NOT_FOUND)

    def remove_leftovers(self) -> None:
        """Once in a while: folders of deleted partitions that could not be removed before."""
        leftovers, self._leftovers = self._leftovers, []
        for path in leftovers:
            self._remove_later(path)

    def look_for_room(self) -> None:
        """Once in a while: what else was written to the disks counts from now on."""
        for folder in self._folders:
            folder.room.look_again()

    # -- partitions --------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self.logs.get(topic_partition)

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        config: LogConfig | None = None,
        *,
        topic_id: uuid.UUID | None = None,
    ) -> PartitionLog:
        """The partition's log; an empty one when there is none. A log of another topic that had
        the same name is put aside first. LogStorageError when it is, or may be, in a folder that
        failed.
        """
        log = self.logs.get(topic_partition)
        if log is not None and self._folder_of[topic_partition].failed:
            raise LogFolderError(f"the data folder of {topic_partition} failed")
        if log is not None and topic_id is not None:
            known = read_topic_id(self._disk, log.directory)
            if known is None:
                write_topic_id(self._disk, log.directory, topic_id, sync=True)
            elif known != topic_id:
                target = self._take_out(log, STRAY_FOLDER_SUFFIX)
                logger.error(
                    "log of an earlier topic put aside partition=%s topic_id=%s folder=%s: the"
                    " topic of that name is now %s; remove the folder when nobody needs it",
                    topic_partition, known, target, topic_id,
                )  # fmt: skip
                log = None
        if log is None:
            folder = self._folder_for_new(topic_partition)
            try:
                self._checkpoints.forget(folder, topic_partition)
            except OSError as error:
                raise storage_error(
                    "write the checkpoints of", folder.path, error, unchanged=True
                ) from error
            log = self._open(folder, topic_partition, config, clean=True)
            if topic_id is not None:
                write_topic_id(self._disk, log.directory, topic_id)
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
        if self._folder_of[topic_partition].failed:
            raise LogFolderError(f"the data folder of {topic_partition} failed")
        target = self._take_out(log, DELETED_FOLDER_SUFFIX)
        self._remove_later(target)
        logger.info("log deleted partition=%s", topic_partition)

    def put_aside(self, topic_partition: TopicPartition) -> None:
        """Takes the log of a topic that is gone out of sight; its files stay."""
        log = self.logs.get(topic_partition)
        if log is None:
            return
        if self._folder_of[topic_partition].failed:
            raise LogFolderError(f"the data folder of {topic_partition} failed")
        target = self._take_out(log, STRAY_FOLDER_SUFFIX)
        logger.error(
            "log put aside, its topic is gone partition=%s folder=%s: remove the folder when nobody"
            " needs it",
            topic_partition, target,
        )  # fmt: skip

    def remove_files(self, paths: list[Path]) -> None:
        """Removes files of deleted segments (see `PartitionLog.take_deleted_files`); on any thread.
        When one can't be removed, the others are all the same: they may be on other disks.
        """
        for path in paths:
            try:
                self._disk.remove(path)
            except OSError as error:
                logger.error("file of a deleted segment stays file=%s error=%s", path, error)

    # -- checkpoints -------------------------------------------------------------------------------

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """What was kept last, or that of the checkpoint file as it was at the start, at most the
        log's end (and where what was not flushed may be lost, at most what was flushed); 0 when
        there is none.
        """
        log = self.logs.get(topic_partition)
        if log is None:
            return 0
        known = self._folder_of[topic_partition].high_watermarks.get(topic_partition, 0)
        return min(known, log.log_end_offset)

    def keep_high_watermark(self, topic_partition: TopicPartition, high_watermark: int) -> None:
        """The replica ends for now: the next one of the log begins with this."""
        folder = self._folder_of.get(topic_partition)
        if folder is not None:
            folder.high_watermarks[topic_partition] = high_watermark

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keeps the high watermarks of the logs that are here."""
        self._in_each_working_folder(
            lambda folder: self._checkpoints.write_high_watermarks(folder, offsets)
        )

    def write_recovery_points(self) -> None:
        self._in_each_working_folder(self._checkpoints.write_recovery_points)

    def write_log_starts(self) -> dict[Path, OSError]:
        """The data folders where that failed, and why."""
        return self._in_each_working_folder(self._checkpoints.write_log_starts)

    def write_cleaner_offsets(self) -> None:
        """Up to where each log was compacted."""
        self._in_each_working_folder(self._checkpoints.write_cleaner_offsets)

    def write_scrub_times(self) -> None:
        """When the older segments of each log were last gone through."""
        self._in_each_working_folder(self._checkpoints.write_scrub_times)

    def _in_each_working_folder(self, write: Callable[[DataFolder], object]) -> dict[Path, OSError]:
        """A folder that fails keeps none of the others from it."""
        failed = {}
        for folder in self._working:
            try:
                write(folder)
            except OSError as error:
                logger.error("checkpoint not written folder=%s error=%s", folder.path, error)
                failed[folder.path] = error
                if not passes_by_itself(error):
                    self.on_folder_failed(folder.path, error)
        return failed

    # -- helpers -----------------------------------------------------------------------------------

    @property
    def _working(self) -> list[DataFolder]:
        return [folder for folder in self._folders if not folder.failed]

    def _note_lost(self, path: Path, error: Exception) -> None:
        logger.error("data folder left out until the next start folder=%s: %s", path, error)
        self._lost.append(path)

    def _lose(self, folder: DataFolder, error: Exception) -> None:
        """While starting: goes on without a folder; StorageError when it was the last."""
        folder.failed = True
        if not self._working:
            raise StorageError(f"can't load the logs in {folder.path}: {error}") from error
        self._note_lost(folder.path, error)
        for topic_partition in [tp for tp, at in self._folder_of.items() if at is folder]:
            self.logs.pop(topic_partition).close_without_flush()
            del self._folder_of[topic_partition]

    def _in_each_folder(self, work: Callable[[DataFolder], None]) -> None:
        """While starting."""
        for folder in self._working:
            try:
                work(folder)
            except OSError as error:
                if reach_of_file_error(error) is Reach.SHORTAGE:
                    raise _cannot_start(error) from error
                self._lose(folder, error)
            except LogFolderError as error:
                self._lose(folder, error)

    def _tell_gaps(self, folder: DataFolder) -> None:
        """From here on every gap between two segments lies below the recovery point on the medium,
        but for those that crashes leave. Earlier releases did not see to that."""
        if folder.tells_gaps:
            return
        try:
            for topic_partition, log in self.logs.items():
                if self._folder_of[topic_partition] is folder and log.cleaning.may_have_gaps:
                    log.flush()
        except LogFolderError:
            # What a failed fsync leaves on the medium nobody knows.
            raise
        except LogStorageError as error:
            logger.warning("gaps are not told apart before the next start: %s", error)
            return
        self._checkpoints.write_recovery_points(folder)
        folder.keep_that_gaps_tell()

    def _begin(self, folder: DataFolder) -> None:
        folder.begin()
        for leftover in folder.deleted_folders():
            self._remove_later(leftover)

    def _folder_for_new(self, topic_partition: TopicPartition) -> DataFolder:
        if self._lost:
            raise LogFolderError(
                f"no log made for {topic_partition}: it may be in {self._lost[0]}, which could not"
                " be used at the start; repair it, or take it out of log.dirs, and restart"
            )
        if not self._working:
            raise LogFolderError(f"no log made for {topic_partition}: all data folders failed")
        working = self._working
        wanted = self.wanted_folders.take(topic_partition)
        for folder in working:
            if folder.path == wanted:
                return folder
        if len(working) == 1:
            return working[0]
        logs = Counter(map(id, self._folder_of.values()))
        return min(working, key=lambda folder: logs[id(folder)])

    def _find_partitions(self) -> list[tuple[DataFolder, TopicPartition]]:
        places: dict[TopicPartition, DataFolder] = {}

        def look(folder: DataFolder) -> None:
            for topic_partition in folder.partitions():
                if topic_partition in places:
                    raise StorageError(
                        f"partition {topic_partition} is in two data folders,"
                        f" {places[topic_partition].path} and {folder.path}: move one of them away"
                    )
                places[topic_partition] = folder

        self._in_each_folder(look)
        return [(folder, topic_partition) for topic_partition, folder in places.items()]

    def _load_logs(self, found: list[tuple[DataFolder, TopicPartition]]) -> None:
        progress = {
            folder: begin_progress(
                self._disk,
                self._clock,
                folder.path,
                {
                    folder.path / str(tp): folder.recovery_points.get(tp, 0)
                    for at, tp in found
                    if at is folder
                },
                clean=folder.was_clean_shutdown,
            )
            for folder in self._working
        }
        for folder, topic_partition in found:
            if folder.failed:
                continue
            try:
                log = self._open(
                    folder,
                    topic_partition,
                    None,
                    clean=folder.was_clean_shutdown,
                    progress=progress[folder],
                )
            except LogShortageError as error:
                raise _cannot_start(error) from error
            except (OSError, LogStorageError) as error:
                self._lose(folder, error)
                continue
            # After an unclean stop also what lies below the recovery points is checked soon.
            known_ms = folder.scrub_times.get(topic_partition, 0)
            log.scrubbed_ms = min(known_ms, log.scrubbed_ms) if folder.was_clean_shutdown else 0
            self.recovered_bytes += log.recovered_bytes
            progress[folder].opened()
        logger.info(
            "logs loaded partitions=%d clean=%s recovered_bytes=%d",
            len(self.logs),
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
        progress: RecoveryProgress | None = None,
    ) -> PartitionLog:
        log = self._opener.open(
            folder,
            topic_partition,
            config or self._config_of(topic_partition.topic),
            clean=clean,
            progress=progress,
        )
        self.logs[topic_partition] = log
        self._folder_of[topic_partition] = folder
        return log

    def _recover_moves(self) -> None:
        try:
            self.moves.recover(self._working)
        except OSError as error:
            raise StorageError(
                f"a replica that was moved between data folders can't get its name: {error}"
            ) from error

    def _take_out(self, log: PartitionLog, suffix: str) -> Path:
        """Renames the folder, so that it is no partition's any more, and forgets the log."""
        topic_partition = log.topic_partition
        self.moves.cancel(topic_partition)
        try:
            target = self._folder_of[topic_partition].rename_out(topic_partition, suffix)
        except OSError as error:
            # It is still known, so that the next try does not take it for gone.
            raise storage_error("rename", log.directory, error) from error
        del self.logs[topic_partition]
        del self._folder_of[topic_partition]
        log.close_without_flush()
        return target

    def _remove_later(self, path: Path) -> None:
        def failed(error: Exception) -> None:
            logger.error("folder not removed, it stays for now folder=%s error=%s", path, error)
            self._leftovers.append(path)

        if self._background is not None:
            self._background.submit(lambda: self._disk.remove_tree(path), lambda _: None, failed)
            return
        try:
            self._disk.remove_tree(path)
        except OSError as error:
            failed(error)

    def _unlock(self) -> None:
        for folder in self._folders:
            folder.unlock()


def _cannot_start(error: Exception) -> StorageError:
    """Not the disk's fault: without its logs a broker would lead empty ones."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return StorageError(
        f"can't load the logs: {error}; this process may have {limit} files open: raise that limit"
        " (ulimit -n) or give the machine memory, and start again"
    )
