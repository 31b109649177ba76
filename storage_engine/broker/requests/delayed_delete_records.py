"""A DeleteRecords that waits for the followers.

A partition is answered once all its live replicas begin at or above the offset asked for, or with
an error once this broker no longer leads it or the timeout is over. Clients can't read the records
from the beginning of the wait on. Source: KIP-107.
"""

from collections.abc import Callable, Container

from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.purgatory import WaitList
from storage_engine.core.errors import ErrorCode


class AwaitedDeletion:
    """A partition of a DeleteRecords request that is not answered yet."""

    __slots__ = ("_live", "code", "low_watermark", "partition", "required_offset")

    def __init__(
        self,
        partition: HostedPartition,
        *,
        required_offset: int,
        live: Callable[[], Container[int]],
    ) -> None:
        """`live` gives the brokers that live at present."""
        self.partition = partition
        self._live = live
        self.required_offset = required_offset
        """The offset at which all replicas are to begin."""
        self.code: ErrorCode | None = None
        """None while it has to wait."""
        self.low_watermark = -1
        """The start offset of that live replica which begins first."""

    @property
    def waiters(self) -> WaitList:
        return self.partition.deletion_waiters

    def expire(self) -> None:
        """The time is over."""
        self.code = ErrorCode.REQUEST_TIMED_OUT

    def check(self) -> bool:
        """Whether it is settled by now."""
        partition = self.partition
        self.low_watermark = _low_watermark(partition, self._live())
        if partition.leader is None:
            failed = partition.role is Role.FAILED
            self.code = (
                ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        elif self.low_watermark >= self.required_offset:
            self.code = ErrorCode.NONE
        return self.code is not None


def _low_watermark(partition: HostedPartition, live: Container[int]) -> int:
    """The smallest log start offset of the live replicas; -1 until all have reported theirs."""
    starts = [
        partition.follower_log_starts.get(replica, -1)
        for replica in partition.assigned_replicas
        if replica != partition.leader_id and replica in live
    ]
    return min([partition.log.log_start_offset, *starts])
