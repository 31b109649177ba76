"""The state of an open log. It has one owner and one thread.

The parts of a log (`reads`, `leader_appends`, `follower_appends`, `truncation`, `retention`,
`compaction`, `repair`) have no mutable state of their own: each of them is given this one. Source:
R-LOG1, R-LOG4, R-LOG8, KIP-98.
"""

import logging
from pathlib import Path

from storage_engine.core.errors import LogStorageError, OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.replication.leader_epochs import LeaderEpochCache
from storage_engine.core.retained.producer_state import ProducerStates
from storage_engine.log.append_rules import append_rules_of
from storage_engine.log.cleaning.compaction_job import CleaningState
from storage_engine.log.cleaning.segment_scrub import BadRange
from storage_engine.log.files.disk import Buffer, Disk, FreeSpace, storage_error, storage_errors
from storage_engine.log.log_config import LogConfig
from storage_engine.log.recovery.log_loader import LogStart, load_log
from storage_engine.log.recovery.recovery import RecoveryProgress
from storage_engine.log.segments.indexes import MAX_RELATIVE_OFFSET, PlacedBatch
from storage_engine.log.segments.segment_list import LogFolder, SegmentList
from storage_engine.log.segments.segment_slice import ReadPositions
from storage_engine.log.state.checkpoints import LeaderEpochCheckpoint, LogCheckpoints
from storage_engine.log.state.flush_state import FlushState, UnfollowedCuts
from storage_engine.log.state.producer_replay import record_batch
from storage_engine.log.state.producer_snapshots import ProducerSnapshots
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import LENGTH_END

logger = logging.getLogger(__name__)


class LogState:
    """Invariants between the fields: log_start_offset <= log_end_offset, and recovery_point <=
    log_end_offset."""

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
        """Loads the log, recovered unless its last stop was clean, or raises LogStorageError."""
        loaded = load_log(folder, start, now_ms=clock.wall_ms(), progress=progress)
        self.topic_partition = topic_partition
        self.clock = clock
        self.room = room
        """The free space of the log dir, shared by its logs."""
        self.checkpoints = checkpoints
        self.segments = SegmentList(folder, loaded.segments, clock)
        """Invariant: not empty, base offsets ascend, and only the newest one grows."""
        self.read_positions = ReadPositions()
        """Invariant: every position is the end of a batch; so a truncation empties it."""
        self.log_start_offset: int = loaded.log_start_offset
        """Inclusive. Invariant: it falls only with a truncation of the whole log, and no segment
        but the oldest begins at or before it once `Retention` has dropped the others."""
        self.damaged: tuple[BadRange, ...] = ()
        """Known damage, refused to readers. Invariant: ascending, and below the log's end."""
        self.leader_epochs: LeaderEpochCache = loaded.epochs
        """Invariant: epochs and start offsets ascend. Changed only through `epoch_checkpoint`."""
        self.epoch_checkpoint = LeaderEpochCheckpoint(folder, loaded.epochs)
        """Invariant: the file has every epoch that begins below the recovery point."""
        self.producer_state: ProducerStates = loaded.producers
        """Invariant: as of the batches up to the log's end. Replaced as a whole by a cut."""
        self.snapshots: ProducerSnapshots = loaded.snapshots
        """Invariant: no snapshot is of an offset above the log's end."""
        self.flush_state = FlushState(
            self.segments,
            self.epoch_checkpoint,
            clock,
            recovery_point=start.recovery_point,
            is_recovered=not start.clean,
            checkpoints=checkpoints,
        )
        """Invariant: everything below its `recovery_point` is on the medium."""
        self.cleaning = CleaningState(
            self.segments, first_dirty_offset=start.first_dirty_offset, checkpoints=checkpoints
        )
        """Invariant: at most one job replaces segments, and none while the log is cut."""
        self.append_rules = append_rules_of(folder)
        """Invariant: computed from the present `config` and `directory`."""
        self.is_closed = False
        """Invariant: nothing is appended once it is set."""
        self.unfollowed_cuts: UnfollowedCuts | None = None
        """Set while the log is copied to another log dir."""
        self.recovered_bytes = loaded.recovered_bytes
        """The number of bytes that were checked on opening; 0 after a clean stop."""
        self.scrubbed_ms = clock.wall_ms()
        """The wall-clock time of the closed segments' last scrub; 0 demands one at once."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record, exclusive."""
        return self.segments.active.next_offset

    @property
    def recovery_point(self) -> int:
        """Everything below it is on the medium, exclusive."""
        return self.flush_state.recovery_point

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch of this log; -1 when there is none."""
        return self.leader_epochs.latest_epoch

    @property
    def config(self) -> LogConfig:
        return self.segments.folder.config

    @property
    def directory(self) -> Path:
        return self.segments.folder.path

    @property
    def disk(self) -> Disk:
        return self.segments.folder.disk

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def segment_count(self) -> int:
        return len(self.segments)

    @property
    def is_cut_short(self) -> bool:
        """True when a change ended in the middle for want of descriptors or memory: the files are
        as a killed process would have left them, and nothing is read or written before
        `PartitionLog.open_again`."""
        return self.segments.is_cut_short

    @property
    def is_durable(self) -> bool:
        """True when a crash of the machine would lose no record and undo no truncation."""
        return not self.flush_state.is_behind

    @property
    def ends_with_a_batch(self) -> bool:
        """True when a batch ends where the log does. If not, no batch came since the last roll, and
        compaction may have removed the one before."""
        return self.segments.active.size > 0

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset: every transaction with a record below it has ended for
        good, so that read_committed consumers may read up to it."""
        transactions = self.producer_state.transactions
        stable = transactions.last_stable_offset(high_watermark)
        if stable < self.log_start_offset:
            stable = self.log_start_offset
        return stable if stable < high_watermark else high_watermark

    def out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"offset {offset} of {self.topic_partition} is outside the log, which has"
            f" [{self.log_start_offset}, {self.log_end_offset})",
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )

    def roll(self, base_offset: int) -> None:
        """Begins a new segment at `base_offset`, unless the newest one begins there. OSError when
        the disk fails."""
        if self.segments.active.base_offset != base_offset:
            self.write_snapshot()
            self.segments.roll(base_offset)
            logger.debug("rolled partition=%s base_offset=%d", self.topic_partition, base_offset)

    def write_snapshot(self) -> None:
        """Keeps the producers as of the log's end. OSError when the disk fails."""
        self.snapshots.write(
            self.log_end_offset, self.producer_state, recovery_point=self.saved_recovery_point
        )

    @property
    def saved_recovery_point(self) -> int:
        """The recovery point that the next opening finds after a crash."""
        return self.checkpoints.saved_recovery_point() or 0

    def roll_at_end(self) -> None:
        """Closes the newest segment if it has batches. LogStorageError when the disk fails."""
        with storage_errors("roll", self.directory):
            self.roll(self.log_end_offset)

    def start_epoch(self, epoch: int) -> None:
        """Begins the epoch of a leader at the log's end. KafkaError when the log has a newer
        one."""
        self.epoch_checkpoint.start_epoch(epoch, self.log_end_offset)

    def save_recovery_point(self, offset: int) -> None:
        """Raises the recovery point on the medium to `offset` or above, before offsets below it may
        go missing: recovery takes a gap above it for the damage of a crash."""
        saved = self.checkpoints.saved_recovery_point()
        if saved is not None and saved < offset:
            with storage_errors("write the recovery point of", self.directory, unchanged=True):
                self.checkpoints.write()

    def write_batches(
        self, records: Buffer, placed: list[PlacedBatch], now_ms: int, stamped: bool
    ) -> None:
        """Stores batches that have their offsets and have passed every check, after a roll if one
        is due. The segment, its indexes and the producers record a batch together. `stamped`: their
        time is `now_ms`. On LogStorageError none of them is in the log.
        """
        if self.is_closed:
            raise LogStorageError(f"the log in {self.directory} is closed")
        self.segments.check_whole()
        last_base, last_header = placed[-1]
        last_offset = last_base + last_header.last_offset_delta
        if stamped:
            max_timestamp = now_ms
        elif len(placed) == 1:
            max_timestamp = last_header.max_timestamp
        else:
            max_timestamp = max([header.max_timestamp for _, header in placed])
        segment = self.segments.active
        try:
            if self.append_rules.roll_rule.demands_roll(
                segment, len(records), last_offset, max_timestamp, now_ms
            ):
                self.roll(_next_base(segment.next_offset, placed[0][0], last_offset))
                segment = self.segments.active
            index = segment.transaction_index
            if index.has_seal and any(header.is_control for _, header in placed):
                # This is done before anything is stored: an entry must not fail after its batch.
                index.unseal()
        except OSError as error:
            raise storage_error("roll", self.directory, error, unchanged=True) from error
        segment.write(records)
        segment.wrote_ms = now_ms
        position = 0
        for base_offset, header in placed:
            size = LENGTH_END + header.length
            timestamp_ms = now_ms if stamped else header.max_timestamp
            segment.note(size, base_offset + header.last_offset_delta, timestamp_ms)
            if header.producer_id >= 0:
                marker = read_marker(records[position:]) if header.is_control else None
                aborted = record_batch(
                    self.producer_state, header, base_offset, timestamp_ms, marker, now_ms=now_ms
                )
                if aborted is not None:
                    segment.transaction_index.append(aborted)
            position += size

    def note_high_watermark(self, high_watermark: int) -> None:
        """Records that nothing below can be lost any more, including the ends of transactions."""
        self.producer_state.transactions.note_high_watermark(high_watermark)


def _next_base(end_offset: int, first_offset: int, last_offset: int) -> int:
    """Return where the next segment begins: at the log's end, also when offsets are missing after
    it, so that a gap between two segments proves that a crash took an end. Only where the indexes
    do not reach so far it begins with the first batch.
    """
    reaches = last_offset - end_offset <= MAX_RELATIVE_OFFSET
    return end_offset if reaches else first_offset
