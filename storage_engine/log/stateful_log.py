"""A log as it was loaded, with what it knows beside its batches. Its one rule: its parts are put
together here, and each of them looks after files of its own.

Source: R-LOG1, R-LOG4, R-LOG8, KIP-98.
"""

from collections.abc import Callable

from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.retained.producer_state import ProducerStates
from storage_engine.core.transactions.partition_transactions import AbortedTransaction
from storage_engine.log.appending.log_tail import LogTail
from storage_engine.log.cleaning.log_compaction import LogCompaction
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.storage_errors import storage_errors
from storage_engine.log.log_config import LogConfig
from storage_engine.log.readable_log import ReadableLog
from storage_engine.log.recovery.log_loader import LogFolder, load_log
from storage_engine.log.segments.segment_list import SegmentList
from storage_engine.log.state.aborted_transactions import find_aborted
from storage_engine.log.state.flush_state import FlushState
from storage_engine.log.state.leader_epoch_checkpoint import LeaderEpochCheckpoint


class StatefulLog(ReadableLog):
    """Invariant: log_start_offset <= log_end_offset, and recovery_point <= log_end_offset."""

    __slots__ = (
        "_clock",
        "_config",
        "_epochs",
        "_flush_state",
        "_on_lowered",
        "_saved_recovery_point",
        "_snapshots",
        "_tail",
        "compaction",
        "on_cut",
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
        on_recovery_point_lowered: Callable[[], None],
        saved_recovery_point: Callable[[], int] | None,
        no_gap_above: int | None,
    ) -> None:
        """See `PartitionLog.open`."""
        loaded = load_log(
            folder,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            has_gaps=folder.config.compacts or first_dirty_offset > 0,
            clean=clean,
            now_ms=clock.wall_ms(),
            no_gap_above=no_gap_above,
        )
        super().__init__(
            topic_partition,
            SegmentList(folder, loaded.segments, clock),
            loaded.epochs,
            log_start_offset=loaded.log_start_offset,
        )
        self._clock = clock
        self._epochs = LeaderEpochCheckpoint(folder, loaded.epochs)
        self._snapshots = loaded.snapshots
        self._tail = LogTail(
            topic_partition, self._segments, self._epochs, loaded.snapshots, loaded.producers
        )
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
        self._saved_recovery_point = saved_recovery_point
        self.compaction = LogCompaction(
            self._segments,
            first_dirty_offset=first_dirty_offset,
            on_lowered=on_recovery_point_lowered,
        )
        self.scrubbed_ms = clock.wall_ms()
        """When the closed segments were last gone through; 0: it is high time."""
        self._config = folder.config
        self.on_cut: Callable[[int | None], None] | None = None
        """Hears of the new end when records are cut off; None: the log is empty, and begins where
        it likes."""

    # -- facts -------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def producer_state(self) -> ProducerStates:
        """What the log knows of its producers."""
        return self._tail.producers

    @property
    def is_cut_short(self) -> bool:
        """Whether a change ended in the middle for want of descriptors or memory: the files are as
        a killed process would have left them, and nothing is read or written before
        `PartitionLog.open_again`."""
        return self._segments.is_cut_short

    @property
    def recovery_point(self) -> int:
        """Everything below is on the medium."""
        return self._flush_state.recovery_point

    @property
    def is_durable(self) -> bool:
        """Whether a crash of the machine would take nothing: no record, and no cut."""
        return not self._flush_state.is_behind(self.log_end_offset)

    @property
    def disk(self) -> Disk:
        """Where the log lies."""
        return self._segments.folder.disk

    def save_recovery_point(self, offset: int) -> None:
        """Before offsets below `offset` may go missing: the recovery point on the medium is not
        below it. For recovery takes a gap above that for what a crash has left."""
        saved = self._saved_recovery_point
        if saved is not None and saved() < offset:
            with storage_errors("write the recovery point of", self.directory, unchanged=True):
                self._on_lowered()

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
