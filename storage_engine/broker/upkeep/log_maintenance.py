"""Periodic work on the logs of this broker: retention, flushes, deletion of files, checkpoints.

Only replicas whose settings are known (hosted ones) are touched, so that a log never loses segments
to a default that its topic overrides. Long work runs in the background. Source: R-LOG4, R-LOG8,
R-LOG9.

`Rhythm`: periodic work, at an interval that may change.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from storage_engine.broker.quotas.new_producers import BROKER_PRODUCERS_MAX, NewProducers
from storage_engine.broker.replicas.changed_replicas import ChangedReplicas
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.upkeep.compactions import Compactions
from storage_engine.broker.upkeep.scrubs import CHECK_INTERVAL_MS as SCRUB_CHECK_INTERVAL_MS
from storage_engine.broker.upkeep.scrubs import Scrubs
from storage_engine.core.errors import LogStorageError
from storage_engine.core.ports import Background, Clock, Scheduler, Timer
from storage_engine.core.retained.retention import DeletionPolicy
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.upkeep import DeletionPolicyError

log = logging.getLogger(__name__)


class Rhythm:
    """Calls `work` at the end of each interval."""

    def __init__(
        self, scheduler: Scheduler, interval_ms: Callable[[], int], work: Callable[[], None]
    ) -> None:
        self._scheduler = scheduler
        self._interval_ms = interval_ms
        self._work = work
        self._began_with_ms = 0
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin a whole interval."""
        self._began_with_ms = self._interval_ms()
        self._timer = self._scheduler.call_later(self._began_with_ms, self._is_due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def interval_may_have_changed(self) -> None:
        """Begin a new interval if its length has changed."""
        if self._timer is not None and self._interval_ms() != self._began_with_ms:
            self._timer.cancel()
            self.start()

    def _is_due(self) -> None:
        # First, so that work that fails is not the last.
        self.start()
        self._work()


DELETED_FILES_INTERVAL_MS = 1000
"""How often the broker looks for files whose `file.delete.delay.ms` is over."""

FREE_SPACE_INTERVAL_MS = 1000
"""How long appends rely on the last measurement of free space."""

LOOK_AROUND_INTERVAL_MS = 1000
"""How often the broker checks a part of the replicas for unreported changes; see
`ChangedReplicas`."""

MAKE_GOOD_INTERVAL_MS = 1000
"""How often work that a shortage of descriptors prevented is retried."""

PRODUCERS_INTERVAL_MS = 60_000
"""How often the broker looks for producers whose expiration time is over."""

FORGOTTEN_A_TURN = 10_000
"""The most producers that are removed in one turn of the event loop, in however many logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceIntervals:
    """The intervals of background work, from the broker's settings."""

    retention_ms: Callable[[], int]
    compaction_ms: Callable[[], int]
    flush_ms: int
    checkpoint_ms: int


class LogMaintenance:
    """Does each kind of work on the hosted replicas at its own interval."""

    def __init__(
        self,
        intervals: MaintenanceIntervals,
        *,
        logs: LogManager,
        replicas: ReplicaManager,
        scheduler: Scheduler,
        clock: Clock,
        background: Background,
        deletion_policy: DeletionPolicy,
        compactions: Compactions | None,
        scrubs: Scrubs,
        new_producers: NewProducers,
    ) -> None:
        self._intervals = intervals
        self._logs = logs
        self._replicas = replicas
        self._scheduler = scheduler
        self._clock = clock
        self._background = background
        self._deletion_policy = deletion_policy
        self._compactions = compactions
        self._scrubs = scrubs
        self._new_producers = new_producers
        self._changed = ChangedReplicas(replicas.changes)
        self._flushing: set[HostedPartition] = set()
        self._rhythms: list[Rhythm] = []

    def start(self) -> None:
        intervals = self._intervals
        self._begin(intervals.retention_ms, self._apply_retention)
        self._every(LOOK_AROUND_INTERVAL_MS, self._look_around)
        self._every(intervals.flush_ms, self._flush)
        self._every(intervals.checkpoint_ms, self._checkpoint)
        self._every(DELETED_FILES_INTERVAL_MS, self._remove_deleted_files)
        self._every(FREE_SPACE_INTERVAL_MS, self._logs.dirs.refresh_free_space)
        self._every(MAKE_GOOD_INTERVAL_MS, self._make_good)
        self._every(PRODUCERS_INTERVAL_MS, self._expire_producers)
        if self._compactions is not None:
            self._begin(intervals.compaction_ms, self._compactions.begin_due)
        self._every(SCRUB_CHECK_INTERVAL_MS, self._scrubs.begin_due)

    def close(self) -> None:
        for rhythm in self._rhythms:
            rhythm.stop()
        self._scrubs.close()
        if self._compactions is not None:
            self._compactions.close()

    def settings_may_have_changed(self) -> None:
        """Apply changed intervals at once."""
        for rhythm in self._rhythms:
            rhythm.interval_may_have_changed()

    def _every(self, interval_ms: int, work: Callable[[], None]) -> None:
        self._begin(lambda: interval_ms, work)

    def _begin(self, interval_ms: Callable[[], int], work: Callable[[], None]) -> None:
        rhythm = Rhythm(self._scheduler, interval_ms, work)
        rhythm.start()
        self._rhythms.append(rhythm)

    def _look_around(self) -> None:
        self._changed.look_around(self._replicas, LOOK_AROUND_INTERVAL_MS)

    def _present(self) -> list[HostedPartition]:
        """The few replicas with something to do: to ask each of thousands would cost more."""
        return self._changed.present(self._replicas.get)

    def _each(
        self,
        work: Callable[[HostedPartition], None],
        due: Iterable[HostedPartition] | None = None,
    ) -> None:
        """Do the work on each replica, or on each that is due."""
        for partition in list(self._replicas) if due is None else due:
            if partition.role is Role.FAILED:
                continue
            try:
                work(partition)
            except LogStorageError as failure:
                partition.fail(failure)

    def _apply_retention(self) -> None:
        now_ms = self._clock.wall_ms()
        self._each(lambda p: self._delete_old(p, now_ms))

    def _delete_old(self, partition: HostedPartition, now_ms: int) -> None:
        # Followers take over the leader's log start, so that all replicas begin at one offset.
        if partition.leader is not None:
            start_offset = partition.log.log_start_offset
            try:
                partition.log.retention.delete_old_segments(
                    now_ms, partition.high_watermark, self._deletion_policy
                )
            except DeletionPolicyError:
                # The round is over for this log; it continues with the others.
                log.exception("no segment deleted partition=%s", partition.topic_partition)
            if partition.log.log_start_offset != start_offset:
                partition.note_change()
                partition.follower_watches.note()

    def _expire_producers(self) -> None:
        is_crowded = self._new_producers.count() >= BROKER_PRODUCERS_MAX // 2
        self._forget_some(iter(list(self._replicas)), is_crowded)

    def _forget_some(self, left: Iterator[HostedPartition], is_crowded: bool) -> None:
        """Remove expired producers of the next replicas, and of the others in later turns."""
        now_ms = self._clock.wall_ms()
        gone = 0
        for partition in left:
            if partition.role is not Role.FAILED:
                gone += partition.log.expire_producers(now_ms, is_crowded=is_crowded)
            if gone >= FORGOTTEN_A_TURN:
                self._scheduler.call_soon(lambda: self._forget_some(left, is_crowded))
                return

    def _flush(self) -> None:
        now_ms = self._clock.monotonic_ms()
        due = [each for each in self._present() if each.log.flush_state.is_due(now_ms)]
        self._each(self._flush_one, due)

    def _flush_one(self, partition: HostedPartition) -> None:
        if partition in self._flushing:
            return
        replica_log = partition.log
        job = replica_log.flush_state.prepare()
        self._flushing.add(partition)

        def done(_result: None) -> None:
            self._flushing.discard(partition)
            job.finish()

        def failed(error: Exception) -> None:
            self._flushing.discard(partition)
            partition.fail(error, of=replica_log)

        self._background.submit(job.run, done, failed)

    def _make_good(self) -> None:
        due = [each for each in self._present() if each.log.segments.is_cut_short]
        self._each(self._replicas.open_again, due)
        self._logs.retry_removals()

    def _checkpoint(self) -> None:
        self._logs.write_recovery_points()
        self._logs.write_log_starts()
        self._logs.write_cleaner_offsets()
        self._logs.write_scrub_times()

    def _remove_deleted_files(self) -> None:
        now_ms = self._clock.monotonic_ms()
        deleted: list[Path] = []
        for partition in self._present():
            if partition.log.segments.has_deleted_files:
                deleted.extend(partition.log.segments.take_deleted_files(now_ms))
        if deleted:
            self._background.submit(
                lambda: self._logs.remove_files(deleted), lambda _: None, _complain
            )


def _complain(error: Exception) -> None:
    log.error("files of deleted segments could not be removed: %s", error)
