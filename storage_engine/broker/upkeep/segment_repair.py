"""Repairs one damaged segment: fetches the damaged ranges from a replica and replaces the file.

    Replacements -> RepairFetch -> (compaction is through) -> the job that swaps the segment

The log may be cut, shortened, deleted or fail at any step: then the job was stopped, and the caller
is informed. Source: R-LOG8.
"""

import enum
import logging
from collections.abc import Callable, Sequence

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.upkeep.repair_fetch import RepairFetch
from storage_engine.core.errors import LogStorageError
from storage_engine.core.ports import Background, Endpoint, Scheduler
from storage_engine.log.cleaning.compaction_job import CompactionJob
from storage_engine.log.cleaning.segment_scrub import Replacements, SegmentScrub
from storage_engine.protocol.transport import Transport

YIELD_MS = 500
"""How long a pass waits each time that compaction is running."""

log = logging.getLogger(__name__)


class RepairEnd(enum.Enum):
    """The outcome of a repair."""

    REPAIRED = "repaired"
    LEFT = "left"
    """The segment is as damaged as it was."""
    OUTDATED = "outdated"
    """The segment was cut or replaced before: it is to be checked anew."""
    GONE = "gone"
    """The replica is, or its folder failed, or the broker closes."""


class SegmentRepair:
    """The repair of what a scrub has found. `begin` is called once."""

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
        """`is_over`: the replica is gone, or the broker closes. `on_failure` comes before `on_end`
        when the log failed half-way.
        """
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
        """`no_sources`: why there are none, if so."""
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
                # Nothing is replaced yet: the damage is gone through again after a while.
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

        def advance(_result: object) -> None:
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
                    "repair goes on later partition=%s: %s", self._partition.topic_partition, error
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
            # Whoever opens the folder next removes it.
            log.warning(
                "good bytes of a repair stay partition=%s: %s",
                self._partition.topic_partition,
                error,
            )
