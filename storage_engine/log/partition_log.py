"""The log of one partition: how its parts act together. Its one rule: one owner, one thread.

The list of segments is a tuple that is replaced as a whole, so that whoever goes through it or
holds a slice is never disturbed by a roll or a deletion. Bytes are stored as they came; of each
batch only the header is looked at. Here is what goes in, and how it comes to the medium; what goes
out is in the classes below: `ReadableLog`, `StatefulLog`, `CuttableLog`, `RepairableLog`. Source:
R-LOG1 to R-LOG4, R-LOG9, R-LOG12, R-REP8.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from storage_engine.core.errors import CorruptRecordError, LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.retained.producer_state import ANY_FORGOTTEN
from storage_engine.core.transactions.partition_transactions import TransactionMarker
from storage_engine.log.appending.append_check import follower_batches, has_gaps
from storage_engine.log.appending.append_preparation import Requirement
from storage_engine.log.appending.append_result import AppendResult
from storage_engine.log.appending.leader_appends import LeaderAppends
from storage_engine.log.files.disk import REAL_DISK, Disk
from storage_engine.log.files.free_space import FreeSpace
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.files.storage_errors import storage_errors
from storage_engine.log.log_config import LogConfig
from storage_engine.log.recovery.log_loader import LogFolder
from storage_engine.log.repairable_log import RepairableLog
from storage_engine.log.segments.placing import MAX_RELATIVE_OFFSET, runs_of
from storage_engine.log.state.flush_job import FlushJob
from storage_engine.protocol.records.batch_columns import BatchColumns
from storage_engine.protocol.records.record_batch import read_header

logger = logging.getLogger(__name__)


class PartitionLog(RepairableLog):
    """Invariant: log_start_offset <= log_end_offset, and recovery_point <= log_end_offset."""

    __slots__ = ("_leader_appends", "_room")

    def __init__(
        self,
        folder: LogFolder,
        topic_partition: TopicPartition,
        *,
        clock: Clock,
        log_start_offset: int,
        recovery_point: int,
        first_dirty_offset: int,
        clean: bool,
        room: FreeSpace,
        on_recovery_point_lowered: Callable[[], None],
        saved_recovery_point: Callable[[], int] | None,
        no_gap_above: int | None = None,
    ) -> None:
        """Use `open`."""
        super().__init__(
            folder,
            topic_partition,
            clock=clock,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            first_dirty_offset=first_dirty_offset,
            clean=clean,
            on_recovery_point_lowered=on_recovery_point_lowered,
            saved_recovery_point=saved_recovery_point,
            no_gap_above=no_gap_above,
        )
        self._room = room
        self._leader_appends = LeaderAppends(self._tail, room)

    @classmethod
    def open(
        cls,
        directory: Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        clock: Clock,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        first_dirty_offset: int = 0,
        clean: bool = False,
        disk: Disk = REAL_DISK,
        pool: OpenFiles | None = None,
        room: FreeSpace | None = None,
        on_recovery_point_lowered: Callable[[], None] = lambda: None,
        on_checked: Callable[[int], None] = lambda size: None,
        saved_recovery_point: Callable[[], int] | None = None,
        no_gap_above: int | None = None,
    ) -> "PartitionLog":
        """Opens the log in `directory`, or makes an empty one that begins at `log_start_offset`.

        `clean`: the last stop was in order, so that nothing needs to be checked.
        `first_dirty_offset`: below it the log was compacted. `on_recovery_point_lowered` is called
        within a truncation, and must bring the new recovery point and first dirty offset to the
        medium. `room` is that of the data folder; None: nobody looks. `on_checked` hears of the
        bytes that opening has gone through. `saved_recovery_point` tells which one is on the medium
        (None: nobody keeps it). `no_gap_above`: see `load_log`.
        """
        folder = LogFolder(
            disk=disk,
            pool=OpenFiles() if pool is None else pool,
            path=directory,
            config=config,
            on_checked=on_checked,
        )
        return cls(
            folder,
            topic_partition,
            clock=clock,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            first_dirty_offset=first_dirty_offset,
            clean=clean,
            room=FreeSpace(disk, directory) if room is None else room,
            on_recovery_point_lowered=on_recovery_point_lowered,
            saved_recovery_point=saved_recovery_point,
            no_gap_above=no_gap_above,
        )

    # -- append ------------------------------------------------------------------------------------

    @property
    def append_requirement(self) -> Requirement | None:
        """What producers' batches must be before they are appended; None: anything sound."""
        return self._tail.requirement

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        allow_transactional: bool = True,
        keys_checked: bool = False,
    ) -> AppendResult:
        """Checks a producer's batches, gives them offsets (in `records` itself if it is writable),
        stores them.

        `allow_transactional` False: none of them may be of a transaction, since nobody would end
        it. `keys_checked`: a preparation has seen that every record has a key, so that a compacted
        log need not look. Control batches are always refused: see `append_marker`. Raises what the
        producer is to get; the log is unchanged then.
        """
        return self._leader_appends.append(
            records,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            allow_transactional=allow_transactional,
            keys_checked=keys_checked,
        )

    def append_columns_as_leader(
        self, columns: BatchColumns, *, leader_epoch: int, now_ms: int
    ) -> list[int] | None:
        """As `append_as_leader` of each of these batches, none of a transaction, in one write:
        their base offsets, then the offset that follows.

        None, and nothing is done, unless all of them are good and go to the active segment as they
        are. Raises what all of them are to get.
        """
        return self._leader_appends.append_columns(
            columns, leader_epoch=leader_epoch, now_ms=now_ms
        )

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: TransactionMarker,
        *,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult:
        """Ends the producer's transaction in this partition, as its coordinator says; a marker
        without data before it is harmless.

        InvalidProducerEpochError, TransactionCoordinatorFencedError: the log knows a newer producer
        or coordinator, and is unchanged.
        """
        return self._leader_appends.append_marker(
            producer_id, producer_epoch, marker, leader_epoch=leader_epoch, now_ms=now_ms
        )

    def note_refused(self, records: memoryview) -> None:
        """The leader has refused these batches of a producer, who will send them again."""
        with contextlib.suppress(CorruptRecordError):
            first = read_header(records)
            if first.producer_id >= 0:
                self.producer_state.note_refused(
                    first.producer_id, first.producer_epoch, first.base_sequence
                )

    def append_as_follower(self, records: memoryview) -> AppendResult:
        """Stores a leader's batches at the leader's offsets; a batch cut off at the end is left
        out.

        CorruptRecordError when they are damaged or do not go on where the log ends.
        """
        segments = self._segments
        self._segments.check_whole()
        is_empty = segments.active.size == 0 and len(segments) == 1
        batches = follower_batches(records, self.log_end_offset, empty=is_empty)
        if not batches:
            end = self.log_end_offset
            return AppendResult(end, end - 1, end, -1, False, 0)
        self._room.take(len(records))
        base_offset = batches[0][1].base_offset
        if is_empty and base_offset < segments.active.base_offset:
            self._start_anew_at(base_offset)
        self._epochs.note_batches(batches)
        if has_gaps(batches, self.log_end_offset):
            self.producer_state.forgotten_to = ANY_FORGOTTEN
            self._keep_that_offsets_are_missing()
            if batches[-1][1].last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET:
                # The next segment can't begin where this one ends: see `log_loader.Gaps`.
                self.flush()
        now_ms = self._clock.wall_ms()
        size = 0
        for begin, end, placed in runs_of(batches, self._tail.roll_rule.segment_bytes):
            self._tail.write(records[begin:end], placed, now_ms, False)
            size += end - begin
        end_offset = self.log_end_offset
        return AppendResult(base_offset, end_offset - 1, end_offset, -1, False, size)

    def end_at(self, offset: int) -> None:
        """Of a log without the offsets from its end to `offset`, as another is that was compacted
        and then cut: what is appended next gets `offset`."""
        self._segments.check_whole()
        self._keep_that_offsets_are_missing()
        # Recovery takes a gap that is not flushed for what a crash has left.
        self.flush()
        if self._segments.active.size == 0 and len(self._segments) == 1:
            self._start_anew_at(offset)
        else:
            with storage_errors("roll", self.directory, unchanged=True):
                self._tail.roll(offset)

    def _keep_that_offsets_are_missing(self) -> None:
        """Whoever opens the log after a crash knows no policy of its topic yet."""
        if self.compaction.expect_gaps():
            try:
                with storage_errors(
                    "keep that offsets are missing in", self.directory, unchanged=True
                ):
                    self._on_lowered()
            except LogStorageError:
                # The next try must write it down before it stores the gap.
                self.compaction.first_dirty_offset = 0
                raise

    def take_state_of(self, log: "PartitionLog") -> None:
        """Of a log with the same records: the epochs and producers that the records alone don't
        tell, in the files as well, since their batches may be deleted or compacted."""
        self.take_epochs_of(log)
        self._tail.producers = log.producer_state
        with storage_errors("write", self.directory):
            self._snapshots.write(self.log_end_offset, self.producer_state)

    def take_epochs_of(self, log: "PartitionLog") -> None:
        """Of a log with the same records; among them one that began at the end, which opening
        forgets."""
        self._epochs.replace(log.leader_epochs.entries)

    def start_leader_epoch(self, epoch: int) -> None:
        """A leader of this epoch will write from the log's end on; a KafkaError when the log knows
        a newer one. Touches no file: the next flush does.
        """
        self._segments.check_whole()
        self._tail.start_epoch(epoch)

    # -- flush and close ---------------------------------------------------------------------------

    def needs_flush(self, now_ms: int) -> bool:
        """Whether `flush.messages`, `flush.ms` or a finished segment ask for a flush."""
        return self._flush_state.is_due(now_ms, self.log_end_offset, self._config)

    def prepare_flush(self) -> FlushJob:
        """A job that brings what is in the log now to the medium; its slow half may run on another
        thread.
        """
        self._segments.check_whole()
        return self._flush_state.prepare()

    def flush(self) -> None:
        """Everything in the log is on the medium when this returns."""
        while self.recovery_point < self.log_end_offset:
            self._flush_state.run(self.prepare_flush())

    def settle(self) -> None:
        """The part of `close` that writes; nothing may be appended after it.

        Whoever closes many logs settles all of them first: then their flushes find one state of
        the file system to bring to the medium, instead of a new one each.
        """
        if self._tail.closed:
            return
        self._segments.check_whole()
        self.compaction.stop()
        self._tail.closed = True
        if self._flush_state.settle(self.log_end_offset):
            # The snapshot without fsync: what a crash of the machine takes of it, opening notices.
            with storage_errors("close", self.directory):
                self._segments.active.seal()
                self._snapshots.write(self.log_end_offset, self.producer_state)

    def close(self) -> None:
        """Flushes, keeps the producers' state, and closes the files. Safe to call twice."""
        try:
            self.settle()
            while self._flush_state.is_behind(self.log_end_offset):
                self._flush_state.run(self.prepare_flush())
        finally:
            self._segments.close()

    def open_again(self) -> None:
        """Makes a change good that was cut short, as after a killed process: what is in memory is
        thrown away, and the files are recovered. LogStorageError where that does not go yet.
        """
        self.compaction.abandon()
        self._segments.close()
        scrubbed_ms, on_cut = self.scrubbed_ms, self.on_cut
        # In place, since many hold the log.
        PartitionLog.__init__(
            self,
            self._segments.folder,
            self.topic_partition,
            clock=self._clock,
            log_start_offset=self.log_start_offset,
            recovery_point=self.recovery_point,
            first_dirty_offset=self.compaction.first_dirty_offset,
            clean=False,
            room=self._room,
            on_recovery_point_lowered=self._on_lowered,
            saved_recovery_point=self._saved_recovery_point,
        )
        self.scrubbed_ms = scrubbed_ms
        self.on_cut = on_cut
        if on_cut is not None:
            # What recovery has dropped may be in a copy of the log.
            on_cut(None)
        logger.info(
            "opened again partition=%s end_offset=%d: a change had been cut short",
            self.topic_partition,
            self.log_end_offset,
        )

    def folder_is_renamed(self, path: Path) -> None:
        """Of a log that was just opened, so that no work is under way on its files. Touches none of
        them."""
        self._segments.folder_is_renamed(path)
        self._snapshots.folder_is_renamed(path)
        self._epochs.folder_is_renamed(path)
        self._tail.update_config(self._config)
        self.directory = path

    def close_without_flush(self) -> None:
        """Only closes the files: the log is to be deleted, or its disk has failed."""
        self._tail.closed = True
        self.compaction.abandon()
        self._segments.close()

    def delete(self) -> None:
        """Closes the log and removes its folder."""
        self.close_without_flush()
        with storage_errors("delete", self.directory):
            self._segments.folder.disk.remove_tree(self.directory)

    def take_doomed_files(self, now_ms: int) -> list[Path]:
        """Files of deleted segments whose `file.delete.delay.ms` is over; the caller removes
        them.
        """
        return self._segments.take_doomed_files(now_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Forgets producers idle for `producer.id.expiration.ms`; their number."""
        return self.producer_state.expire(now_ms, self._config.producer_id_expiration_ms)

    def update_config(self, config: LogConfig) -> None:
        """Takes new settings, from the next append on. Of a log that was compacted and is no more,
        the first dirty offset must be kept: it tells of the gaps."""
        if self._config.compacts and not config.compacts:
            self.compaction.expect_gaps()
        self._config = config
        self._segments.folder = replace(self._segments.folder, config=config)
        self._tail.update_config(config)
