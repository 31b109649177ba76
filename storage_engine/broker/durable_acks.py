"""Group commit: partitions whose acknowledgements wait for the disk share their flushes.

Rule: each data folder has at most one round of flushes under way; what is appended meanwhile waits
for the next round, which takes all that wait at once. So the slower the disk, the more
acknowledgements one flush serves, and no disk waits for another. Source: R-LOG4
(`flush.before.ack`).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from storage_engine.broker.hosted_partition import HostedPartition, Role
from storage_engine.core.errors import LogStorageError
from storage_engine.core.ports import Background

log = logging.getLogger(__name__)

Settled = Callable[[], None]
"""Hears that a flush is over, well or not: look again."""


@dataclass(slots=True)
class _Folder:
    """One data folder's queue."""

    under_way: int = 0
    """Flushes of the present round that are not over."""
    waiting: dict[HostedPartition, list[Settled]] = field(default_factory=dict)


class DurableAcks:
    """The rounds of flushes of one broker."""

    def __init__(
        self,
        background: Background,
        *,
        on_flushed: Callable[[HostedPartition], None],
        on_failure: Callable[[HostedPartition, Exception], None],
    ) -> None:
        self._background = background
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._folders: dict[Path, _Folder] = {}
        self.rounds = 0
        """Flushes of a folder so far, each of all partitions that waited."""
        self.fsyncs = 0
        """Files and folders brought to the medium."""
        self.batches = 0
        """Appends of producers that these have made durable."""
        self._reported_batches = 0

    def flush(self, partition: HostedPartition, settled: Settled | None = None) -> None:
        """Bring all that is in the log now to the medium; `settled` is called once that was done,
        or failed."""
        path = partition.log.directory.parent
        folder = self._folders.setdefault(path, _Folder())
        listeners = folder.waiting.setdefault(partition, [])
        if settled is not None:
            listeners.append(settled)
        if not folder.under_way:
            self._begin(folder)

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

    def _begin(self, folder: _Folder) -> None:
        """Flush all that wait in the folder: side by side, so that the file system can bring them
        to the medium in one go."""
        waiting, folder.waiting = folder.waiting, {}
        flushed = self.fsyncs
        # The round is not over before all of it has begun.
        folder.under_way = len(waiting)
        for partition, listeners in waiting.items():
            self._flush_one(folder, partition, listeners)
        self.rounds += self.fsyncs > flushed

    def _flush_one(
        self, folder: _Folder, partition: HostedPartition, listeners: list[Settled]
    ) -> None:
        batches, partition.unflushed_appends = partition.unflushed_appends, 0
        wanted_end_offset = partition.log.log_end_offset

        def done(_result: object) -> None:
            job.finish()
            succeeded()
            if job.end_offset < min(wanted_end_offset, partition.log.log_end_offset):
                # More segments than one job takes.
                self.flush(partition)
            self._settle(folder, listeners)

        def succeeded() -> None:
            self.batches += batches
            self._on_flushed(partition)

        def failed(error: Exception) -> None:
            # Never tried again: the kernel may count the pages as clean after a failed fsync.
            self._on_failure(partition, error)
            self._settle(folder, listeners)

        try:
            if partition.role is Role.FAILED:
                raise LogStorageError(f"the folder of {partition.topic_partition} failed")
            if partition.log.is_durable:
                # An earlier round, or a flush for another reason, took it along.
                succeeded()
                self._settle(folder, listeners)
                return
            job = partition.log.prepare_flush()
        except LogStorageError as failure:
            failed(failure)
            return
        self.fsyncs += job.syncs
        self._background.submit(job.run, done, failed)

    def _settle(self, folder: _Folder, listeners: list[Settled]) -> None:
        for settled in listeners:
            settled()
        folder.under_way -= 1
        if not folder.under_way and folder.waiting:
            self._begin(folder)
