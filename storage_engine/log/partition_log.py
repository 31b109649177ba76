"""The log of one partition: how its parts act together. Its one rule: one owner, one thread.

The list of segments is a tuple that is replaced as a whole, so that whoever goes through it or
holds a slice is never disturbed by a roll or a deletion. Bytes are stored as they came; of each
batch only the header is looked at. Source: R-LOG1 to R-LOG4, R-LOG9, R-LOG12, R-REP8.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from storage_engine.core.compaction import CompactionPlan
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.partition_transactions import AbortedTransaction, TransactionMarker
from storage_engine.core.ports import Clock
from storage_engine.core.producer_state import ProducerStates
from storage_engine.log.aborted_transactions import check_transaction_index, find_aborted
from storage_engine.log.append_check import (
    follower_batches,
    has_gaps,
)
from storage_engine.log.append_result import AppendResult
from storage_engine.log.compaction_job import CompactionJob
from storage_engine.log.disk import REAL_DISK, Disk
from storage_engine.log.flush_job import FlushJob
from storage_engine.log.flush_state import FlushState
from storage_engine.log.free_space import FreeSpace
from storage_engine.log.leader_appends import LeaderAppends, only_outcome
from storage_engine.log.leader_epoch_checkpoint import LeaderEpochCheckpoint
from storage_engine.log.log_compaction import LogCompaction
from storage_engine.log.log_config import LogConfig
from storage_engine.log.log_loader import LogFolder, load_log
from storage_engine.log.log_tail import LogTail
from storage_engine.log.open_files import OpenFiles
from storage_engine.log.placing import runs_of
from storage_engine.log.producer_replay import load_producers
from storage_engine.log.readable_log import ReadableLog
from storage_engine.log.retention import count_deletable
from storage_engine.log.segment_list import SegmentList
from storage_engine.log.segment_patch import Replacements
from storage_engine.log.segment_scrub import BadRange, SegmentScrub
from storage_engine.log.storage_errors import storage_errors
from storage_engine.protocol.batch_columns import BatchColumns

logger = logging.getLogger(__name__)


class PartitionLog(ReadableLog):
    """Invariant: log_start_offset <= log_end_offset, and recovery_point <= log_end_offset."""

    __slots__ = (
        "_clock",
        "_config",
        "_epochs",
        "_flush_state",
        "_leader_appends",
        "_on_lowered",
        "_room",
        "_snapshots",
        "_tail",
        "compaction",
        "recovered_bytes",
        "scrubbed_ms",
    )

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
    ) -> None:
        """Use `open`."""
        loaded = load_log(
            folder,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            has_gaps=folder.config.compacts or first_dirty_offset > 0,
            clean=clean,
            now_ms=clock.wall_ms(),
        )
        super().__init__(
            topic_partition,
            SegmentList(folder, loaded.segments, clock),
            loaded.epochs,
            log_start_offset=loaded.log_start_offset,
        )
        self._clock = clock
        self._room = room
        self._epochs = LeaderEpochCheckpoint(folder, loaded.epochs)
        self._snapshots = loaded.snapshots
        self._tail = LogTail(
            topic_partition, self._segments, self._epochs, loaded.snapshots, loaded.producers
        )
        self._leader_appends = LeaderAppends(self._tail, room)
        self.recovered_bytes = loaded.recovered_bytes
        """What opening had to check; 0 after a clean stop."""
        self._flush_state = FlushState(
            self._segments,
            self._epochs,
            clock,
            recovery_point=recovery_point,
            is_recovered=not clean,
            on_lowered=on_recovery_point_lowered,
        )
        self._on_lowered = on_recovery_point_lowered
        self.compaction = LogCompaction(
            self._segments,
            first_dirty_offset=first_dirty_offset,
            on_lowered=on_recovery_point_lowered,
        )
        self.scrubbed_ms = clock.wall_ms()
        """When the closed segments were last gone through; 0: it is high time."""
        self._config = folder.config

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
    ) -> "PartitionLog":
        """Opens the log in `directory`, or makes an empty one that begins at `log_start_offset`.

        `clean`: the last stop was in order, so that nothing needs to be checked.
        `first_dirty_offset`: below it the log was compacted. `on_recovery_point_lowered` is called
        within a truncation, and must bring the new recovery point and first dirty offset to the
        medium. `room` is that of the data folder; None: nobody looks. `on_checked` hears of the
        bytes that opening has gone through.
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
        )

    # -- facts -------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def producer_state(self) -> ProducerStates:
        """What the log knows of its producers."""
        return self._tail.producers

    @property
    def recovery_point(self) -> int:
        """Everything below is on the medium."""
        return self._flush_state.recovery_point

    @property
    def is_durable(self) -> bool:
        """Whether a crash of the machine would take nothing: no record, and no cut."""
        return not self._flush_state.is_behind(self.log_end_offset)

    # -- transactions ------------------------------------------------------------------------------

    def last_stable_offset(self, high_watermark: int) -> int:
        """Every transaction with a record below is ended for good: what read_committed may see."""
        transactions = self.producer_state.transactions
        stable = transactions.last_stable_offset(high_watermark)
        return min(max(stable, self.log_start_offset), high_watermark)

    def note_high_watermark(self, high_watermark: int) -> None:
        """Nothing below can be lost any more, ends of transactions neither."""
        self.producer_state.transactions.note_high_watermark(high_watermark)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those with data in [start_offset, end_offset), all of which is below the last stable
        offset."""
        segments = self._segments
        with storage_errors("read", self.directory):
            return find_aborted(
                self._snapshots,
                segments.all,
                segments.number_of(start_offset),
                start_offset,
                end_offset,
            )

    # -- append ------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        allow_transactional: bool = True,
    ) -> AppendResult:
        """Checks a producer's batches, gives them offsets (in `records` itself if it is writable),
        stores them.

        `allow_transactional` False: none of them may be of a transaction, since nobody would end
        it. Control batches are always refused: see `append_marker`. Raises what the producer is to
        get; the log is unchanged then.
        """
        outcomes = self.append_run_as_leader(
            [records],
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            allow_transactional=allow_transactional,
        )
        return only_outcome(outcomes)

    def append_run_as_leader(
        self,
        appends: Sequence[memoryview],
        *,
        leader_epoch: int,
        now_ms: int,
        allow_transactional: bool = True,
    ) -> list[AppendResult | KafkaError]:
        """Several appends one after the other, each with its own outcome, in as few writes as can
        be.
        """
        return self._leader_appends.append_run(
            appends,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            allow_transactional=allow_transactional,
        )

    def append_columns_as_leader(
        self, columns: BatchColumns, *, leader_epoch: int, now_ms: int
    ) -> list[int] | None:
        """As `append_run_as_leader` of these batches, each an append of its own and none of a
        transaction: their base offsets, then the offset that follows.

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

    def append_as_follower(self, records: memoryview) -> AppendResult:
        """Stores a leader's batches at the leader's offsets; a batch cut off at the end is left
        out.

        CorruptRecordError when they are damaged or do not go on where the log ends.
        """
        segments = self._segments
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
            self.producer_state.forgotten = True
            if self.compaction.expect_gaps() and not self._config.compacts:
                self._on_lowered()
        now_ms = self._clock.wall_ms()
        size = 0
        for begin, end, placed in runs_of(batches, self._tail.roll_rule.segment_bytes):
            self._tail.write(records[begin:end], placed, now_ms, False)
            size += end - begin
        end_offset = self.log_end_offset
        return AppendResult(base_offset, end_offset - 1, end_offset, -1, False, size)

    def start_leader_epoch(self, epoch: int) -> None:
        """A leader of this epoch will write from the log's end on; a KafkaError when the log knows
        a newer one. Touches no file: the next flush does.
        """
        self._tail.start_epoch(epoch)

    # -- cut ---------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Drops everything from `offset` on; the new end, which is lower if `offset` lies within a
        batch.
        """
        if offset >= self.log_end_offset:
            # An epoch that began at the end and wrote nothing may contradict the leader's history.
            self._epochs.truncate_from_end(offset)
            return self.log_end_offset
        if offset <= self._segments.first.base_offset or offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        self.compaction.stop()
        with storage_errors("truncate", self.directory):
            self._reader.positions.clear()
            segments = self._segments
            check_transaction_index(
                self._snapshots, segments.all, segments.all[segments.number_of(offset)]
            )
            self._flush_state.log_is_cut_to(offset)
            self.compaction.log_is_cut_to(offset)
            segments.cut_to(offset)
            # Within a batch: the end is lower still.
            self._flush_state.log_is_cut_to(self.log_end_offset)
            self.compaction.log_is_cut_to(self.log_end_offset)
            self.damaged = tuple(b for b in self.damaged if b.end_offset <= self.log_end_offset)
            self._epochs.truncate_from_end(self.log_end_offset)
            self._tail.producers = load_producers(
                self._snapshots,
                self._segments.all,
                log_start_offset=self.log_start_offset,
                has_gaps=self.compaction.may_have_gaps,
                now_ms=self._clock.wall_ms(),
            )
        if self.log_end_offset < self.log_start_offset:
            self.truncate_fully_and_start_at(self.log_start_offset)
        logger.info(
            "truncated partition=%s end_offset=%d", self.topic_partition, self.log_end_offset
        )
        return self.log_end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything; the log is empty and begins at `offset`."""
        is_higher = offset > self.log_start_offset
        self.log_start_offset = offset
        if not is_higher:
            # A log that ends before its start would be dropped when it is opened. And if a crash
            # leaves no segment, only the checkpoint tells where the log begins.
            self._on_lowered()
        self._start_anew_at(offset)
        logger.info("truncated fully partition=%s start_offset=%d", self.topic_partition, offset)

    def advance_log_start(self, offset: int) -> bool:
        """Records below `offset` count as deleted, whole segments of them go; True when that was
        news.
        """
        if offset > self.log_end_offset:
            raise self.out_of_range(offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._drop_below_start()
        return True

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Applies `retention.ms` and `retention.bytes`; the number of segments deleted."""
        segments = self._segments
        with storage_errors("apply retention to", self.directory):
            count = count_deletable(segments.all, self._config, now_ms, high_watermark)
            if count == len(segments):
                self._tail.roll(self.log_end_offset)
        if count:
            new_start = max(self.log_start_offset, segments.all[count].base_offset)
            logger.info(
                "retention partition=%s segments=%d log_start_offset=%d",
                self.topic_partition,
                count,
                new_start,
            )
            self.log_start_offset = new_start
            self._drop_below_start()
        return count

    # -- compact -----------------------------------------------------------------------------------

    def plan_compaction(self, now_ms: int, high_watermark: int) -> CompactionPlan | None:
        """A pass that is due. A record that is not committed (its transaction too) and on the
        medium displaces none."""
        if self.compaction.active_is_overdue(self._config, now_ms):
            with storage_errors("roll", self.directory):
                self._tail.roll(self.log_end_offset)
        return self.compaction.plan(
            safe_offset=min(self.last_stable_offset(high_watermark), self.recovery_point),
            config=self._config,
            now_ms=now_ms,
        )

    def begin_compaction(
        self, plan: CompactionPlan, *, keys_max_bytes: int, now_ms: int
    ) -> CompactionJob:
        """The pass of a plan that was made just now; `compaction` leads it from step to step."""
        return self.compaction.begin(
            plan,
            config=self._config,
            producers=self.producer_state,
            find_aborted=self.aborted_transactions,
            keys_max_bytes=keys_max_bytes,
            now_ms=now_ms,
        )

    # -- scrub -------------------------------------------------------------------------------------

    @property
    def disk(self) -> Disk:
        """Where the log lies."""
        return self._segments.folder.disk

    def next_scrub(self, offset: int) -> SegmentScrub | None:
        """A check of the segment that has `offset`; None when it is not closed and on the medium
        yet.
        """
        segments = self._segments
        segment = segments.all[segments.number_of(offset)]
        if segment is segments.active or segment.next_offset > self.recovery_point:
            return None
        return SegmentScrub(
            self.disk,
            segment,
            epochs=self.leader_epochs.entries,
            gaps_allowed=self.compaction.may_have_gaps,
        )

    def close_segment_with(self, offset: int) -> None:
        """Begins a new segment if `offset` is in the active one, which then can be checked."""
        if self._segments.active.base_offset <= offset < self.log_end_offset:
            with storage_errors("roll", self.directory):
                self._tail.roll(self.log_end_offset)

    def note_damage(self, scrub: SegmentScrub) -> None:
        """What a finished check has found, in place of what was known of the segment."""
        others = [bad for bad in self.damaged if not _is_within(bad, scrub)]
        # Where bytes are missing there is nothing that could be taken for good.
        found = [bad for bad in scrub.bad_ranges if bad.end_position > bad.position]
        self.damaged = tuple(sorted(others + found))

    def begin_repair(self, scrub: SegmentScrub, replacements: Replacements) -> CompactionJob:
        """Replaces what is bad in a segment, which is not outdated; `compaction` leads the job."""

        def repaired() -> None:
            self.damaged = tuple(bad for bad in self.damaged if not _is_within(bad, scrub))

        segment = scrub.segment
        found = self.aborted_transactions(segment.base_offset, segment.next_offset)
        aborted = tuple(each for each in found if each.last_offset < segment.next_offset)
        return self.compaction.begin_repair(scrub, replacements, repaired, aborted)

    # -- flush and close ---------------------------------------------------------------------------

    def needs_flush(self, now_ms: int) -> bool:
        """Whether `flush.messages`, `flush.ms` or a finished segment ask for a flush."""
        return self._flush_state.is_due(now_ms, self.log_end_offset, self._config)

    def prepare_flush(self) -> FlushJob:
        """A job that brings what is in the log now to the medium; its slow half may run on another
        thread.
        """
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

    # -- helpers -----------------------------------------------------------------------------------

    def _start_anew_at(self, offset: int) -> None:
        """One empty segment at `offset`; the log's start stays."""
        self.compaction.stop()
        with storage_errors("truncate", self.directory):
            self._reader.positions.clear()
            self._flush_state.log_is_cut_to(offset)
            self.compaction.log_is_cut_to(offset)
            self._segments.start_anew_at(offset)
            self.damaged = ()
            self._snapshots.remove_all()
        self._tail.producers = ProducerStates(forgotten=offset > 0)
        self._epochs.truncate_from_end(0)

    def _drop_below_start(self) -> None:
        """Deletes the segments below the log's start."""
        if self._segments.number_of(self.log_start_offset):
            self.compaction.stop()
        # Counted only now: the end of a pass may have made one segment of several.
        count = self._segments.number_of(self.log_start_offset)
        with storage_errors("delete segments of", self.directory):
            self._segments.drop_oldest(count)
        self._epochs.truncate_from_start(self.log_start_offset)


def _is_within(bad: BadRange, scrub: SegmentScrub) -> bool:
    return scrub.base_offset <= bad.start_offset < scrub.end_offset
