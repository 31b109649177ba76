"""Group commit: partitions whose acknowledgements wait for the disk share their flushes.

Each log dir has at most one round of flushes under way; an append meanwhile waits for the
next round, which serves all waiting appends at once, and first waits shortly for the producers that
the last round has served. So one flush serves most of the producers, and no disk waits for another.
Source: R-LOG4 (`flush.before.ack`).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.unexpected import guarded
from storage_engine.core.errors import LogBusyError, LogStorageError
from storage_engine.core.ports import Background, Scheduler, Timer

log = logging.getLogger(__name__)


GATHER_MS = 2
"""How long a round waits for as many requests as there were before: about the duration of a flush
on a fast disk. A single producer never waits."""

BUSY_RETRY_MS = 500
"""The delay before a flush that lacked descriptors is retried."""


@dataclass(slots=True)
class _Waiting:
    """The batches and callbacks that wait for the flush of a partition."""

    batches: int = 0
    listeners: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True)
class _Queue:
    """One log dir's queue. Invariant: under way, gathering or idle with an empty queue."""

    under_way: int = 0
    """Flushes of the present round that have not ended."""
    queue: dict[HostedPartition, _Waiting] = field(default_factory=dict)
    requests: int = 0
    """The number of requests in the queue: producers' batches and followers' fetches."""
    round_requests: int = 0
    """The number of requests that the present round serves."""
    expected: int = 0
    """The number of requests that the next round may get, if all that were served send another."""
    gathering: Timer | None = None


class DurableAcks:
    """The rounds of flushes of one broker."""

    def __init__(self, background: Background, scheduler: Scheduler) -> None:
        self._background = background
        self._scheduler = scheduler
        self._queues: dict[Path, _Queue] = {}
        self.rounds = 0
        """Flushes of a log dir so far, each of all partitions that waited."""
        self.fsyncs = 0
        """Files and directories flushed so far."""
        self.batches = 0
        """Producers' batches that these flushes have made durable."""
        self._reported_batches = 0

    def flush(
        self,
        partition: HostedPartition,
        settled: Callable[[], None] | None = None,
        batches: int = 0,
    ) -> None:
        """Flush all that is in the log now; `settled` is called once that is done or has failed.
        `batches` of producers wait for it."""
        path = partition.log.directory.parent
        log_dir = self._queues.setdefault(path, _Queue())
        waiting = log_dir.queue.setdefault(partition, _Waiting())
        waiting.batches += batches
        log_dir.requests += max(1, batches)
        if settled is not None:
            waiting.listeners.append(settled)
        if log_dir.under_way or (log_dir.gathering and log_dir.requests < log_dir.expected):
            return
        self._begin(log_dir)

    def report(self) -> None:
        """Log the counters when they have moved."""
        if self.batches != self._reported_batches:
            self._reported_batches = self.batches
            log.info(
                "durable acknowledgements batches=%d fsyncs=%d rounds=%d",
                self.batches,
                self.fsyncs,
                self.rounds,
            )

    def _begin(self, log_dir: _Queue) -> None:
        """Flush all waiting partitions of the log dir side by side, so that the file system can
        write them in one go."""
        if log_dir.gathering is not None:
            log_dir.gathering.cancel()
            log_dir.gathering = None
        queue, log_dir.queue = log_dir.queue, {}
        log_dir.round_requests, log_dir.requests = log_dir.requests, 0
        fsyncs_before = self.fsyncs
        # The round is not over before all of its flushes have begun.
        log_dir.under_way = len(queue)
        for partition, waiting in queue.items():
            self._flush_one(log_dir, partition, waiting)
        self.rounds += self.fsyncs > fsyncs_before

    def _flush_one(self, log_dir: _Queue, partition: HostedPartition, waiting: _Waiting) -> None:
        replica_log = partition.log
        wanted_end_offset = replica_log.log_end_offset

        def done(_result: None) -> None:
            guarded("the end of a flush", finish)
            self._settle(log_dir, waiting)

        def finish() -> None:
            job.finish()
            succeeded()
            if job.end_offset < min(wanted_end_offset, partition.log.log_end_offset):
                # There are more segments than one job flushes.
                self.flush(partition)

        def succeeded() -> None:
            self.batches += waiting.batches
            partition.flushed()

        def failed(error: Exception) -> None:
            # Never tried again: the kernel may count the pages as clean after a failed fsync.
            partition.fail(error, of=replica_log)
            self._settle(log_dir, waiting)

        try:
            if partition.role is Role.FAILED:
                raise LogStorageError(f"the log dir of {partition.topic_partition} failed")
            if replica_log.is_durable:
                # An earlier round, or a flush for another reason, took it along.
                succeeded()
                self._settle(log_dir, waiting)
                return
            job = replica_log.flush_state.prepare()
        except LogBusyError as failure:
            # Nothing was synced yet, so nothing may be acknowledged.
            partition.fail(failure)
            self._scheduler.call_later(
                BUSY_RETRY_MS, lambda: self._flush_again(log_dir, partition, waiting)
            )
            self._end_one(log_dir)
            return
        except LogStorageError as failure:
            failed(failure)
            return
        self.fsyncs += job.syncs
        self._background.submit(job.run, done, failed)

    def _settle(self, log_dir: _Queue, waiting: _Waiting) -> None:
        for settled in waiting.listeners:
            guarded("an answer after a flush", settled)
        self._end_one(log_dir)

    def _flush_again(self, log_dir: _Queue, partition: HostedPartition, former: _Waiting) -> None:
        waiting = log_dir.queue.setdefault(partition, _Waiting())
        waiting.batches += former.batches
        waiting.listeners += former.listeners
        log_dir.requests += max(1, former.batches)
        if not log_dir.under_way and log_dir.gathering is None:
            self._begin(log_dir)

    def _end_one(self, log_dir: _Queue) -> None:
        log_dir.under_way -= 1
        if not log_dir.under_way:
            self._gather(log_dir)

    def _gather(self, log_dir: _Queue) -> None:
        """After a round, wait for the next requests of the producers that it has served."""
        log_dir.expected = log_dir.round_requests + log_dir.requests
        if log_dir.requests < log_dir.expected > 1:
            log_dir.gathering = self._scheduler.call_later(
                GATHER_MS, lambda: self._stop_gathering(log_dir)
            )
        elif log_dir.queue:
            self._begin(log_dir)

    def _stop_gathering(self, log_dir: _Queue) -> None:
        log_dir.gathering = None
        if log_dir.queue and not log_dir.under_way:
            self._begin(log_dir)
