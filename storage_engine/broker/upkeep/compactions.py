"""Compaction of this broker's logs. One pass runs at a time, so that a broker needs the memory of
one; the most urgent log comes first.

Leaders and followers each compact their own log. While there is something to do one pass follows
another; otherwise, and after a failure, logs are checked again after `log.cleaner.backoff.ms`.
Source: R-LOG10.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.core.errors import LogStorageError
from storage_engine.core.ports import Background, Clock, Scheduler
from storage_engine.core.retained.retention import CompactionPlan
from storage_engine.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from storage_engine.log.cleaning.compaction_job import CompactionJob


GO_ON_MS = 1000
"""How long a pass that lacks descriptors in the middle of a replacement waits for them."""

log = logging.getLogger(__name__)


class _Pass(NamedTuple):
    """A compaction of a log, whose replica may get another log meanwhile."""

    partition: HostedPartition
    log: PartitionLog
    job: "CompactionJob"

    def fail(self, failure: Exception) -> None:
        self.partition.fail(failure, of=self.log)


class Compactions:
    """Leads jobs through their steps: the slow halves in the background, the quick ones here."""

    def __init__(
        self,
        *,
        keys_max_bytes: Callable[[], int],
        replicas: ReplicaManager,
        scheduler: Scheduler,
        clock: Clock,
        background: Background,
    ) -> None:
        self._keys_max_bytes = keys_max_bytes
        self._replicas = replicas
        self._scheduler = scheduler
        self._clock = clock
        self._background = background
        self._running: _Pass | None = None
        self._resting: set[HostedPartition] = set()
        """Partitions whose compaction has failed: others come first."""
        self._closed = False

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def begin_due(self) -> None:
        """Begin the most urgent pass, unless one is under way."""
        if self._closed or self._running is not None:
            return
        now_ms = self._clock.wall_ms()
        found = self._most_urgent(now_ms)
        if found is None:
            self._resting.clear()
            return
        partition, plan = found
        try:
            job = partition.log.compaction.begin(
                plan, keys_max_bytes=self._keys_max_bytes(), now_ms=now_ms
            )
        except LogStorageError as failure:
            # The partition may stay online, and be the most urgent one again: others come first.
            self._resting.add(partition)
            partition.fail(failure)
            return
        self._running = _Pass(partition, partition.log, job)
        self._work(self._running)

    def close(self) -> None:
        """Begin no more passes; the work under way stops at its next step."""
        self._closed = True
        if self._running is not None:
            try:
                self._running.log.cleaning.stop()
            except LogStorageError as failure:
                self._running.fail(failure)

    def _most_urgent(self, now_ms: int) -> tuple[HostedPartition, CompactionPlan] | None:
        found: tuple[HostedPartition, CompactionPlan] | None = None
        for partition in list(self._replicas):
            if not partition.config.log.compacts:
                continue
            if partition.role is Role.FAILED or partition in self._resting:
                continue
            if partition.log.unfollowed_cuts is not None:
                # The log is being copied to another log dir: a key's older record may be there
                # already, and its tombstone must follow.
                continue
            try:
                plan = partition.log.compaction.plan(now_ms, partition.high_watermark)
            except LogStorageError as failure:
                partition.fail(failure)
                continue
            if plan is not None and (found is None or plan.urgency > found[1].urgency):
                found = partition, plan
        return found

    def _work(self, current: "_Pass") -> None:
        self._background.submit(
            current.job.work,
            lambda _: self._advance(current),
            lambda error: self._failed(current, error),
        )

    def _advance(self, current: "_Pass") -> None:
        try:
            goes_on = current.log.cleaning.advance(current.job)
        except LogStorageError as failure:
            self._running = None
            current.fail(failure)
            return
        if goes_on:
            self._work(current)
            return
        self._running = None
        self._scheduler.call_soon(self.begin_due)

    def _failed(self, current: "_Pass", error: Exception) -> None:
        cleaning, partition = current.log.cleaning, current.partition
        if cleaning.goes_on_later(current.job, error):
            log.warning(
                "compaction continues later partition=%s: %s", partition.topic_partition, error
            )
            self._scheduler.call_later(GO_ON_MS, lambda: self._work(current))
            return
        self._running = None
        self._resting.add(partition)
        failure = cleaning.failed(current.job, error)
        if failure is not None:
            current.fail(failure)
