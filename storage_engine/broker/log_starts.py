"""Writes down where logs begin, when records were deleted before a segment's end.

Rule: nobody tells another that records are deleted before a restart would know it too: a leader
answers DeleteRecords, and a follower reports its log start, after the write. Source: R-LOG9.
"""

from collections.abc import Callable, Iterable

from storage_engine.broker.hosted_partition import HostedPartition
from storage_engine.core.errors import LogStorageError
from storage_engine.core.ports import Scheduler
from storage_engine.log.log_manager import LogManager


class LogStarts:
    """The file of log starts, one write for all that moved in a turn of the loop."""

    def __init__(
        self,
        logs: LogManager,
        scheduler: Scheduler,
        *,
        on_failure: Callable[[HostedPartition, Exception], None],
    ) -> None:
        self._logs = logs
        self._scheduler = scheduler
        self._on_failure = on_failure
        self._moved: list[HostedPartition] = []
        self._waiting: list[Callable[[], None]] = []

    def keep(self, moved: Iterable[HostedPartition], done: Callable[[], None]) -> None:
        """Write at the end of this turn; then `done`. Where it fails, the partitions have
        failed."""
        if not self._waiting:
            self._scheduler.call_soon(self._keep_all)
        self._moved.extend(moved)
        self._waiting.append(done)

    def keep_now(self, moved: Iterable[HostedPartition]) -> None:
        """Write at once. Where it fails, the partitions have failed."""
        failed = self._logs.write_log_starts()
        for partition in moved:
            error = failed.get(partition.log.directory.parent)
            if error is not None:
                failure = LogStorageError(f"can't write where the log starts: {error}")
                self._on_failure(partition, failure)

    def _keep_all(self) -> None:
        moved, self._moved = self._moved, []
        waiting, self._waiting = self._waiting, []
        if moved:
            self.keep_now(moved)
        for done in waiting:
            done()
