"""Moves replicas between the log dirs of this broker while they serve: copies, catches up,
and has the copy take the log's place.

    asked for -> copied a piece at a time -> flushed beside the loop -> copied on -> nothing missing
              -> in one turn of the loop: the rest flushed, the folders renamed, the log replaced

Each turn of the loop copies one piece of one partition, no faster than the throttle, and never
waits for the disk that is read. Work of more than a turn of the loop holds the log that it began
with, whose failures count only while its replica has it (`HostedPartition.fail`). Source: KIP-113.
"""

import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path

from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.core.errors import (
    ErrorCode,
    KafkaError,
    LogBusyError,
    LogDirError,
    LogShortageError,
    LogStorageError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background, Scheduler
from storage_engine.core.system_errors import Reach, reach_of_file_error
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.dirs.log_moves import FutureLog
from storage_engine.log.files.segment_files import ColdBytesError, LoadJob

PIECE_BYTES = 512 << 10
"""The bytes copied in one turn: about a millisecond of the loop."""

FLUSHED_AT_ONCE = 4 << 20
"""A complete copy with at most so many unflushed bytes takes the log's place; more are flushed
beside the loop first."""

PAUSE_MS = 10_000
"""The pause after an error that may pass, such as a full disk or damage that a scrub repairs."""

RESUME_MS = 1_000
"""How often the broker looks for moves that its last run has not completed, until their replicas
are loaded."""

log = logging.getLogger(__name__)


class _Move:
    """A replica that is being moved."""

    __slots__ = ("flushed_bytes", "future", "partition", "written_bytes")

    def __init__(self, partition: HostedPartition, future: FutureLog) -> None:
        self.partition = partition
        self.future = future
        self.written_bytes = 0
        self.flushed_bytes = 0


class ReplicaMoves:
    """The moves between log dirs of one broker."""

    def __init__(
        self,
        *,
        logs: LogManager,
        replicas: ReplicaManager,
        scheduler: Scheduler,
        background: Background,
        bytes_per_second: Callable[[], int],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._scheduler = scheduler
        self._background = background
        self._bytes_per_second = bytes_per_second
        self._moves: deque[_Move] = deque()
        """The moves take turns; the one in progress is not among them."""
        self._working: _Move | None = None
        self._is_due = False
        self._closed = False

    def start(self) -> None:
        """Continue the moves that the last run has not completed, as soon as the replicas are
        loaded."""
        for tp in list(self._logs.moves.interrupted):
            partition = self._replicas.get(tp)
            if self._logs.get(tp) is None:
                # The replica is gone.
                self._logs.moves.forget_interrupted(tp)
            elif partition is not None and partition.role is not Role.FAILED:
                log_dir, _ = self._logs.moves.interrupted[tp]
                try:
                    self.move(tp, log_dir.path)
                except LogBusyError as failure:
                    log.warning("move not resumed yet partition=%s: %s", tp, failure)
                except KafkaError as failure:
                    log.error("move not resumed partition=%s: %s", tp, failure)
                    self._logs.moves.forget_interrupted(tp)
        if self._logs.moves.interrupted and not self._closed:
            self._scheduler.call_later(RESUME_MS, self.start)

    def close(self) -> None:
        """Begin no more moves."""
        self._closed = True

    def move(self, tp: TopicPartition, path: Path) -> None:
        """Moves a replica to that log dir. Raises KafkaError:
        LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR; INVALID_REPLICA_ASSIGNMENT for a cordoned log dir;
        REPLICA_NOT_AVAILABLE when it is not here, and will be made there.
        """
        log_dir = self._logs.dirs.at(path)
        partition = self._replicas.get(tp)
        if partition is None:
            if self._logs.get(tp) is None:
                self._logs.dirs.check_not_cordoned(path)
                self._logs.dirs.prefer(tp, path)
            raise KafkaError(f"{tp} is not on this broker", ErrorCode.REPLICA_NOT_AVAILABLE)
        if partition.role is Role.FAILED:
            raise LogDirError(f"the log dir of {tp} failed")
        if partition.log.directory.parent == path:
            self._logs.moves.cancel(tp)
            return
        self._logs.dirs.check_not_cordoned(path)
        known = self._logs.moves.under_way.get(tp)
        if known is None or known.log_dir is not log_dir:
            self._begin(partition, path)

    def _begin(self, partition: HostedPartition, path: Path) -> None:
        log_dir = self._logs.dirs.at(path)
        future = self._logs.moves.begin(partition.topic_partition, log_dir)
        self._moves.append(_Move(partition, future))
        self._go_on(0)

    def _go_on(self, delay_ms: int) -> None:
        if not self._is_due and self._working is None and not self._closed:
            self._is_due = True
            self._scheduler.call_later(delay_ms, self._turn)

    def _turn(self) -> None:
        self._is_due = False
        if self._closed or not self._moves:
            return
        move = self._moves.popleft()
        tp = move.partition.topic_partition
        if not self._is_under_way(move):
            # Cancelled, or its replica or log dir is gone.
            self._go_on(0)
            return
        self._working = move
        try:
            self._step(move)
        except ColdBytesError as cold:
            self._load(move, cold.load_job(PIECE_BYTES))
        except KafkaError as failure:
            self._failed(move, failure)
        except Exception:
            log.exception("move given up partition=%s", tp)
            self._give_up(move)

    def _step(self, move: _Move) -> None:
        tp, future = move.partition.topic_partition, move.future
        if self._replicas.get(tp) is not move.partition or move.partition.role is Role.FAILED:
            self._give_up(move)
            return
        if future.cuts.begun_anew:
            self._begin(move.partition, future.log_dir.path)
            self._rest(0)
            return
        future.follow_cuts()
        current = move.partition.log
        try:
            piece = current.reads.read(future.log.log_end_offset, max_bytes=PIECE_BYTES, wait=False)
            if piece is not None and not piece.is_warm():
                self._load(move, piece.load_job())
                return
            data = None if piece is None else piece.view()
        except LogBusyError:
            raise
        except LogStorageError as failure:
            # The log dir that the replica leaves has failed.
            move.partition.fail(failure)
            self._give_up(move)
            return
        if data is None:
            self._caught_up(move)
            return
        size = future.log.follower_appends.append(data).size
        move.written_bytes += size
        self._moves.append(move)
        self._rest(size * 1000 // self._bytes_per_second())

    def _caught_up(self, move: _Move) -> None:
        if move.written_bytes - move.flushed_bytes > FLUSHED_AT_ONCE:
            self._flush(move)
            return
        tp = move.partition.topic_partition
        move.future.end_with_current()
        try:
            replaced = self._logs.moves.take_over(tp, self._replicas.high_watermarks)
        except LogDirError as failure:
            if self._is_under_way(move):
                # The log dir that the replica goes to has failed.
                raise
            self._replicas.fail_alone(move.partition, failure)
        else:
            self._replicas.replace_log(move.partition, replaced)
        self._rest(0)

    def _load(self, move: _Move, job: LoadJob) -> None:
        """Read the bytes into the page cache."""
        replica_log = move.partition.log

        def done(failure: LogStorageError | None) -> None:
            if isinstance(failure, LogBusyError):
                self._failed(move, failure)
                return
            if failure is not None:
                move.partition.fail(failure, of=replica_log)
                self._give_up(move)
                return
            self._moves.append(move)
            self._rest(0)

        def failed(error: Exception) -> None:
            self._failed(move, LogStorageError(f"the log can't be read: {error}"))

        self._background.submit(job.run, done, failed)

    def _flush(self, move: _Move) -> None:
        written_bytes = move.written_bytes
        job = move.future.log.flush_state.prepare()

        def done(_: None) -> None:
            job.finish()
            # One job may flush the oldest part only.
            if move.future.log.is_durable:
                move.flushed_bytes = written_bytes
            self._moves.append(move)
            self._rest(0)

        def failed(error: Exception) -> None:
            message = f"the copy can't be flushed: {error}"
            # Never of an fsync: see `log.files.disk`.
            is_short = isinstance(error, OSError) and reach_of_file_error(error) is Reach.SHORTAGE
            self._failed(move, LogShortageError(message) if is_short else LogDirError(message))

        self._background.submit(job.run, done, failed)

    def _failed(self, move: _Move, failure: KafkaError) -> None:
        tp = move.partition.topic_partition
        if not self._is_under_way(move):
            log.info("move had ended partition=%s: %s", tp, failure)
        elif isinstance(failure, LogDirError):
            # Failed reads end in `fail` above; this is the log dir that is written to.
            self._replicas.fail_log_dir(move.future.log_dir.path, failure)
        elif isinstance(failure, LogStorageError) and not isinstance(failure, LogBusyError):
            log.error("move given up partition=%s: %s", tp, failure)
            self._logs.moves.cancel(tp)
        else:
            log.warning("move waits partition=%s: %s", tp, failure)
            self._moves.append(move)
        self._rest(PAUSE_MS if self._moves else 0)

    def _give_up(self, move: _Move) -> None:
        """Cancel the move, unless a newer move of the same replica has replaced it."""
        if self._is_under_way(move):
            self._logs.moves.cancel(move.partition.topic_partition)
        self._rest(0)

    def _is_under_way(self, move: _Move) -> bool:
        return self._logs.moves.under_way.get(move.partition.topic_partition) is move.future

    def _rest(self, delay_ms: int) -> None:
        """End the work on a piece; continue with the next move after the pause."""
        self._working = None
        if self._moves:
            self._go_on(delay_ms)
