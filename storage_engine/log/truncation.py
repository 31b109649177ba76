"""Drops the end of a log, or all of it. The record of a truncation is on the medium before the
files are cut.

Source: R-LOG8, R-REP8.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from storage_engine.core.errors import LogShortageError, LogStorageError
from storage_engine.core.retained.producer_state import (
    ANY_FORGOTTEN,
    NONE_FORGOTTEN,
    ProducerStates,
)
from storage_engine.log.files.disk import storage_errors
from storage_engine.log.log_state import LogState
from storage_engine.log.state.producer_replay import (
    check_transaction_index,
    load_producers,
    producers_of_tail,
    take_back,
)

logger = logging.getLogger(__name__)


class Truncation:
    """Truncates the log; a job that replaces segments is stopped before."""

    __slots__ = ("_log",)

    def __init__(self, log: LogState) -> None:
        self._log = log

    def truncate_to(self, offset: int) -> int:
        """Drops everything from `offset` on; returns the new end, which is lower if `offset` lies
        within a batch.
        """
        log = self._log
        log.segments.check_whole()
        if offset >= log.log_end_offset:
            # An epoch that began at the end and wrote nothing may contradict the leader's history.
            log.epoch_checkpoint.truncate_from_end(offset)
            return log.log_end_offset
        if offset <= log.segments.first.base_offset or offset < log.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        log.cleaning.stop()
        segments = log.segments
        with storage_errors("truncate", log.directory):
            check_transaction_index(
                log.snapshots, segments.all, segments.all[segments.number_of(offset)]
            )
            tail_ids = producers_of_tail(segments.active, offset)
            self._lower_offsets(offset)
        with self._whole_or_cut_short():
            log.read_positions.clear()
            end_offset = segments.cut_to(offset)
            # The offset lies within a batch: the end is lower still.
            self._lower_offsets(end_offset)
            log.damaged = tuple(bad for bad in log.damaged if bad.end_offset <= end_offset)
            log.epoch_checkpoint.truncate_from_end(end_offset)
            self._cut_producers(tail_ids, end_offset)
        if log.unfollowed_cuts is not None:
            log.unfollowed_cuts.note_end(end_offset)
        if end_offset < log.log_start_offset:
            self.truncate_fully_and_start_at(log.log_start_offset)
        logger.info("truncated partition=%s end_offset=%d", log.topic_partition, log.log_end_offset)
        return log.log_end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything; the log is empty and begins at `offset`."""
        log = self._log
        log.segments.check_whole()
        start_offset = log.log_start_offset
        log.log_start_offset = offset
        if offset <= start_offset:
            # Opening would drop a log that ends before its start. And if a crash leaves no segment,
            # only the checkpoint tells where the log begins.
            try:
                with storage_errors("truncate", log.directory):
                    log.checkpoints.write()
            except LogStorageError:
                log.log_start_offset = start_offset
                raise
        self.start_anew_at(offset)
        if log.unfollowed_cuts is not None:
            log.unfollowed_cuts.note_new_beginning()
        logger.info("truncated fully partition=%s start_offset=%d", log.topic_partition, offset)

    def start_anew_at(self, offset: int) -> None:
        """Drops everything for one empty segment at `offset`; the log's start offset stays."""
        log = self._log
        log.cleaning.stop()
        with storage_errors("truncate", log.directory):
            self._lower_offsets(offset)
        with self._whole_or_cut_short():
            log.read_positions.clear()
            # First of all: no epoch of the old log may be taken for one of the new.
            log.epoch_checkpoint.truncate_from_end(0)
            log.segments.start_anew_at(offset)
            log.damaged = ()
            log.snapshots.remove_all()
        # Nothing here tells which producers wrote below `offset` to the log that continues here.
        log.producer_state = ProducerStates(
            forgotten_to=ANY_FORGOTTEN if offset > 0 else NONE_FORGOTTEN
        )

    def _cut_producers(self, tail_ids: set[int] | None, end_offset: int) -> None:
        """Bring the producers to the end that is left; `tail_ids`: see `producers_of_tail`."""
        log = self._log
        states = log.producer_state
        if tail_ids is not None and take_back(states, log.segments.active, tail_ids):
            # A stop in order left one at the dropped end. Other batches will stand there.
            log.snapshots.remove_above(end_offset)
            return
        log.producer_state = load_producers(
            log.snapshots,
            log.segments.all,
            log_start_offset=log.log_start_offset,
            has_gaps=log.cleaning.may_have_gaps,
            now_ms=log.clock.wall_ms(),
        )
        log.producer_state.cut_from(states)

    def _lower_offsets(self, end_offset: int) -> None:
        """Lowers recovery point and first dirty offset to `end_offset`, on the medium too."""
        self._log.flush_state.log_is_cut_to(end_offset)
        self._log.cleaning.log_is_cut_to(end_offset)

    @contextmanager
    def _whole_or_cut_short(self) -> Iterator[None]:
        """Marks the log as cut short when a shortage of descriptors or memory ends a change of
        several files in the middle: the files are as a killed process leaves them, and only
        `PartitionLog.open_again` repairs that."""
        log = self._log
        try:
            with storage_errors("truncate", log.directory):
                yield
        except LogShortageError:
            log.segments.is_cut_short = True
            if log.unfollowed_cuts is not None:
                # The extent of the loss is known once the log is opened again.
                log.unfollowed_cuts.note_new_beginning()
            raise
