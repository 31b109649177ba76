"""Looks for damage in the older segments of this broker's logs, and has it repaired. Rule: one
segment at a time, in pieces, no faster than is set; compaction goes first.

A damaged range is fetched from another replica and swapped in as compaction does it, by the leader
as well as by a follower; until then nobody is served from it. What comes before the turn of a log
is told by others: a follower that was sent a bad batch, and compaction that met one.

Source: R-LOG8.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from storage_engine.broker.hosted_partition import HostedPartition, Role
from storage_engine.broker.metadata_cache import MetadataCache
from storage_engine.broker.repair_fetch import RepairFetch
from storage_engine.broker.replica_manager import ReplicaManager
from storage_engine.core.errors import LogStorageError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import Background, Clock, Endpoint, Scheduler, Transport
from storage_engine.log.compaction_job import CompactionJob
from storage_engine.log.segment_patch import Replacements
from storage_engine.log.segment_scrub import SegmentScrub

LOOK_INTERVAL_MS = 1000
"""How often is looked for a log whose turn it is."""

YIELD_MS = 500
"""How long a pass waits each time that compaction is at work."""

RETRY_MS = 30_000
"""When replicas are asked again for what none of them could give."""

REPORT_PAUSE_MS = 10_000
"""A follower that is stuck reports with every fetch; its segment is checked so often at most."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubSettings:
    """From the broker's configuration."""

    broker_id: int
    interval_ms: int
    """Between two passes over a log; 0: only what is reported is checked."""
    bytes_per_second: int


class _Pass:
    """One way through a log, or through a segment that was reported."""

    __slots__ = ("is_whole", "left", "next_offset", "partition", "stop_offset")

    def __init__(
        self, partition: HostedPartition, next_offset: int, stop_offset: int, *, is_whole: bool
    ) -> None:
        self.partition = partition
        self.next_offset = next_offset
        self.stop_offset = stop_offset
        self.is_whole = is_whole
        """Whether nothing is damaged when nothing is left."""
        self.left: tuple[int, int] | None = None
        """Between these offsets lies what could not be repaired."""

    def leave(self, scrub: SegmentScrub) -> None:
        """That segment stays damaged."""
        first = scrub.base_offset if self.left is None else self.left[0]
        self.left = first, scrub.end_offset


class _Retry(NamedTuple):
    """Damage that is left between two offsets, and when it is gone through again."""

    due_ms: int
    start_offset: int
    stop_offset: int


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
        """Offsets whose segments are to be checked at once."""
        self._report_due_ms: dict[TopicPartition, int] = {}
        self._retries: dict[TopicPartition, _Retry] = {}
        self._seen_left_alone: set[HostedPartition] = set()
        """Compaction leaves them alone, and a pass has been through them since."""
        self._closed = False

    def close(self) -> None:
        """Begins nothing more; a repair under way stops with its log."""
        self._closed = True

    def report(self, partition: HostedPartition, offset: int) -> None:
        """A follower was sent a bad batch from `offset` on."""
        tp = partition.topic_partition
        now_ms = self._clock.monotonic_ms()
        if tp in self._reported or self._report_due_ms.get(tp, now_ms) > now_ms:
            return
        self._report_due_ms[tp] = now_ms + REPORT_PAUSE_MS
        log.error("a follower was sent a bad batch partition=%s offset=%d", tp, offset)
        try:
            partition.log.close_segment_with(offset)
        except LogStorageError as failure:
            self._replicas.fail(partition, failure)
            return
        self._reported[tp] = offset

    def look(self) -> None:
        """Begins the pass that is due longest, unless one is under way."""
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
            elif partition.log.next_scrub(offset) is not None:
                # Before that its segment is still to be flushed.
                del self._reported[tp]
                return _Pass(partition, offset, offset + 1, is_whole=False)
        return None

    def _due_pass(self) -> _Pass | None:
        now_ms = self._clock.wall_ms()
        best: tuple[int, HostedPartition] | None = None
        for partition in self._replicas:
            if partition.role is Role.FAILED or partition.role is Role.IDLE:
                continue
            due_ms = self._due_ms(partition)
            if due_ms is not None and due_ms <= now_ms and (best is None or due_ms < best[0]):
                best = due_ms, partition
        if best is None:
            return None
        partition = best[1]
        retry = self._retries.get(partition.topic_partition)
        start, stop = partition.log.log_start_offset, partition.log.recovery_point
        if retry is not None:
            start, stop = max(start, retry.start_offset), min(stop, retry.stop_offset)
        return _Pass(partition, start, stop, is_whole=True)

    def _due_ms(self, partition: HostedPartition) -> int | None:
        retry = self._retries.get(partition.topic_partition)
        if retry is not None:
            return retry.due_ms
        if not partition.log.compaction.is_left_alone:
            self._seen_left_alone.discard(partition)
        elif partition not in self._seen_left_alone:
            return 0
        interval_ms = self._settings.interval_ms
        return partition.log.scrubbed_ms + interval_ms if interval_ms else None

    # -- a pass ------------------------------------------------------------------------------------

    def _is_over(self, current: _Pass) -> bool:
        """Whether the broker closes, or the replica is gone."""
        partition = current.partition
        if (
            self._closed
            or partition.role is Role.FAILED
            or self._replicas.get(partition.topic_partition) is not partition
        ):
            self._current = None
            return True
        return False

    def _go_on(self, current: _Pass) -> None:
        """With the next segment."""
        if self._is_over(current):
            return
        if self._must_yield(current):
            self._scheduler.call_later(YIELD_MS, lambda: self._go_on(current))
            return
        scrub = None
        if current.next_offset < current.stop_offset:
            scrub = current.partition.log.next_scrub(current.next_offset)
        if scrub is None:
            self._end(current)
        else:
            self._step(current, scrub)

    def _must_yield(self, current: _Pass) -> bool:
        return self._is_compacting() or current.partition.log.compaction.is_busy

    def _end(self, current: _Pass) -> None:
        self._current = None
        partition = current.partition
        now_ms = self._clock.wall_ms()
        self._forget_who_is_gone()
        if current.is_whole and partition.log.compaction.is_left_alone:
            self._seen_left_alone.add(partition)
        if current.left is not None:
            pause_ms = self._settings.interval_ms if _is_alone(partition) else 0
            self._retries[partition.topic_partition] = _Retry(
                now_ms + max(pause_ms, RETRY_MS), *current.left
            )
            # Also after a restart it is looked for first.
            partition.log.scrubbed_ms = 0
        elif current.is_whole:
            self._retries.pop(partition.topic_partition, None)
            partition.log.scrubbed_ms = now_ms
        self._scheduler.call_soon(self.look)

    def _forget_who_is_gone(self) -> None:
        hosted = set(self._replicas)
        self._seen_left_alone &= hosted
        known = {partition.topic_partition for partition in hosted}
        gone: list[dict[TopicPartition, Any]] = [self._retries, self._report_due_ms]
        for times in gone:
            for tp in times.keys() - known:
                del times[tp]

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
                current.partition.log.note_damage(scrub)
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
        self._current = None
        self._replicas.fail(current.partition, error)

    # -- repair ------------------------------------------------------------------------------------

    def _repair(self, current: _Pass, scrub: SegmentScrub) -> None:
        partition = current.partition
        tp = partition.topic_partition
        for bad in scrub.bad_ranges:
            log.error(
                "damaged partition=%s segment=%s offsets=[%d, %d) bytes=[%d, %d) reason=%s",
                tp, scrub.path, bad.start_offset, bad.end_offset, bad.position, bad.end_position,
                bad.reason,
            )  # fmt: skip
        partition.log.note_damage(scrub)
        try:
            replacements = Replacements(partition.log.disk, scrub)
        except OSError as error:
            self._left(current, scrub, f"the good bytes can't be stored: {error}")
            return
        if not scrub.bad_ranges:
            log.warning("index does not agree, rebuilt partition=%s segment=%s", tp, scrub.path)
            self._replace(current, scrub, replacements)
            return
        sources = self._sources(partition)
        if not sources:
            replacements.remove()
            reason = "it has no other replica" if _is_alone(partition) else "none is alive"
            self._left(current, scrub, reason)
            return

        def failed(reason: str) -> None:
            if not self._is_over(current):
                replacements.remove()
                self._left(current, scrub, reason)

        RepairFetch(
            partition,
            scrub,
            replacements,
            sources,
            transport=self._transport,
            on_done=lambda: self._replace(current, scrub, replacements),
            on_failed=failed,
        ).start()

    def _sources(self, partition: HostedPartition) -> list[Endpoint]:
        """The leader, then the others."""
        others = [b for b in partition.assigned_replicas if b != self._settings.broker_id]
        others.sort(key=lambda broker: broker != partition.leader_id)
        known = [self._metadata.brokers.get(BrokerId(broker)) for broker in others]
        return [
            Endpoint(broker_id=broker.broker_id, host=broker.host, port=broker.port)
            for broker in known
            if broker is not None
        ]

    def _left(self, current: _Pass, scrub: SegmentScrub, reason: str) -> None:
        log.error(
            "not repaired partition=%s segment=%s, its damaged offsets are refused to readers: %s",
            current.partition.topic_partition, scrub.path, reason,
        )  # fmt: skip
        current.leave(scrub)
        self._go_on(current)

    def _replace(self, current: _Pass, scrub: SegmentScrub, replacements: Replacements) -> None:
        if self._is_over(current):
            return
        if self._must_yield(current):
            self._scheduler.call_later(
                YIELD_MS, lambda: self._replace(current, scrub, replacements)
            )
            return
        if scrub.is_outdated:
            replacements.remove()
            current.next_offset = scrub.base_offset
            self._go_on(current)
            return
        try:
            job = current.partition.log.begin_repair(scrub, replacements)
        except LogStorageError as failure:
            self._failed(current, scrub, failure)
            return
        self._work(current, scrub, replacements, job)

    def _work(
        self,
        current: _Pass,
        scrub: SegmentScrub,
        replacements: Replacements,
        job: CompactionJob,
    ) -> None:
        compaction = current.partition.log.compaction

        def over() -> None:
            replacements.remove()
            if not scrub.is_outdated:
                # Stopped, or failed: the segment is what it was.
                current.leave(scrub)
            else:
                log.info(
                    "repaired partition=%s segment=%s ranges=%d",
                    current.partition.topic_partition, scrub.path, len(scrub.bad_ranges),
                )  # fmt: skip
            self._go_on(current)

        def advance(_result: object) -> None:
            try:
                goes_on = compaction.advance(job)
            except LogStorageError as failure:
                self._current = None
                self._replicas.fail(current.partition, failure)
                return
            if goes_on:
                self._work(current, scrub, replacements, job)
            else:
                over()

        def failed(error: Exception) -> None:
            failure = compaction.failed(job, error)
            if failure is not None:
                self._current = None
                self._replicas.fail(current.partition, failure)
            else:
                over()

        self._background.submit(job.work, advance, failed)


def _is_alone(partition: HostedPartition) -> bool:
    return len(partition.assigned_replicas) < 2
