"""The log of one partition: appends, reads, truncation. Its one rule: one owner, one thread; only
the newest segment grows.

The list of segments is a tuple that is replaced as a whole, so that whoever goes through it or
holds a slice is never disturbed by a roll or a deletion. Bytes are stored as they came; of each
batch only the header is looked at. Source: R-LOG1 to R-LOG4, R-LOG9, R-LOG12, R-REP8.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from storage_engine.core.errors import (
    ErrorCode,
    KafkaError,
    LogStorageError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.leader_epochs import EpochEnd
from storage_engine.core.ports import Clock
from storage_engine.core.producer_state import ProducerStates
from storage_engine.log.append_check import check_producers, follower_batches, runs_of
from storage_engine.log.append_result import AppendResult
from storage_engine.log.checkpoints import LEADER_EPOCHS_FILE, write_epochs
from storage_engine.log.disk import REAL_DISK, Disk
from storage_engine.log.flush_job import FlushJob
from storage_engine.log.log_config import LogConfig
from storage_engine.log.log_loader import LogFolder, load_log, load_producers, record_producer
from storage_engine.log.log_reader import LogReader
from storage_engine.log.open_files import OpenFiles
from storage_engine.log.retention import count_deletable
from storage_engine.log.rolling import RollRule
from storage_engine.log.segment_list import SegmentList
from storage_engine.log.segment_slice import SegmentSlice
from storage_engine.log.time_search import (
    TimestampedOffset,
    find_by_timestamp,
    find_largest_timestamp,
)
from storage_engine.protocol.record_batch import (
    LENGTH_END,
    BatchHeader,
    patch,
    patch_log_append_time,
    validate_for_append,
)

logger = logging.getLogger(__name__)


class PartitionLog:
    """Invariant: log_start_offset <= log_end_offset, and recovery_point <= log_end_offset."""

    __slots__ = (
        "_clock", "_closed", "_config", "_folder", "_generation", "_last_flush_ms",
        "_max_message_bytes", "_on_recovery_point_lowered", "_reader", "_roll_rule", "_segments",
        "_snapshots", "_stamps_append_time", "leader_epochs", "log_end_offset",
        "log_start_offset", "producer_state", "recovered_bytes", "recovery_point",
        "topic_partition",
    )  # fmt: skip

    def __init__(
        self,
        folder: LogFolder,
        topic_partition: TopicPartition,
        *,
        clock: Clock,
        log_start_offset: int,
        recovery_point: int,
        clean: bool,
        on_recovery_point_lowered: Callable[[], None],
    ) -> None:
        """Use `open`."""
        now_ms = clock.wall_ms()
        loaded = load_log(
            folder,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            now_ms=now_ms,
        )
        self.topic_partition = topic_partition
        self._clock = clock
        self._segments = SegmentList(folder, loaded.segments, clock)
        self._snapshots = loaded.snapshots
        self.leader_epochs = loaded.epochs
        self.producer_state = loaded.producers
        self.recovered_bytes = loaded.recovered_bytes
        """What opening had to check; 0 after a clean stop."""
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self._segments.active.next_offset
        self.recovery_point = min(recovery_point, self.log_end_offset)
        """Everything below is on the medium."""
        self._reader = LogReader()
        self._generation = 0
        self._last_flush_ms = now_ms
        self._closed = False
        self._on_recovery_point_lowered = on_recovery_point_lowered
        self.update_config(folder.config)

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
        clean: bool = False,
        disk: Disk = REAL_DISK,
        pool: OpenFiles | None = None,
        on_recovery_point_lowered: Callable[[], None] = lambda: None,
    ) -> "PartitionLog":
        """Opens the log in `directory`, or makes an empty one that begins at `log_start_offset`.

        `clean`: the last stop was in order, so that nothing needs to be checked.
        `on_recovery_point_lowered` is called within a truncation, and must bring the new recovery
        point to the medium.
        """
        folder = LogFolder(disk=disk, pool=pool or OpenFiles(), path=directory, config=config)
        return cls(
            folder,
            topic_partition,
            clock=clock,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            on_recovery_point_lowered=on_recovery_point_lowered,
        )

    # -- facts -------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def directory(self) -> Path:
        return self._folder.path

    @property
    def latest_epoch(self) -> int:
        """Epoch of the newest leader known to this log; -1 when there is none."""
        return self.leader_epochs.latest_epoch

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """See `LeaderEpochCache.end_offset_for`."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # -- append ------------------------------------------------------------------------------------

    def append_as_leader(
        self, records: memoryview, *, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Checks a producer's batches, gives them offsets (in `records` itself when it is
        writable), stores them.

        Raises what the producer is to get; the log is unchanged then.
        """
        batches = validate_for_append(records, max_message_bytes=self._max_message_bytes)
        size = len(records)
        if size > self._roll_rule.segment_bytes:
            raise RecordListTooLargeError(
                f"{size} bytes for one partition are more than segment.bytes ="
                f" {self._roll_rule.segment_bytes}: send less at a time"
            )
        first_time = check_producers(self.producer_state, batches)
        if first_time is not None:
            return AppendResult(*first_time, self.log_end_offset, -1, True, 0)
        if records.readonly:
            records = memoryview(bytearray(records))
        if leader_epoch != self.leader_epochs.latest_epoch:
            self.start_leader_epoch(leader_epoch)
        base_offset = next_offset = self.log_end_offset
        stamps = self._stamps_append_time
        placed = []
        for position, header in batches:
            if stamps:
                patch_log_append_time(records, position, now_ms)
            patch(records, position, base_offset=next_offset, leader_epoch=leader_epoch)
            placed.append((next_offset, header))
            next_offset += header.last_offset_delta + 1
        self._write(records, placed, now_ms, stamps)
        return AppendResult(
            base_offset, next_offset - 1, next_offset, now_ms if stamps else -1, False, size
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
        base_offset = batches[0][1].base_offset
        if is_empty and base_offset < segments.active.base_offset:
            self._start_anew_at(base_offset)
        self._note_epochs(batches)
        now_ms = self._clock.wall_ms()
        size = 0
        for begin, end, placed in runs_of(batches, self._roll_rule.segment_bytes):
            self._write(records[begin:end], placed, now_ms, False)
            size += end - begin
        end_offset = self.log_end_offset
        return AppendResult(base_offset, end_offset - 1, end_offset, -1, False, size)

    def start_leader_epoch(self, epoch: int) -> None:
        """A leader of this epoch begins to write at the log's end."""
        if epoch < self.leader_epochs.latest_epoch:
            raise KafkaError(
                f"epoch {epoch} of {self.topic_partition} is older than epoch"
                f" {self.leader_epochs.latest_epoch} in its log",
                ErrorCode.FENCED_LEADER_EPOCH,
            )
        if self.leader_epochs.assign(epoch, self.log_end_offset):
            self._save_epochs()

    # -- read --------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        max_offset: int | None = None,
        at_least_one: bool = True,
    ) -> SegmentSlice | None:
        """Whole batches from the one with `offset` on, below `max_offset` (exclusive; None: the
        log's end).

        None when nothing is there yet. The first batch is returned even if it is larger than
        `max_bytes`, unless `at_least_one` is off. OffsetOutOfRangeError names the valid range.
        """
        end = self.log_end_offset
        if offset < self.log_start_offset or offset > end:
            raise self._out_of_range(offset)
        limit = end if max_offset is None or max_offset > end else max_offset
        if offset >= limit:
            return None
        segments = self._segments
        try:
            return self._reader.read(
                segments.all,
                segments.number_of(offset),
                offset,
                max_bytes=max_bytes,
                limit=limit,
                at_least_one=at_least_one,
            )
        except OSError as error:
            raise self._failed("read", error) from error

    def offset_for_timestamp(
        self, timestamp_ms: int, max_offset: int | None = None
    ) -> TimestampedOffset | None:
        """The first record at or after that time, below `max_offset`."""
        with self._storage_errors("read"):
            return find_by_timestamp(
                self._segments.all, timestamp_ms, self.log_start_offset, self._limit(max_offset)
            )

    def offset_of_largest_timestamp(
        self, max_offset: int | None = None
    ) -> TimestampedOffset | None:
        """The first of the latest records below `max_offset`."""
        with self._storage_errors("read"):
            return find_largest_timestamp(
                self._segments.all, self.log_start_offset, self._limit(max_offset)
            )

    # -- cut ---------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Drops everything from `offset` (exclusive end) on; the new end, lower if `offset` lies
        within a batch.
        """
        if offset >= self.log_end_offset:
            # An epoch that began at the end and wrote nothing may contradict the leader's history.
            if self.leader_epochs.truncate_from_end(offset):
                self._save_epochs()
            return self.log_end_offset
        if offset <= self._segments.first.base_offset or offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        with self._storage_errors("truncate"):
            self._reader.positions.clear()
            self.log_end_offset = self._segments.cut_to(offset)
            self._after_cut()
            self.producer_state = load_producers(
                self._snapshots, self._segments.all, self.log_start_offset
            )
        logger.info(
            "truncated partition=%s end_offset=%d", self.topic_partition, self.log_end_offset
        )
        return self.log_end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything; the log is empty and begins at `offset`."""
        self._start_anew_at(offset)
        self.log_start_offset = offset
        logger.info("truncated fully partition=%s start_offset=%d", self.topic_partition, offset)

    def advance_log_start(self, offset: int) -> bool:
        """Records below `offset` count as deleted; True when that was news. Whole segments below go
        at once.
        """
        if offset > self.log_end_offset:
            raise self._out_of_range(offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._drop_oldest(self._segments.number_of(offset))
        return True

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Applies `retention.ms` and `retention.bytes`; the number of segments deleted."""
        with self._storage_errors("apply retention to"):
            count = count_deletable(self._segments.all, self._config, now_ms, high_watermark)
            if count == len(self._segments):
                self._roll(self.log_end_offset)
        if count:
            self.log_start_offset = max(
                self.log_start_offset, self._segments.all[count].base_offset
            )
            logger.info(
                "retention partition=%s segments=%d log_start_offset=%d",
                self.topic_partition, count, self.log_start_offset,
            )  # fmt: skip
            self._drop_oldest(count)
        return count

    # -- flush and close ---------------------------------------------------------------------------

    def needs_flush(self, now_ms: int) -> bool:
        """Whether `flush.messages`, `flush.ms` or a finished segment ask for a flush."""
        unflushed = self.log_end_offset - self.recovery_point
        return unflushed > 0 and (
            unflushed >= self._config.flush_messages
            or now_ms - self._last_flush_ms >= self._config.flush_ms
            or self.recovery_point < self._segments.active.base_offset
        )

    def prepare_flush(self) -> FlushJob:
        """A job that brings what is in the log now to the medium; its slow half may run on another
        thread.
        """
        segments = self._segments
        end_offset, generation = self.log_end_offset, self._generation
        paths = segments.unflushed_paths(self.recovery_point)
        if self.leader_epochs.entries:
            paths.append(self._folder.path / LEADER_EPOCHS_FILE)
        directory = self._folder.path if segments.unsynced_names else None

        def on_flushed() -> None:
            if self._generation == generation:
                self.recovery_point = max(self.recovery_point, end_offset)

        with self._storage_errors("flush"):
            job = FlushJob(self._folder.disk, paths, directory, end_offset, on_flushed)
        segments.unsynced_names = False
        self._last_flush_ms = self._clock.wall_ms()
        return job

    def flush(self) -> None:
        """Everything in the log is on the medium when this returns."""
        if self.recovery_point >= self.log_end_offset:
            return
        job = self.prepare_flush()
        with self._storage_errors("flush"):
            job.run()
        job.finish()

    def close(self) -> None:
        """Flushes, keeps the producers' state, and closes the files. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.recovery_point < self.log_end_offset or self._generation:
                with self._storage_errors("close"):
                    self._segments.active.seal(sync=True)
                    self._snapshots.write(self.log_end_offset, self.producer_state, sync=True)
                self.flush()
        finally:
            self._segments.close()

    def delete(self) -> None:
        """Closes the log without a flush and removes its folder."""
        self.close_without_flush()
        self._folder.disk.remove_tree(self._folder.path)

    def close_without_flush(self) -> None:
        """Only closes the files: the log is to be deleted, or its disk has failed."""
        self._closed = True
        self._segments.close()

    def take_doomed_files(self, now_ms: int) -> list[Path]:
        """Files of deleted segments whose `file.delete.delay.ms` is over; the caller removes
        them.
        """
        return self._segments.take_doomed_files(now_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Forgets producers idle for `producer.id.expiration.ms`; their number."""
        return self.producer_state.expire(now_ms, self._config.producer_id_expiration_ms)

    def update_config(self, config: LogConfig) -> None:
        """Takes new settings, from the next append on."""
        self._config = config
        self._max_message_bytes = config.max_message_bytes
        self._stamps_append_time = config.stamps_append_time
        self._folder = replace(self._segments.folder, config=config)
        self._segments.folder = self._folder
        self._roll_rule = RollRule(config, str(self._folder.path))

    # -- helpers -----------------------------------------------------------------------------------

    def _write(
        self, records: memoryview, placed: list[tuple[int, BatchHeader]], now_ms: int, stamped: bool
    ) -> None:
        """Stores batches at offsets that are settled, rolling before if need be. `stamped`: their
        time is `now_ms`.
        """
        if self._closed:
            raise LogStorageError(f"the log of {self.topic_partition} is closed")
        last_base, last_header = placed[-1]
        if stamped:
            max_timestamp = now_ms
        elif len(placed) == 1:
            max_timestamp = last_header.max_timestamp
        else:
            max_timestamp = max(header.max_timestamp for _, header in placed)
        segment = self._segments.active
        if self._roll_rule.demands_roll(
            segment,
            len(records),
            last_base + last_header.last_offset_delta,
            max_timestamp,
            now_ms,
        ):
            with self._storage_errors("roll"):
                self._roll(placed[0][0])
            segment = self._segments.active
        segment.write(records)
        for base_offset, header in placed:
            last_offset = base_offset + header.last_offset_delta
            timestamp_ms = now_ms if stamped else header.max_timestamp
            segment.note(LENGTH_END + header.length, last_offset, timestamp_ms)
            if header.producer_id >= 0:
                record_producer(self.producer_state, header, base_offset, timestamp_ms)
        self.log_end_offset = segment.next_offset

    def _roll(self, base_offset: int) -> None:
        if self._segments.active.base_offset != base_offset:
            self._snapshots.write(self.log_end_offset, self.producer_state)
            self._segments.roll(base_offset)
            logger.debug("rolled partition=%s base_offset=%d", self.topic_partition, base_offset)

    def _note_epochs(self, batches: list[tuple[int, BatchHeader]]) -> None:
        changed = False
        for _, header in batches:
            epoch = header.partition_leader_epoch
            if epoch >= 0 and epoch != self.leader_epochs.latest_epoch:
                changed |= self.leader_epochs.assign(epoch, header.base_offset)
        if changed:
            self._save_epochs()

    def _save_epochs(self) -> None:
        path = self._folder.path / LEADER_EPOCHS_FILE
        with self._storage_errors("write the leader epochs of"):
            write_epochs(self._folder.disk, path, self.leader_epochs.entries, sync=False)

    def _start_anew_at(self, offset: int) -> None:
        """One empty segment at `offset`; the log's start stays."""
        with self._storage_errors("truncate"):
            self._reader.positions.clear()
            self._segments.start_anew_at(offset)
            self._snapshots.remove_all()
        self.log_end_offset = offset
        self.leader_epochs.clear()
        self.producer_state = ProducerStates(forgotten=offset > 0)
        self._after_cut()

    def _after_cut(self) -> None:
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self._save_epochs()
        self._generation += 1
        if self.recovery_point > self.log_end_offset:
            # On the medium before the next append: what comes above is not what was flushed.
            self.recovery_point = self.log_end_offset
            self._on_recovery_point_lowered()

    def _drop_oldest(self, count: int) -> None:
        """Deletes segments below the log's start."""
        with self._storage_errors("delete segments of"):
            self._segments.drop_oldest(count)
        if self.leader_epochs.truncate_from_start(self.log_start_offset):
            self._save_epochs()

    def _limit(self, max_offset: int | None) -> int:
        return self.log_end_offset if max_offset is None else min(max_offset, self.log_end_offset)

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"offset {offset} of {self.topic_partition} is outside the log, which has"
            f" [{self.log_start_offset}, {self.log_end_offset})",
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )

    @contextmanager
    def _storage_errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed(action, error) from error

    def _failed(self, action: str, error: OSError) -> LogStorageError:
        return LogStorageError(
            f"can't {action} {self.topic_partition} in {self._folder.path}:"
            f" {error.strerror or error}"
        )
