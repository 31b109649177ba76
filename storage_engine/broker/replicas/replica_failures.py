"""Takes replicas out of service that can't be served any more. A failing disk takes all replicas of
its log dir, any other failure only its own replica. A shortage that passes by itself takes
none: no room, no descriptors, no memory.

Source: R-LOG8, KIP-112.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from storage_engine.broker.cluster.registration import LogDirNotice
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.core.errors import LogBusyError, LogDirError, LogShortageError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.core.system_errors import Reach, reach_of_file_error
from storage_engine.log.dirs.log_manager import LogManager

log = logging.getLogger(__name__)
LOG_AGAIN_MS = 10_000
"""The same shortage of a partition is logged only this often."""

state_change_log = logging.getLogger("headrace.state_change")


class ReplicaFailures:
    """Takes replicas out of service, and notifies the controller."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, HostedPartition],
        *,
        logs: LogManager,
        scheduler: Scheduler,
        notice: LogDirNotice,
        fetchers: FetcherManager,
    ) -> None:
        """`partitions`: those hosted at any time; not copied."""
        self._partitions = partitions
        self._logs = logs
        self._scheduler = scheduler
        self._notice = notice
        self._fetchers = fetchers
        self._logged: set[TopicPartition] = set()
        """Partitions whose lack of room or descriptors was logged lately."""

    def fail(self, partition: HostedPartition, failure: Exception) -> None:
        """Take a partition out of service, and with it all others of its log dir where that
        is what failed: a failed fsync (OSError) always means the directory."""
        if self._partitions.get(partition.topic_partition) is not partition:
            # Stopped or deleted meanwhile; a new replica of that name is another matter.
            log.info("partition %s failed after its end: %s", partition.topic_partition, failure)
            return
        if isinstance(failure, OSError) and reach_of_file_error(failure) is Reach.SHORTAGE:
            # Of a step on another thread, but never of an fsync: see `log.files.disk`.
            failure = LogShortageError(str(failure))
        if isinstance(failure, LogBusyError):
            self._log_shortage(partition.topic_partition, failure)
        elif isinstance(failure, LogDirError | OSError):
            self.fail_log_dir(partition.log.directory.parent, failure)
        else:
            self.fail_alone(partition, failure)

    def fail_alone(self, partition: HostedPartition, failure: Exception) -> None:
        """Takes one replica out of service, but not the others in its log dir."""
        if partition.role is not Role.FAILED:
            log.error("partition %s is offline: %s", partition.topic_partition, failure)
            self._take_offline(partition)
            self._notice.send()

    def notify_controller(self) -> None:
        """Makes the controller request the state of all replicas of this broker."""
        self._notice.send()

    def _log_shortage(self, tp: TopicPartition, failure: LogBusyError) -> None:
        """Logged once in a while only: every request fails as long as the shortage lasts."""
        if tp in self._logged:
            return
        if not self._logged:
            self._scheduler.call_later(LOG_AGAIN_MS, self._logged.clear)
        self._logged.add(tp)
        log.warning(
            "a request for partition %s failed, the partition stays online: %s", tp, failure
        )

    def fail_log_dir(self, path: Path, failure: Exception) -> None:
        """Leaves a log dir alone, with all replicas in it, until the next start."""
        if not self._logs.fail_dir(path):
            return
        offline = [
            partition
            for partition in self._partitions.values()
            if partition.log.directory.parent == path and partition.role is not Role.FAILED
        ]
        log.error(
            "log dir %s failed, %d partitions are offline until it is repaired and the broker"
            " is restarted: %s",
            path,
            len(offline),
            failure,
        )
        for partition in offline:
            self._take_offline(partition)
        self._notice.send()

    def _take_offline(self, partition: HostedPartition) -> None:
        self._fetchers.remove(partition.topic_partition)
        partition.take_offline()
        state_change_log.info("failed partition=%s", partition.topic_partition)
        self._scheduler.call_soon(partition.wake_all)
