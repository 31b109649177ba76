"""Repairs one damaged segment: fetches the damaged ranges from a replica and replaces the file.

    RepairFetch fills Replacements -> no compaction runs -> a job swaps the segment's files

The log may be truncated, lose its oldest segments, be deleted or fail at any step: the log then
stops the job, and `SegmentRepair` informs its caller. Source: R-LOG8.
"""

import enum
import logging
from collections.abc import Callable, Sequence

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import CorruptRecordError, ErrorCode, LogStorageError
from storage_engine.core.ports import Background, Endpoint, Scheduler, TransportError
from storage_engine.log.cleaning.compaction_job import CompactionJob
from storage_engine.log.cleaning.segment_scrub import BadRange, Replacements, SegmentScrub
from storage_engine.protocol.apis.fetch import (
    ANY_REPLICA_ID,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.transport import Transport
from storage_engine.protocol.typed.projection import WANT_STORED, TypedWant

log = logging.getLogger(__name__)


CHANNEL = "repair"
FETCH_VERSION = 12
ANSWER_BYTES = 1 << 20
"""The bytes of one request: they are written on the event loop, like an append."""

TIMEOUT_MS = 30_000


class RepairFetch:
    """Fetches the records of one segment that are damaged here from other replicas: only records
    below the high watermark of the replica, and only batches that pass all checks.

    The request is a Fetch with replica id -2, which Kafka has for its tool that compares replicas:
    any replica answers it, as to a consumer, and it moves no follower's state. The leader is asked
    first; after a replica whose bytes are damaged too, the next one is asked.
    """

    def __init__(
        self,
        partition: HostedPartition,
        scrub: SegmentScrub,
        replacements: Replacements,
        sources: Sequence[Endpoint],
        *,
        transport: Transport,
        on_done: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        """`sources` in the order in which they are asked; not empty. One of the callbacks is called
        once; `on_failed` with the reason."""
        self._partition = partition
        self._ranges: list[BadRange] = scrub.bad_ranges
        self._replacements = replacements
        self._sources = sources
        self._transport = transport
        self._on_done = on_done
        self._on_failed = on_failed
        self._range = 0
        self._source = 0
        self._reasons: list[str] = []
        self._next_offset = self._start()

    def start(self) -> None:
        """Request the first range, or the next piece of the present one."""
        while self._next_offset >= self._ranges[self._range].end_offset:
            self._replacements.end_range()
            self._range += 1
            self._source = 0
            if self._range == len(self._ranges):
                self._on_done()
                return
            self._next_offset = self._start()
        tp = self._partition.topic_partition
        self._transport.request(
            self._sources[self._source],
            CHANNEL,
            FETCH,
            FETCH_VERSION,
            FetchRequest(
                replica_id=ANY_REPLICA_ID,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=ANSWER_BYTES,
                partitions=[
                    FetchPartition(
                        tp.topic,
                        tp.partition,
                        self._next_offset,
                        ANSWER_BYTES,
                        want=TypedWant(WANT_STORED),
                    )
                ],
            ),
            timeout_ms=TIMEOUT_MS,
            on_reply=self._take,
        )

    def _start(self) -> int:
        """The first offset to fetch: records below the log's start are gone for readers."""
        return max(self._ranges[self._range].start_offset, self._partition.log.log_start_offset)

    def _take(self, reply: FetchResponse | TransportError) -> None:
        if isinstance(reply, TransportError):
            self._ask_another(reply.reason)
            return
        answer = self._own(reply)
        code = reply.error_code or (answer.error_code if answer is not None else 0)
        if code:
            self._ask_another(ErrorCode.of(code).name)
            return
        if answer is None:
            self._ask_another("it answered for another partition")
            return
        records = answer.records
        bad = self._ranges[self._range]
        try:
            view = memoryview(records) if records else memoryview(b"")  # type: ignore[arg-type]
            reached = self._replacements.add(bad, self._next_offset, view)
        except CorruptRecordError as error:
            self._ask_another(str(error))
            return
        except OSError as error:
            self._on_failed(f"the good bytes can't be stored: {error}")
            return
        if reached <= self._next_offset:
            self._ask_another(f"it has nothing at offset {self._next_offset} to show yet")
            return
        self._next_offset = reached
        self.start()

    def _own(self, reply: FetchResponse) -> FetchPartitionResponse | None:
        tp = self._partition.topic_partition
        for answer in reply.partitions:
            if (answer.topic, answer.partition) == (tp.topic, tp.partition):
                return answer
        return None

    def _ask_another(self, reason: str) -> None:
        self._reasons.append(f"broker {self._sources[self._source].broker_id}: {reason}")
        self._source += 1
        if self._source == len(self._sources):
            self._on_failed("; ".join(self._reasons))
            return
        self._replacements.drop_range()
        self._next_offset = self._start()
        self.start()


YIELD_MS = 500
"""The pause before another try while compaction is running."""


class RepairEnd(enum.Enum):
    """The outcome of a repair."""

    REPAIRED = "repaired"
    LEFT = "left"
    """The segment is as damaged as before."""
    OUTDATED = "outdated"
    """The segment was cut or replaced meanwhile: it is to be checked anew."""
    GONE = "gone"
    """The replica is gone, its log dir failed, or the broker closes."""


class SegmentRepair:
    """The repair of the damage that a scrub has found. `begin` is called once."""

    def __init__(
        self,
        partition: HostedPartition,
        scrub: SegmentScrub,
        *,
        transport: Transport,
        scheduler: Scheduler,
        background: Background,
        is_over: Callable[[], bool],
        must_yield: Callable[[], bool],
        on_end: Callable[[RepairEnd], None],
        on_failure: Callable[[LogStorageError], None],
    ) -> None:
        """`is_over`: the replica is gone, or the broker closes. `on_failure` is called before
        `on_end` when the log failed half-way."""
        self._partition = partition
        self._scrub = scrub
        self._transport = transport
        self._scheduler = scheduler
        self._background = background
        self._is_over = is_over
        self._must_yield = must_yield
        self._on_end = on_end
        self._on_failure = on_failure
        self._replacements: Replacements

    def begin(self, sources: Sequence[Endpoint], no_sources: str) -> None:
        """`no_sources`: the reason if `sources` is empty."""
        try:
            self._replacements = Replacements(self._partition.log.disk, self._scrub)
        except OSError as error:
            self._left(f"the good bytes can't be stored: {error}")
            return
        if not self._scrub.bad_ranges:
            log.warning(
                "index does not agree, rebuilt partition=%s segment=%s",
                self._partition.topic_partition,
                self._scrub.path,
            )
            self._replace()
        elif not sources:
            self._fetch_failed(no_sources)
        else:
            RepairFetch(
                self._partition,
                self._scrub,
                self._replacements,
                sources,
                transport=self._transport,
                on_done=self._replace,
                on_failed=self._fetch_failed,
            ).start()

    def _fetch_failed(self, reason: str) -> None:
        self._tidy()
        self._left(reason)

    def _left(self, reason: str) -> None:
        if self._is_over():
            self._on_end(RepairEnd.GONE)
            return
        log.error(
            "not repaired partition=%s segment=%s, its damaged offsets are refused to readers: %s",
            self._partition.topic_partition, self._scrub.path, reason,
        )  # fmt: skip
        self._on_end(RepairEnd.LEFT)

    def _replace(self) -> None:
        if self._is_over():
            self._end(RepairEnd.GONE)
        elif self._must_yield():
            self._scheduler.call_later(YIELD_MS, self._replace)
        elif self._scrub.is_outdated:
            self._end(RepairEnd.OUTDATED)
        else:
            try:
                job = self._partition.log.repair.begin(self._scrub, self._replacements)
            except LogStorageError as failure:
                self._on_failure(failure)
                # Nothing is replaced yet: the repair is tried again after a while.
                self._end(RepairEnd.LEFT)
                return
            self._work(job)

    def _work(self, job: CompactionJob) -> None:
        cleaning = self._partition.log.cleaning

        def over() -> None:
            if job.is_done:
                log.info(
                    "repaired partition=%s segment=%s ranges=%d",
                    self._partition.topic_partition, self._scrub.path, len(self._scrub.bad_ranges),
                )  # fmt: skip
                self._end(RepairEnd.REPAIRED)
            else:
                self._end(RepairEnd.LEFT)

        def failed_half_way(failure: LogStorageError) -> None:
            self._on_failure(failure)
            self._end(RepairEnd.GONE)

        def advance(_result: None) -> None:
            try:
                goes_on = cleaning.advance(job)
            except LogStorageError as failure:
                failed_half_way(failure)
                return
            if goes_on:
                self._work(job)
            else:
                over()

        def failed(error: Exception) -> None:
            if cleaning.goes_on_later(job, error):
                log.warning(
                    "repair continues later partition=%s: %s",
                    self._partition.topic_partition,
                    error,
                )
                self._scheduler.call_later(YIELD_MS, lambda: self._work(job))
                return
            failure = cleaning.failed(job, error)
            if failure is not None:
                failed_half_way(failure)
            else:
                over()

        self._background.submit(job.work, advance, failed)

    def _end(self, end: RepairEnd) -> None:
        self._tidy()
        self._on_end(end)

    def _tidy(self) -> None:
        try:
            self._replacements.remove()
        except OSError as error:
            # The next opening of the folder removes it.
            log.warning(
                "files of a repair stay until the next start partition=%s: %s",
                self._partition.topic_partition,
                error,
            )
