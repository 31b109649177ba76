"""Decides what a failure costs: a log dir with all its replicas, one replica, or only time.

A failing disk takes all replicas of its log dir out of service, any other failure only its own
replica (`ReplicaFailures`). A shortage of room, descriptors or memory passes by itself and takes no
replica out of service: the request fails and its client repeats it, and an order of the controller
is carried out later (`PostponedRoles`). Source: R-LOG8, KIP-112.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from storage_engine.broker.cluster.log_dir_notice import LogDirNotice
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.core.errors import LogBusyError, LogDirError, LogShortageError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Endpoint, Scheduler
from storage_engine.core.system_errors import Reach, reach_of_file_error
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrPartition

log = logging.getLogger(__name__)


LOG_AGAIN_MS = 10_000
"""The same shortage of a partition is logged at most this often."""

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
        """`partitions`: the hosted partitions, as they change; not copied."""
        self._partitions = partitions
        self._logs = logs
        self._scheduler = scheduler
        self._notice = notice
        self._fetchers = fetchers
        self._logged: set[TopicPartition] = set()
        """Partitions whose lack of room or descriptors was logged in the last LOG_AGAIN_MS."""

    def fail(self, partition: HostedPartition, failure: Exception) -> None:
        """Take a partition out of service, and with it its whole log dir where the log dir is what
        failed: a failed fsync (OSError) always means the directory."""
        if self._partitions.get(partition.topic_partition) is not partition:
            # Stopped or deleted meanwhile; the failure does not concern a new replica of that name.
            log.info("partition %s failed after its end: %s", partition.topic_partition, failure)
            return
        if isinstance(failure, OSError) and reach_of_file_error(failure) is Reach.SHORTAGE:
            # A step on another thread has failed, never an fsync: see `log.files.disk`.
            failure = LogShortageError(str(failure))
        if isinstance(failure, LogBusyError):
            self._log_shortage(partition.topic_partition, failure)
        elif isinstance(failure, LogDirError | OSError):
            self.fail_log_dir(partition.log.directory.parent, failure)
        else:
            self.fail_alone(partition, failure)

    def fail_alone(self, partition: HostedPartition, failure: Exception) -> None:
        """Take one replica out of service, but not the others in its log dir."""
        if partition.role is not Role.FAILED:
            log.error("partition %s is offline: %s", partition.topic_partition, failure)
            self._take_offline(partition)
            self._notice.send()

    def notify_controller(self) -> None:
        """Make the controller request the state of all replicas of this broker."""
        self._notice.send()

    def _log_shortage(self, tp: TopicPartition, failure: LogBusyError) -> None:
        """Log once in a while only: every request fails as long as the shortage lasts."""
        if tp in self._logged:
            return
        if not self._logged:
            self._scheduler.call_later(LOG_AGAIN_MS, self._logged.clear)
        self._logged.add(tp)
        log.warning(
            "a request for partition %s failed, the partition stays online: %s", tp, failure
        )

    def fail_log_dir(self, path: Path, failure: Exception) -> None:
        """Take a log dir, with all replicas in it, out of service until the next start."""
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


RETRY_MS = 1000
"""Pause before another try: descriptors come back when connections end, within seconds."""


_Order = tuple[LeaderAndIsrPartition, dict[int, Endpoint]]


class PostponedRoles:
    """Orders to lead or to follow that a shortage has postponed. The newest order for a partition
    counts; it is repeated until it succeeds, or another one comes.

    The controller gets no error: it would count the replica as failed until this broker restarts.
    """

    def __init__(self, scheduler: Scheduler, apply: Callable[[list[_Order]], None]) -> None:
        """`apply` carries out orders as if they had just come."""
        self._scheduler = scheduler
        self._apply = apply
        self._orders: dict[TopicPartition, _Order] = {}
        self._is_waiting = False

    def add(self, tp: TopicPartition, order: _Order, failure: LogBusyError) -> None:
        """Schedule another attempt."""
        log.warning("leadership postponed partition=%s: %s", tp, failure)
        self._orders[tp] = order
        if not self._is_waiting:
            self._is_waiting = True
            self._scheduler.call_later(RETRY_MS, self._try_again)

    def forget(self, tp: TopicPartition) -> None:
        """Drop the order: a newer request for the partition has arrived."""
        self._orders.pop(tp, None)

    def forget_all(self) -> None:
        """Drop all orders: a full order has arrived."""
        self._orders.clear()

    def _try_again(self) -> None:
        self._is_waiting = False
        orders, self._orders = self._orders, {}
        if orders:
            self._apply(list(orders.values()))
