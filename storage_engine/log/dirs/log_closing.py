"""Closes all logs of a broker when it stops: all are settled, then flushed many at a time.

Only the slow halves of flushes, which touch nothing but descriptors of their own, may run on other
threads. A log whose flush has failed is closed without another: the kernel may count its pages as
clean by then. Source: R-LOG4, R-LOG8.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from storage_engine.core.errors import LogDirError, LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.open_logs import OpenLogs
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.state.flush_job import FlushJob

logger = logging.getLogger(__name__)

LOGS_PER_ROUND = 64
"""Flushes that are prepared together: each holds some six descriptors until it has run."""

RunFlushes = Callable[[Sequence[Callable[[], None]]], list[Exception | None]]
"""Runs all of these, on any threads; returns what each has raised, in their order."""


def one_after_another(works: Sequence[Callable[[], None]]) -> list[Exception | None]:
    """Runs them on this thread."""
    return [_outcome(work) for work in works]


def _outcome(work: Callable[[], None]) -> Exception | None:
    try:
        work()
    except OSError as error:
        return error
    return None


class LogClosing:
    """Used once, by one stop."""

    def __init__(self, open_logs: OpenLogs, run_flushes: RunFlushes) -> None:
        self._open_logs = open_logs
        self._run_flushes = run_flushes
        self._failed: LogStorageError | None = None

    def close_all(self) -> LogStorageError | None:
        """Returns an error where a log could not be flushed, so that the stop is not clean."""
        settled = list(self._usable())
        for log in settled:
            self._try(log, log.settle)
        rounds = iter(settled)
        while part := list(islice(rounds, LOGS_PER_ROUND)):
            self._flush(part)
        return self._failed

    def _usable(self) -> Iterator[PartitionLog]:
        """Those whose log dir has not failed; the others are closed."""
        for topic_partition, log in self._open_logs.logs.items():
            if self._open_logs.dir_of[topic_partition].failed:
                log.close_without_flush()
            else:
                yield log

    def _flush(self, logs: Sequence[PartitionLog]) -> None:
        """The first flush of each; `close` does what is left of a long log."""
        jobs: list[tuple[PartitionLog, FlushJob]] = []
        for log in logs:
            if log.flush_state.is_behind:
                self._try(log, partial(self._prepare, log, jobs))
        broken: set[TopicPartition] = set()
        errors = self._run_flushes([job.run for _, job in jobs])
        for (log, job), error in zip(jobs, errors, strict=True):
            if error is None:
                job.finish()
            else:
                self._note(log, LogDirError(f"can't flush {log.directory}: {error}"))
                log.close_without_flush()
                broken.add(log.topic_partition)
        for log in logs:
            if log.topic_partition not in broken:
                self._try(log, log.close)

    def _prepare(self, log: PartitionLog, jobs: list[tuple[PartitionLog, FlushJob]]) -> None:
        jobs.append((log, log.prepare_flush()))

    def _try(self, log: PartitionLog, step: Callable[[], None]) -> None:
        try:
            step()
        except LogStorageError as error:
            self._note(log, error)

    def _note(self, log: PartitionLog, error: LogStorageError) -> None:
        logger.error("log not closed partition=%s error=%s", log.topic_partition, error)
        self._failed = error
