"""Writes down where logs begin, when records were deleted before a segment's end.

The deletion of records is reported only when it would survive a restart: a leader answers
DeleteRecords, and a follower reports its log start, after the write. Source: R-LOG9.
"""

from collections.abc import Callable, Iterable

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import LogBusyError
from storage_engine.core.ports import Scheduler
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.files.disk import storage_error


class LogStarts:
    """The file of log starts, one write for all that moved in a turn of the loop."""

    def __init__(self, logs: LogManager, scheduler: Scheduler) -> None:
        self._logs = logs
        self._scheduler = scheduler
        self._moved: list[HostedPartition] = []
        self._waiting: list[Callable[[bool], None]] = []
        self._pending: set[HostedPartition] = set()
        """Partitions whose start has moved and is not written yet."""

    def keep(self, moved: Iterable[HostedPartition], done: Callable[[bool], None]) -> None:
        """Write at the end of this turn; then call `done`, with False where descriptors or room
        were missing. Where it fails otherwise, the partitions have failed."""
        if not self._waiting:
            self._scheduler.call_soon(self._keep_all)
        self._moved.extend(moved)
        self._waiting.append(done)

    def note(self, partition: HostedPartition) -> None:
        """Note a log start offset that has moved: requests wait until it is written."""
        self._pending.add(partition)

    def is_pending(self, partition: HostedPartition) -> bool:
        """Whether its start is still to be written, though it may have moved some time ago."""
        return partition in self._pending

    def keep_now(self, moved: Iterable[HostedPartition]) -> bool:
        """Write at once. Where it fails, the partitions have failed; False: for lack of descriptors
        or room it is to be tried again."""
        failed = self._logs.write_log_starts()
        is_kept = True
        for partition in moved:
            error = failed.get(partition.log.directory.parent)
            if error is not None:
                failure = storage_error(
                    "write where logs start in",
                    partition.log.directory.parent,
                    error,
                    unchanged=True,
                )
                partition.fail(failure)
                is_kept = is_kept and not isinstance(failure, LogBusyError)
        return is_kept

    def _keep_all(self) -> None:
        moved, self._moved = self._moved, []
        waiting, self._waiting = self._waiting, []
        is_kept = not moved or self.keep_now(moved)
        if is_kept:
            self._pending.difference_update(moved)
        else:
            self._pending.update(moved)
        for done in waiting:
            done(is_kept)
