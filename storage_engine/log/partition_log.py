"""The log of one partition: its state, and the parts that read and change it. It has one owner and
one thread.

The list of segments is a tuple that is replaced as a whole, so that a roll or a deletion never
disturbs a reader of the tuple or of a slice. Bytes are stored as they were sent; only the header of
each batch is examined. Source: R-LOG1 to R-LOG4, R-LOG9, R-LOG12, R-REP8.
"""

import logging
from dataclasses import replace
from pathlib import Path

from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.retained.producer_state import IDLE_MS
from storage_engine.log.append_rules import append_rules_of
from storage_engine.log.files.disk import REAL_DISK, Disk, FreeSpace, storage_errors
from storage_engine.log.files.segment_files import OpenFiles
from storage_engine.log.follower_appends import FollowerAppends
from storage_engine.log.leader_appends import LeaderAppends
from storage_engine.log.log_config import LogConfig
from storage_engine.log.log_state import LogState
from storage_engine.log.reads import LogReads
from storage_engine.log.recovery.log_loader import LogStart
from storage_engine.log.recovery.recovery import RecoveryProgress
from storage_engine.log.segments.segment_list import LogFolder
from storage_engine.log.state.checkpoints import LogCheckpoints, NoCheckpoints
from storage_engine.log.truncation import Truncation
from storage_engine.log.upkeep import Compaction, Repair, Retention

NO_CHECKPOINTS = NoCheckpoints()
UNKNOWN_START = LogStart()

logger = logging.getLogger(__name__)


class PartitionLog(LogState):
    """A log's state with its parts, and the operations on the whole log: flush, close, settings."""

    def __init__(
        self,
        folder: LogFolder,
        topic_partition: TopicPartition,
        start: LogStart,
        *,
        clock: Clock,
        room: FreeSpace,
        checkpoints: LogCheckpoints,
        progress: RecoveryProgress | None = None,
    ) -> None:
        """Opens the log in `folder`, or creates an empty one. LogStorageError when that fails."""
        super().__init__(
            folder,
            topic_partition,
            start,
            clock=clock,
            room=room,
            checkpoints=checkpoints,
            progress=progress,
        )
        self.reads = LogReads(self)
        self.leader_appends = LeaderAppends(self)
        self.truncation = Truncation(self)
        self.follower_appends = FollowerAppends(self, self.truncation)

    # Those of the rare work are made for it: thousands of idle logs need none.

    @property
    def retention(self) -> Retention:
        return Retention(self)

    @property
    def compaction(self) -> Compaction:
        return Compaction(self)

    @property
    def repair(self) -> Repair:
        return Repair(self)

    @classmethod
    def open(
        cls,
        directory: Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        start: LogStart = UNKNOWN_START,
        *,
        clock: Clock,
        disk: Disk = REAL_DISK,
        pool: OpenFiles | None = None,
        room: FreeSpace | None = None,
        checkpoints: LogCheckpoints = NO_CHECKPOINTS,
    ) -> "PartitionLog":
        """Opens a log that may have no log dir around it. `room` None: the free space is never
        checked."""
        return cls(
            LogFolder(
                disk=disk,
                pool=OpenFiles() if pool is None else pool,
                path=directory,
                config=config,
            ),
            topic_partition,
            start,
            clock=clock,
            room=FreeSpace(disk, directory) if room is None else room,
            checkpoints=checkpoints,
        )

    def flush(self) -> None:
        """Brings everything in the log to the medium."""
        self.flush_state.flush()

    def settle(self) -> None:
        """Does the writing part of `close`; nothing may be appended after it.

        A caller that closes many logs settles all of them first: then their flushes bring one state
        of the file system to the medium, instead of a new one each.
        """
        if self.is_closed:
            return
        self.segments.check_whole()
        self.cleaning.stop()
        self.is_closed = True
        if self.flush_state.settle():
            # The snapshot is not synced: if a crash of the machine damages it, opening notices
            # that.
            with storage_errors("close", self.directory):
                self.segments.active.seal()
                self.write_snapshot()

    def close(self) -> None:
        """Flushes, keeps the producers' state, and closes the files. Safe to call twice."""
        try:
            self.settle()
            while self.flush_state.is_behind:
                self.flush_state.run(self.flush_state.prepare())
        finally:
            self.segments.close()

    def close_without_flush(self) -> None:
        """Closes the files without a flush, because the log is to be deleted, or its disk has
        failed."""
        self.is_closed = True
        self.cleaning.abandon()
        self.segments.close()

    def delete(self) -> None:
        """Closes the log and removes its folder."""
        self.close_without_flush()
        with storage_errors("delete", self.directory):
            self.disk.remove_tree(self.directory)

    def open_again(self) -> None:
        """Ends a change that was cut short, as after a killed process: the state in memory is
        dropped, and the files are recovered. LogStorageError where that is not possible yet.
        """
        self.cleaning.abandon()
        self.segments.close()
        scrubbed_ms, unfollowed_cuts = self.scrubbed_ms, self.unfollowed_cuts
        # The object stays the same, since many refer to the log, and its parts to this object.
        LogState.__init__(
            self,
            self.segments.folder,
            self.topic_partition,
            LogStart(
                log_start_offset=self.log_start_offset,
                recovery_point=self.recovery_point,
                first_dirty_offset=self.cleaning.first_dirty_offset,
            ),
            clock=self.clock,
            room=self.room,
            checkpoints=self.checkpoints,
        )
        self.scrubbed_ms = scrubbed_ms
        self.unfollowed_cuts = unfollowed_cuts
        if unfollowed_cuts is not None:
            # A copy of the log may have what recovery has dropped.
            unfollowed_cuts.note_new_beginning()
        logger.info(
            "opened again partition=%s end_offset=%d: a change had been cut short",
            self.topic_partition,
            self.log_end_offset,
        )

    def update_config(self, config: LogConfig) -> None:
        """Takes new settings, from the next append on. When the log is not compacted any more, its
        first dirty offset must stay above 0, since that says that offsets are missing."""
        if self.config.compacts and not config.compacts:
            self.cleaning.expect_gaps()
        self.segments.folder = replace(self.segments.folder, config=config)
        self.append_rules = append_rules_of(self.segments.folder)

    def expire_producers(self, now_ms: int, *, is_crowded: bool = False) -> int:
        """Forgets producers idle for `producer.id.expiration.ms`; returns their number.
        `is_crowded`: the broker has many, see `IDLE_MS`."""
        expiration_ms = self.config.producer_id_expiration_ms
        if is_crowded:
            expiration_ms = min(expiration_ms, IDLE_MS)
        return self.producer_state.expire(now_ms, expiration_ms)

    def take_state_of(self, log: "PartitionLog") -> None:
        """Takes epochs and producers from a log with the same records, in the files as well: they
        can't be learned from the records alone, since some may be deleted or compacted."""
        self.take_epochs_of(log)
        self.producer_state = log.producer_state
        with storage_errors("write", self.directory):
            self.write_snapshot()

    def take_epochs_of(self, log: "PartitionLog") -> None:
        """Takes the epochs of a log with the same records, including one that began at the end,
        which opening forgets."""
        self.epoch_checkpoint.replace(log.leader_epochs.entries)

    def folder_is_renamed(self, path: Path) -> None:
        """Records the new path of a log that was just opened. No file is touched."""
        self.segments.folder_is_renamed(path)
        self.snapshots.folder_is_renamed(path)
        self.epoch_checkpoint.folder_is_renamed(path)
        self.append_rules = append_rules_of(self.segments.folder)
