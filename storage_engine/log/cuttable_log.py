"""The side of a log where records go as a whole: truncation, deletion, retention. Its one rule:
what tells of a cut is on the medium before the files are cut.

Source: R-LOG8, R-LOG9, R-REP8.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from storage_engine.core.errors import LogShortageError, LogStorageError
from storage_engine.core.retained.producer_state import (
    ANY_FORGOTTEN,
    NONE_FORGOTTEN,
    ProducerStates,
)
from storage_engine.core.retained.retention import DeletionPolicy, KafkaDeletionPolicy
from storage_engine.log.files.storage_errors import storage_errors
from storage_engine.log.retention import count_deletable
from storage_engine.log.state.aborted_transactions import check_transaction_index
from storage_engine.log.state.producer_replay import load_producers
from storage_engine.log.stateful_log import StatefulLog

logger = logging.getLogger(__name__)

KAFKA_POLICY: DeletionPolicy = KafkaDeletionPolicy()


class CuttableLog(StatefulLog):
    """Whatever changes the segments here stops a pass of compaction first."""

    __slots__ = ()

    def truncate_to(self, offset: int) -> int:
        """Drops everything from `offset` on; the new end, which is lower if `offset` lies within a
        batch.
        """
        self._segments.check_whole()
        if offset >= self.log_end_offset:
            # An epoch that began at the end and wrote nothing may contradict the leader's history.
            self._epochs.truncate_from_end(offset)
            return self.log_end_offset
        if offset <= self._segments.first.base_offset or offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        self.compaction.stop()
        segments = self._segments
        with storage_errors("truncate", self.directory):
            check_transaction_index(
                self._snapshots, segments.all, segments.all[segments.number_of(offset)]
            )
            self._flush_state.log_is_cut_to(offset)
            self.compaction.log_is_cut_to(offset)
        with self._whole_or_cut_short("truncate"):
            self._reader.positions.clear()
            segments.cut_to(offset)
            # Within a batch: the end is lower still.
            self._flush_state.log_is_cut_to(self.log_end_offset)
            self.compaction.log_is_cut_to(self.log_end_offset)
            self.damaged = tuple(b for b in self.damaged if b.end_offset <= self.log_end_offset)
            self._epochs.truncate_from_end(self.log_end_offset)
            before = self._tail.producers
            self._tail.producers = load_producers(
                self._snapshots,
                self._segments.all,
                log_start_offset=self.log_start_offset,
                has_gaps=self.compaction.may_have_gaps,
                now_ms=self._clock.wall_ms(),
            )
            self._tail.producers.cut_from(before)
        if self.on_cut is not None:
            self.on_cut(self.log_end_offset)
        if self.log_end_offset < self.log_start_offset:
            self.truncate_fully_and_start_at(self.log_start_offset)
        logger.info(
            "truncated partition=%s end_offset=%d", self.topic_partition, self.log_end_offset
        )
        return self.log_end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything; the log is empty and begins at `offset`."""
        self._segments.check_whole()
        start_offset = self.log_start_offset
        self.log_start_offset = offset
        if offset <= start_offset:
            # A log that ends before its start would be dropped when it is opened. And if a crash
            # leaves no segment, only the checkpoint tells where the log begins.
            try:
                with storage_errors("truncate", self.directory):
                    self._on_lowered()
            except LogStorageError:
                self.log_start_offset = start_offset
                raise
        self._start_anew_at(offset)
        if self.on_cut is not None:
            self.on_cut(None)
        logger.info("truncated fully partition=%s start_offset=%d", self.topic_partition, offset)

    def advance_log_start(self, offset: int) -> bool:
        """Records below `offset` count as deleted, whole segments of them go; True when that was
        news.
        """
        if offset > self.log_end_offset:
            raise self.out_of_range(offset)
        is_news = offset > self.log_start_offset
        if is_news:
            self.log_start_offset = offset
        if is_news or self._has_segments_below_start:
            # The news must reach who writes them down, and the files can go later.
            with suppress(LogShortageError):
                self._drop_below_start()
        return is_news

    def delete_old_segments(
        self, now_ms: int, high_watermark: int, policy: DeletionPolicy = KAFKA_POLICY
    ) -> int:
        """Applies the policy, of `retention.ms` and `retention.bytes` mostly; the number of
        segments deleted. DeletionPolicyError when the policy fails; nothing is deleted then."""
        segments = self._segments
        segments.check_whole()
        if self._has_segments_below_start:
            self._drop_below_start()
        with storage_errors("apply retention to", self.directory):
            count = count_deletable(segments.all, self._config, now_ms, high_watermark, policy)
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

    # -- helpers -----------------------------------------------------------------------------------

    @contextmanager
    def _whole_or_cut_short(self, action: str) -> Iterator[None]:
        """Around a change that touches several files: one that a shortage ends in the middle has
        left them as a killed process would, and is made good as after one."""
        try:
            with storage_errors(action, self.directory):
                yield
        except LogShortageError:
            self._segments.is_cut_short = True
            if self.on_cut is not None:
                # How much is gone is known once the log is opened again.
                self.on_cut(None)
            raise

    def _start_anew_at(self, offset: int) -> None:
        """One empty segment at `offset`; the log's start stays."""
        self.compaction.stop()
        with storage_errors("truncate", self.directory):
            self._flush_state.log_is_cut_to(offset)
            self.compaction.log_is_cut_to(offset)
        with self._whole_or_cut_short("truncate"):
            self._reader.positions.clear()
            self._segments.start_anew_at(offset)
            self.damaged = ()
            self._snapshots.remove_all()
        # Of what lay before `offset` in the log that is followed from now on nobody here knows.
        self._tail.producers = ProducerStates(
            forgotten_to=ANY_FORGOTTEN if offset > 0 else NONE_FORGOTTEN
        )
        self._epochs.truncate_from_end(0)

    @property
    def _has_segments_below_start(self) -> bool:
        """One that held the log's start when it was the newest may have been followed since."""
        return self._segments.number_of(self.log_start_offset) > 0

    def _drop_below_start(self) -> None:
        """Deletes the segments below the log's start."""
        if self._segments.number_of(self.log_start_offset):
            self.compaction.stop()
        # Counted only now: the end of a pass may have made one segment of several.
        count = self._segments.number_of(self.log_start_offset)
        with storage_errors("delete segments of", self.directory):
            self._segments.drop_oldest(count)
        self._epochs.truncate_from_start(self.log_start_offset)
