"""Replicas that can't be served any more. Its one rule: a disk that fails takes its whole data
folder with it, whatever fails otherwise its own replica alone, and a full disk neither.

Source: R-LOG8, KIP-112.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from storage_engine.broker.folder_notice import FolderNotice
from storage_engine.broker.hosted_partition import HostedPartition, Role
from storage_engine.core.errors import LogFolderError, LogFullError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.log.log_manager import LogManager

log = logging.getLogger(__name__)
state_change_log = logging.getLogger("headrace.state_change")


class ReplicaFailures:
    """Takes replicas out of service, and tells the controller."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, HostedPartition],
        *,
        logs: LogManager,
        scheduler: Scheduler,
        notice: FolderNotice,
        stop_fetching: Callable[[TopicPartition], None],
    ) -> None:
        """`partitions`: those hosted at any time; not copied."""
        self._partitions = partitions
        self._logs = logs
        self._scheduler = scheduler
        self._notice = notice
        self._stop_fetching = stop_fetching

    def fail(self, partition: HostedPartition, failure: Exception) -> None:
        """See `ReplicaManager.fail`."""
        if self._partitions.get(partition.topic_partition) is not partition:
            # Stopped or deleted meanwhile; a new replica of that name is another matter.
            log.info("partition %s failed after its end: %s", partition.topic_partition, failure)
            return
        if isinstance(failure, LogFullError):
            log.warning("no room for partition %s: %s", partition.topic_partition, failure)
        elif isinstance(failure, LogFolderError | OSError):
            self.fail_folder(partition.log.directory.parent, failure)
        else:
            self.fail_alone(partition, failure)

    def fail_alone(self, partition: HostedPartition, failure: Exception) -> None:
        """Takes one replica out of service, whatever else its folder has."""
        if partition.role is not Role.FAILED:
            log.error("partition %s is offline: %s", partition.topic_partition, failure)
            self._take_offline(partition)
            self._notice.send()

    def fail_folder(self, path: Path, failure: Exception) -> None:
        """Leaves a data folder alone, with all replicas in it, until the next start."""
        if not self._logs.fail_folder(path):
            return
        offline = [
            partition
            for partition in self._partitions.values()
            if partition.log.directory.parent == path and partition.role is not Role.FAILED
        ]
        log.error(
            "data folder %s failed, %d partitions are offline until it is repaired and the broker "
            "restarted: %s",
            path,
            len(offline),
            failure,
        )
        for partition in offline:
            self._take_offline(partition)
        self._notice.send()

    def _take_offline(self, partition: HostedPartition) -> None:
        self._stop_fetching(partition.topic_partition)
        partition.fail()
        state_change_log.info("failed partition=%s", partition.topic_partition)
        self._scheduler.call_soon(partition.wake_all)
