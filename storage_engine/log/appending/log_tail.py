"""The end of a log, where batches are put. Its one rule: only the newest segment grows.

What comes here has its offsets and has passed every check. The segment, its indexes and the
producers' state take a batch together. Source: R-LOG1, R-LOG2, R-LOG12.
"""

import logging

from storage_engine.core.errors import LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_state import ProducerStates
from storage_engine.log.appending.append_preparation import requirement_of
from storage_engine.log.appending.time_limits import TimeLimits
from storage_engine.log.files.disk import Buffer
from storage_engine.log.files.storage_errors import storage_error
from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.placing import MAX_RELATIVE_OFFSET, PlacedBatch
from storage_engine.log.segments.rolling import RollRule
from storage_engine.log.segments.segment_list import SegmentList
from storage_engine.log.state.leader_epoch_checkpoint import LeaderEpochCheckpoint
from storage_engine.log.state.producer_replay import record_batch
from storage_engine.log.state.producer_snapshots import ProducerSnapshots
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import LENGTH_END

logger = logging.getLogger(__name__)


class LogTail:
    """The newest segment, the producers' state behind its last batch, and when to roll."""

    __slots__ = (
        "_topic_partition",
        "closed",
        "compacts",
        "epochs",
        "max_message_bytes",
        "producers",
        "requirement",
        "roll_rule",
        "segments",
        "snapshots",
        "stamps_append_time",
        "time_limits",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        segments: SegmentList,
        epochs: LeaderEpochCheckpoint,
        snapshots: ProducerSnapshots,
        producers: ProducerStates,
    ) -> None:
        self._topic_partition = topic_partition
        self.segments = segments
        self.epochs = epochs
        self.snapshots = snapshots
        self.producers = producers
        """Replaced as a whole when the log is cut."""
        self.closed = False
        self.update_config(segments.folder.config)

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self.segments.active.next_offset

    def update_config(self, config: LogConfig) -> None:
        """Takes new settings, from the next append on."""
        self.max_message_bytes = config.max_message_bytes
        self.stamps_append_time = config.stamps_append_time
        self.time_limits = TimeLimits(
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
        )
        self.compacts = config.compacts
        self.requirement = requirement_of(config)
        self.roll_rule = RollRule(config, str(self.segments.folder.path))

    def start_epoch(self, epoch: int) -> None:
        """A leader of this epoch begins to write here; a KafkaError when the log knows a newer
        one.
        """
        self.epochs.start_epoch(epoch, self.end_offset)

    def write(self, records: Buffer, placed: list[PlacedBatch], now_ms: int, stamped: bool) -> None:
        """Stores batches at offsets that are settled, after a roll if need be. `stamped`: their
        time is `now_ms`.
        """
        if self.closed:
            raise LogStorageError(f"the log in {self.segments.folder.path} is closed")
        self.segments.check_whole()
        last_base, last_header = placed[-1]
        if stamped:
            max_timestamp = now_ms
        elif len(placed) == 1:
            max_timestamp = last_header.max_timestamp
        else:
            max_timestamp = max([header.max_timestamp for _, header in placed])
        segment = self.segments.active
        try:
            if self.roll_rule.demands_roll(
                segment,
                len(records),
                last_base + last_header.last_offset_delta,
                max_timestamp,
                now_ms,
            ):
                self.roll(self._next_base(placed[0][0], last_base + last_header.last_offset_delta))
                segment = self.segments.active
            index = segment.transaction_index
            if index.has_seal and any(header.is_control for _, header in placed):
                # Now, while nothing is stored: an entry must not fail after its batch.
                index.unseal()
        except OSError as error:
            raise storage_error("roll", self.segments.folder.path, error, unchanged=True) from error
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
                    self.producers, header, base_offset, timestamp_ms, marker, now_ms=now_ms
                )
                if aborted is not None:
                    segment.transaction_index.append(aborted)
            position += size

    def _next_base(self, first_offset: int, last_offset: int) -> int:
        """Where the next segment begins: at the log's end, also when offsets are missing behind it,
        so that a gap between two segments tells of an end that a crash took. Only where the
        indexes do not reach so far it begins with the first batch.
        """
        reaches = last_offset - self.end_offset <= MAX_RELATIVE_OFFSET
        return self.end_offset if reaches else first_offset

    def roll(self, base_offset: int) -> None:
        """Begins a new segment at `base_offset`, unless that is where the newest begins."""
        if self.segments.active.base_offset != base_offset:
            self.snapshots.write(self.end_offset, self.producers)
            self.segments.roll(base_offset)
            logger.debug("rolled partition=%s base_offset=%d", self._topic_partition, base_offset)
