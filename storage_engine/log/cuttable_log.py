"""The side of a log where records go as a whole: truncation, deletion, retention. Its one rule:
what tells of a cut is on the medium before the files are cut.

Source: R-LOG8, R-LOG9, R-REP8.
"""

import logging

from storage_engine.core.producer_state import ProducerStates
from storage_engine.log.aborted_transactions import check_transaction_index
from storage_engine.log.producer_replay import load_producers
from storage_engine.log.retention import count_deletable
from storage_engine.log.stateful_log import StatefulLog
from storage_engine.log.storage_errors import storage_errors

logger = logging.getLogger(__name__)


class CuttableLog(StatefulLog):
    """Whatever changes the segments here stops a pass of compaction first."""

    __slots__ = ()

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
        if self.on_cut is not None:
            self.on_cut(self.log_end_offset)
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
            self._drop_below_start()
        return is_news

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Applies `retention.ms` and `retention.bytes`; the number of segments deleted."""
        segments = self._segments
        if self._has_segments_below_start:
            self._drop_below_start()
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
