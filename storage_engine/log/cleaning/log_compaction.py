"""What a log knows of its own compaction. Its one rule: one pass at a time, and none goes on once
the log was cut.

`first_dirty_offset` is kept in the folder's cleaner-offset-checkpoint; a lost one costs work, since
everything counts as dirty then. Above 0 it also says that offsets may be missing, whatever the
policy is by now. A log with a damaged batch is left alone until it is opened again or cut. Source:
R-LOG10.
"""

import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from storage_engine.core.errors import CorruptRecordError, LogStorageError
from storage_engine.core.retained.compaction import (
    CompactionPlan,
    CompactionRules,
    SegmentSpan,
    is_overdue,
    plan_compaction,
)
from storage_engine.core.system_errors import Reach, reach_of_file_error
from storage_engine.log.cleaning.compaction_job import CompactionJob
from storage_engine.log.cleaning.segment_patch import Replacements, SegmentPatch
from storage_engine.log.cleaning.segment_scrub import SegmentScrub
from storage_engine.log.files.storage_errors import storage_error, storage_errors
from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.segment_list import SegmentList

if TYPE_CHECKING:
    from storage_engine.core.retained.producer_state import ProducerStates
    from storage_engine.core.transactions.partition_transactions import AbortedTransaction

logger = logging.getLogger(__name__)


class LogCompaction:
    """Invariant: everything below `first_dirty_offset` has at most one record per key, but for
    records without a key.
    """

    __slots__ = ("_job", "_on_lowered", "_segments", "first_dirty_offset", "is_left_alone")

    def __init__(
        self, segments: SegmentList, *, first_dirty_offset: int, on_lowered: Callable[[], None]
    ) -> None:
        self._segments = segments
        self._on_lowered = on_lowered
        self._job: CompactionJob | None = None
        # A log that ends before what it says is clean is not the log that was cleaned.
        end_offset = segments.active.next_offset
        is_known = first_dirty_offset <= end_offset
        self.first_dirty_offset = first_dirty_offset if is_known else min(1, end_offset)
        self.is_left_alone = False

    @property
    def may_have_gaps(self) -> bool:
        """Whether offsets may be missing, because the log is compacted, was it, or was copied from
        one that was."""
        return self._segments.folder.config.compacts or self.first_dirty_offset > 0

    def expect_gaps(self) -> bool:
        """Whether that was news, which must be kept: without it, opening would take a gap for lost
        records, and what stands behind for worthless."""
        if self.first_dirty_offset:
            return False
        # One record has no other of its key.
        self.first_dirty_offset = 1
        return True

    def plan(self, *, safe_offset: int, config: LogConfig, now_ms: int) -> CompactionPlan | None:
        """A pass that is due; None when there is none, or one is under way.

        `safe_offset`: everything below is committed and on the medium.
        """
        if not config.compacts or self.is_left_alone or self._job is not None:
            return None
        first_dirty = max(self.first_dirty_offset, self._segments.first.base_offset)
        rules = _rules(config)
        with storage_errors("look for what is to be compacted in", self._segments.folder.path):
            spans = [
                SegmentSpan(
                    segment.base_offset,
                    segment.next_offset,
                    segment.size,
                    segment.largest_timestamp() if rules.min_lag_ms else -1,
                )
                for segment in self._segments.all[:-1]
            ]
            return plan_compaction(
                spans,
                first_dirty_offset=first_dirty,
                safe_offset=safe_offset,
                first_dirty_timestamp_ms=self._first_dirty_timestamp(first_dirty),
                rules=rules,
                now_ms=now_ms,
            )

    def active_is_overdue(self, config: LogConfig, now_ms: int) -> bool:
        """Whether the active segment holds records that `max.compaction.lag.ms` wants compacted: it
        must be followed by a new one first.
        """
        if not config.compacts or self.is_left_alone:
            return False
        with storage_errors("read", self._segments.folder.path):
            first_ms = self._segments.active.time_of_first_batch()
        return is_overdue(first_ms, _rules(config), now_ms)

    def begin(
        self,
        plan: CompactionPlan,
        *,
        config: LogConfig,
        producers: "ProducerStates",
        find_aborted: Callable[[int, int], "list[AbortedTransaction]"],
        keys_max_bytes: int,
        now_ms: int,
    ) -> CompactionJob:
        """The pass of a plan that was made just now.

        `find_aborted`: aborted transactions of [start offset, end offset).
        """
        # Only here: see `load_codec`.
        from storage_engine.log.cleaning.compactor import Compactor, PassOrder, closed_segments

        assert self._job is None
        end = plan.first_uncleanable_offset
        sources = [segment for segment in self._segments.all[:-1] if segment.next_offset <= end]
        kept_batches = {
            batch.last_offset
            for producer in producers
            for batch in producer.batches
            if batch.last_offset < end
        }
        if not self._segments.active.size:
            # A reader who waits for the last offset of the log must get something.
            kept_batches.add(self._segments.active.base_offset - 1)
        with storage_errors("read", self._segments.folder.path):
            aborted = find_aborted(self._segments.first.base_offset, end)
        if self.expect_gaps():
            # On the medium before the first gap is: after a crash the log is opened before anybody
            # knows the policy of its topic.
            try:
                with storage_errors(
                    "note the compaction of", self._segments.folder.path, unchanged=True
                ):
                    self._on_lowered()
            except LogStorageError:
                self.first_dirty_offset = 0
                raise
        order = PassOrder(
            disk=self._segments.folder.disk,
            segments=closed_segments(sources),
            first_dirty_offset=plan.first_dirty_offset,
            rules=_rules(config),
            now_ms=now_ms,
            keys_max_bytes=keys_max_bytes,
            kept_batches=frozenset(kept_batches),
            kept_markers=frozenset(
                (producer.producer_id, producer.epoch)
                for producer in producers
                if not producer.batches
            ),
            aborted=tuple(aborted),
        )
        compactors: list[Compactor] = []

        def copier(is_cancelled: Callable[[], bool]) -> Compactor:
            compactors.append(Compactor(order, is_cancelled))
            return compactors[0]

        def cleaned() -> None:
            (compactor,) = compactors
            self.first_dirty_offset = compactor.end_offset
            logger.info(
                "compacted folder=%s end_offset=%d dropped_records=%d",
                self._segments.folder.path,
                compactor.end_offset,
                compactor.dropped_records,
            )

        self._job = CompactionJob(copier, self._segments, sources, cleaned)
        return self._job

    def begin_repair(
        self,
        scrub: SegmentScrub,
        replacements: Replacements,
        on_repaired: Callable[[], None],
        aborted: "tuple[AbortedTransaction, ...]",
    ) -> CompactionJob:
        """Replaces what is damaged in a segment; of a log without a job."""
        assert self._job is None
        disk = self._segments.folder.disk

        def repaired() -> None:
            self.is_left_alone = False
            on_repaired()

        self._job = CompactionJob(
            lambda is_cancelled: SegmentPatch(disk, scrub, replacements, is_cancelled, aborted),
            self._segments,
            [scrub.segment],
            repaired,
        )
        return self._job

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way."""
        return self._job is not None

    def advance(self, job: CompactionJob) -> bool:
        """After a step's `work` went well: its quick half; whether there is more to do."""
        try:
            goes_on = job.advance()
        except OSError as error:
            self._job = None
            failure = self.failed(job, error)
            if failure is not None:
                raise failure from error
            return False
        if not goes_on:
            self._job = None
        return goes_on

    def goes_on_later(self, job: CompactionJob, error: Exception) -> bool:
        """Whether a step's `work` that failed is to be done again after a while, since it only
        lacked descriptors and the log's files are half replaced."""
        return (
            job.is_half_done
            and not job.is_stopped
            and isinstance(error, OSError)
            and reach_of_file_error(error) is Reach.SHORTAGE
        )

    def failed(self, job: CompactionJob, error: Exception) -> LogStorageError | None:
        """A step's `work` failed: the job is over; the error that the log fails with, if any."""
        self._job = None
        folder = self._segments.folder.path
        if job.is_stopped:
            return None
        job.is_stopped = True
        if job.is_half_done:
            if isinstance(error, OSError) and reach_of_file_error(error) is Reach.FOLDER:
                return storage_error("replace segments of", folder, error)
            return LogStorageError(f"can't replace segments of {folder}: {error}")
        if isinstance(error, CorruptRecordError):
            self.is_left_alone = True
            logger.error("not compacted any more, it is damaged folder=%s error=%s", folder, error)
        else:
            logger.error("not compacted this time folder=%s error=%s", folder, error)
        return None

    def stop(self) -> None:
        """Before the segments change: no job is under way when this returns."""
        if self._job is not None:
            with storage_errors("replace segments of", self._segments.folder.path):
                self._job.stop()

    def abandon(self) -> None:
        """The log closes without regard to its files: a job under way comes to nothing."""
        if self._job is not None:
            self._job.is_stopped = True

    def log_is_cut_to(self, end_offset: int) -> None:
        """What will stand above `end_offset` is not what was cleaned."""
        self.is_left_alone = False
        known = self.first_dirty_offset
        if known > end_offset:
            self.first_dirty_offset = end_offset
            try:
                self._on_lowered()
            except OSError:
                # The log is not cut yet, and the next try must come here again.
                self.first_dirty_offset = known
                raise

    def _first_dirty_timestamp(self, first_dirty: int) -> int:
        for segment in self._segments.all[:-1]:
            if segment.next_offset > first_dirty and segment.size:
                return segment.time_of_first_batch()
        return -1


def load_codec() -> None:
    """Loads numpy and Arrow, for compaction and for the keys of compressed batches: 0.7 s of a
    processor, which a broker without compacted topics does without, and which its event loop has
    not. On any thread, before they are needed.
    """
    importlib.import_module("storage_engine.log.cleaning.compactor")


def _rules(config: LogConfig) -> CompactionRules:
    return CompactionRules(
        min_dirty_ratio=config.min_cleanable_dirty_ratio,
        min_lag_ms=config.min_compaction_lag_ms,
        max_lag_ms=config.max_compaction_lag_ms,
        delete_retention_ms=config.delete_retention_ms,
    )
