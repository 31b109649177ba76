"""Looks for damage in the older segments of this broker's logs, and has it repaired. One segment is
checked at a time, in pieces, no faster than log.scrub.bytes.per.second; compaction goes first.

A damaged range is fetched from another replica and swapped in as compaction does it, by the leader
as well as by a follower; until then no reader gets it. A follower that receives a damaged batch
and a compaction that finds one report it, and this log is then scrubbed before its turn.

Source: R-LOG8.
"""

import enum
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.upkeep.segment_repair import YIELD_MS, RepairEnd, SegmentRepair
from storage_engine.core.errors import LogBusyError, LogStorageError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import Background, Clock, Endpoint, Scheduler
from storage_engine.log.cleaning.segment_scrub import SegmentScrub
from storage_engine.log.files.disk import storage_error
from storage_engine.protocol.transport import Transport

CHECK_INTERVAL_MS = 1000
"""How often the broker looks for a log that is due for a scrub."""

LOOK_AGAIN_MS = 5000
LOOK_AGAIN_MAX_MS = 30_000
"""All logs are checked again when the next one is due, but not before LOOK_AGAIN_MS and not after
this time; logs that become due in between wait for the next check."""

RETRY_MS = 30_000
"""The delay before replicas are asked again for a range that none of them could provide."""

REPORT_PAUSE_MS = 10_000
"""The shortest pause between checks of a reported segment: a follower that is stuck reports with
every fetch, and so does a coordinator that can't read its log."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubSettings:
    """The settings of the scrubber."""

    broker_id: int
    interval_ms: int
    """The time between two scrubs of a log; 0 means that only reported damage is checked."""
    bytes_per_second: int


BUSY_MS = 1000
"""How long a pass waits for descriptors."""


class _Reason(enum.Enum):
    """The purpose of a pass."""

    WHOLE = "whole"
    """The whole log is due."""
    RETRY = "retry"
    """Ranges that are known to be damaged are due."""
    REPORT = "report"
    """A segment was reported as damaged."""


class _Pass:
    """A scrub of a log, or of a part of it."""

    __slots__ = ("left", "log", "next_offset", "partition", "reason", "stop_offset")

    def __init__(
        self, partition: HostedPartition, next_offset: int, stop_offset: int, reason: _Reason
    ) -> None:
        self.partition = partition
        self.log = partition.log
        self.next_offset = next_offset
        self.stop_offset = stop_offset
        self.reason = reason
        self.left: tuple[int, int] | None = None
        """The range of offsets whose damage could not be repaired."""

    def leave(self, scrub: SegmentScrub) -> None:
        """Note that the segment stays damaged."""
        first = scrub.base_offset if self.left is None else self.left[0]
        self.left = first, scrub.end_offset


class _Retry(NamedTuple):
    """Damage that is left between two offsets, and when it is to be repaired again."""

    due_ms: int
    start_offset: int
    stop_offset: int
    whole_due_ms: int | None
    """The time when the rest of the log is due; None means never."""


class Scrubs:
    """Leads passes from segment to segment."""

    def __init__(
        self,
        settings: ScrubSettings,
        *,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        transport: Transport,
        scheduler: Scheduler,
        clock: Clock,
        background: Background,
        is_compacting: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._metadata = metadata
        self._transport = transport
        self._scheduler = scheduler
        self._clock = clock
        self._background = background
        self._is_compacting = is_compacting
        self._current: _Pass | None = None
        self._reported: dict[TopicPartition, int] = {}
        """Partition -> an offset whose segment is to be checked at once."""
        self._report_due_ms: dict[TopicPartition, int] = {}
        self._retries: dict[TopicPartition, _Retry] = {}
        self._seen_left_alone: set[HostedPartition] = set()
        """Partitions that compaction leaves alone, and that a pass has checked since."""
        self._look_again_ms = 0
        self._due: deque[HostedPartition] = deque()
        """Partitions that were due at the last check of all, the longest due first."""
        self._closed = False

    def close(self) -> None:
        """Begin no more passes; a repair under way stops with its log."""
        self._closed = True

    def report(
        self, partition: HostedPartition, offset: int, what: str = "a follower was sent a bad batch"
    ) -> None:
        """Have a segment checked: a reader has found a bad batch at or after `offset`."""
        tp = partition.topic_partition
        now_ms = self._clock.monotonic_ms()
        if tp in self._reported or self._report_due_ms.get(tp, now_ms) > now_ms:
            return
        if not partition.log.log_start_offset <= offset < partition.log.log_end_offset:
            return
        self._report_due_ms[tp] = now_ms + REPORT_PAUSE_MS
        log.error("%s partition=%s offset=%d", what, tp, offset)
        try:
            partition.log.repair.close_segment_with(offset)
            # Its segment is to be flushed before it is checked.
            partition.note_change()
        except LogStorageError as failure:
            partition.fail(failure)
            return
        self._reported[tp] = offset

    def begin_due(self) -> None:
        """Begin the pass that is due longest, unless one is under way."""
        if self._closed or self._current is not None:
            return
        found = self._reported_pass() or self._due_pass()
        if found is not None:
            self._current = found
            self._go_on(found)

    def _reported_pass(self) -> _Pass | None:
        for tp, offset in list(self._reported.items()):
            partition = self._replicas.get(tp)
            if partition is None or partition.role is Role.FAILED:
                del self._reported[tp]
            elif partition.log.repair.next_scrub(offset) is not None:
                # Before that its segment is still to be flushed.
                del self._reported[tp]
                return _Pass(partition, offset, offset + 1, _Reason.REPORT)
        return None

    def _due_pass(self) -> _Pass | None:
        now_ms = self._clock.wall_ms()
        if self._clock.monotonic_ms() >= self._look_again_ms:
            self._look_at_all(now_ms)
        partition = self._next_due(now_ms)
        if partition is None:
            return None
        retry = self._retries.get(partition.topic_partition)
        start, stop = partition.log.log_start_offset, partition.log.recovery_point
        if retry is None or (retry.whole_due_ms is not None and retry.whole_due_ms <= now_ms):
            return _Pass(partition, start, stop, _Reason.WHOLE)
        start, stop = max(start, retry.start_offset), min(stop, retry.stop_offset)
        return _Pass(partition, start, stop, _Reason.RETRY)

    def _look_at_all(self, now_ms: int) -> None:
        """List the due logs; not after each pass: if all are due, that would be quadratic."""
        self._forget_who_is_gone()
        due = []
        next_due_ms: int | None = None
        for partition in self._replicas:
            if next_due_ms is None:
                next_due_ms = now_ms + LOOK_AGAIN_MAX_MS
            if partition.role is Role.FAILED:
                continue
            due_ms = self._due_ms(partition)
            if partition.role is Role.IDLE or (due_ms is not None and due_ms <= now_ms):
                # An idle replica may get its role at any moment, and be due then.
                next_due_ms = now_ms
            if due_ms is None:
                continue
            if due_ms <= now_ms:
                due.append((due_ms, partition))
            else:
                next_due_ms = min(next_due_ms, due_ms)
        due.sort(key=lambda each: each[0])
        self._due = deque(partition for _, partition in due)
        wait_ms = 0 if next_due_ms is None else next_due_ms - now_ms
        self._look_again_ms = self._clock.monotonic_ms() + max(LOOK_AGAIN_MS, wait_ms)

    def _next_due(self, now_ms: int) -> HostedPartition | None:
        while self._due:
            partition = self._due.popleft()
            if self._replicas.get(partition.topic_partition) is not partition:
                continue
            if partition.role is Role.FAILED or partition.role is Role.IDLE:
                continue
            due_ms = self._due_ms(partition)
            if due_ms is not None and due_ms <= now_ms:
                return partition
        return None

    def _due_ms(self, partition: HostedPartition) -> int | None:
        retry = self._retries.get(partition.topic_partition)
        if retry is not None:
            whole_due_ms = retry.whole_due_ms
            return retry.due_ms if whole_due_ms is None else min(retry.due_ms, whole_due_ms)
        if not partition.log.cleaning.is_uncleanable:
            self._seen_left_alone.discard(partition)
        elif partition not in self._seen_left_alone:
            return 0
        return self._whole_due_ms(partition.log.scrubbed_ms)

    def _whole_due_ms(self, scrubbed_ms: int) -> int | None:
        interval_ms = self._settings.interval_ms
        return scrubbed_ms + interval_ms if interval_ms else None

    # -- a pass ------------------------------------------------------------------------------------

    def _is_over(self, current: _Pass) -> bool:
        """Whether the broker closes, or the replica or its log is gone."""
        partition = current.partition
        if (
            self._closed
            or partition.role is Role.FAILED
            or partition.log is not current.log
            or self._replicas.get(partition.topic_partition) is not partition
        ):
            self._current = None
            return True
        return False

    def _go_on(self, current: _Pass) -> None:
        """Continue with the next segment."""
        if self._is_over(current):
            return
        if self._must_yield(current):
            self._scheduler.call_later(YIELD_MS, lambda: self._go_on(current))
            return
        scrub = None
        if current.next_offset < current.stop_offset:
            scrub = current.partition.log.repair.next_scrub(current.next_offset)
        if scrub is None:
            self._end(current)
        else:
            self._step(current, scrub)

    def _must_yield(self, current: _Pass) -> bool:
        return self._is_compacting() or current.partition.log.cleaning.is_busy

    def _end(self, current: _Pass) -> None:
        self._current = None
        partition = current.partition
        now_ms = self._clock.wall_ms()
        if current.reason is not _Reason.REPORT and partition.log.cleaning.is_uncleanable:
            self._seen_left_alone.add(partition)
        self._note_end(current, now_ms)
        self._scheduler.call_soon(self.begin_due)

    def _note_end(self, current: _Pass, now_ms: int) -> None:
        """Note when this log is due again."""
        partition, left = current.partition, current.left
        tp, replica_log = partition.topic_partition, partition.log
        former = self._retries.get(tp)
        if current.reason is _Reason.WHOLE:
            scrubbed_ms, whole_due_ms = now_ms, self._whole_due_ms(now_ms)
        elif former is not None:
            whole_due_ms = former.whole_due_ms
            scrubbed_ms = 0 if whole_due_ms is None else whole_due_ms - self._settings.interval_ms
        else:
            scrubbed_ms = replica_log.scrubbed_ms
            whole_due_ms = self._whole_due_ms(scrubbed_ms)
        if left is not None:
            start_offset, stop_offset = left
            if current.reason is _Reason.REPORT and former is not None:
                # This pass did not check the former one's damage.
                start_offset = min(start_offset, former.start_offset)
                stop_offset = max(stop_offset, former.stop_offset)
            pause_ms = self._settings.interval_ms if _is_alone(partition) else 0
            due_ms = now_ms + max(pause_ms, RETRY_MS)
            self._retries[tp] = _Retry(due_ms, start_offset, stop_offset, whole_due_ms)
            # Also after a restart the damage is looked for first.
            replica_log.scrubbed_ms = 0
        elif current.reason is not _Reason.REPORT:
            self._retries.pop(tp, None)
            replica_log.scrubbed_ms = scrubbed_ms

    def _forget_who_is_gone(self) -> None:
        hosted = set(self._replicas)
        self._seen_left_alone &= hosted
        known = {partition.topic_partition for partition in hosted}
        for tp in self._retries.keys() - known:
            del self._retries[tp]
        for tp in self._report_due_ms.keys() - known:
            del self._report_due_ms[tp]

    def _step(self, current: _Pass, scrub: SegmentScrub) -> None:
        self._background.submit(
            scrub.step,
            lambda size: self._stepped(current, scrub, size),
            lambda error: self._failed(current, scrub, error),
        )

    def _stepped(self, current: _Pass, scrub: SegmentScrub, size: int) -> None:
        if self._is_over(current):
            return
        pause_ms = size * 1000 // self._settings.bytes_per_second
        if scrub.is_outdated:
            self._scheduler.call_later(pause_ms, lambda: self._go_on(current))
        elif not scrub.is_done:
            self._scheduler.call_later(pause_ms, lambda: self._next_step(current, scrub))
        else:
            current.next_offset = scrub.end_offset
            if scrub.bad_ranges or not scrub.indexes_agree:
                self._repair(current, scrub)
            else:
                current.partition.log.repair.note_damage(scrub)
                self._scheduler.call_later(pause_ms, lambda: self._go_on(current))

    def _next_step(self, current: _Pass, scrub: SegmentScrub) -> None:
        if self._is_over(current):
            return
        if scrub.is_outdated or self._must_yield(current):
            self._go_on(current)
        else:
            self._step(current, scrub)

    def _failed(self, current: _Pass, scrub: SegmentScrub, error: Exception) -> None:
        if self._is_over(current):
            return
        if scrub.is_outdated:
            self._go_on(current)
            return
        failure = storage_error("check", scrub.path, error) if isinstance(error, OSError) else error
        current.partition.fail(failure)
        if isinstance(failure, LogBusyError):
            # This segment once more, when there may be descriptors.
            self._scheduler.call_later(BUSY_MS, lambda: self._go_on(current))
        else:
            self._current = None

    # -- repair ------------------------------------------------------------------------------------

    def _repair(self, current: _Pass, scrub: SegmentScrub) -> None:
        partition = current.partition
        # Each retry finds again what could not be repaired, which is not logged again.
        known = frozenset(partition.log.damaged)
        for bad in [bad for bad in scrub.bad_ranges if bad not in known]:
            log.error(
                "damaged partition=%s segment=%s offsets=[%d, %d) bytes=[%d, %d) reason=%s",
                partition.topic_partition, scrub.path, bad.start_offset, bad.end_offset,
                bad.position, bad.end_position, bad.reason,
            )  # fmt: skip
        partition.log.repair.note_damage(scrub)

        def ended(end: RepairEnd) -> None:
            if end is RepairEnd.OUTDATED:
                current.next_offset = scrub.base_offset
            elif end is RepairEnd.LEFT:
                current.leave(scrub)
            self._go_on(current)

        SegmentRepair(
            partition,
            scrub,
            transport=self._transport,
            scheduler=self._scheduler,
            background=self._background,
            is_over=lambda: self._is_over(current),
            must_yield=lambda: self._must_yield(current),
            on_end=ended,
            on_failure=lambda failure: partition.fail(failure, of=current.log),
        ).begin(
            self._sources(partition),
            "it has no other replica" if _is_alone(partition) else "none is alive",
        )

    def _sources(self, partition: HostedPartition) -> list[Endpoint]:
        """The live replicas to fetch from: the leader, then the others."""
        others = [b for b in partition.assigned_replicas if b != self._settings.broker_id]
        others.sort(key=lambda broker: broker != partition.leader_id)
        known = [self._metadata.brokers.get(BrokerId(broker)) for broker in others]
        return [
            Endpoint(broker_id=broker.broker_id, host=broker.host, port=broker.port)
            for broker in known
            if broker is not None
        ]


def _is_alone(partition: HostedPartition) -> bool:
    return len(partition.assigned_replicas) < 2
