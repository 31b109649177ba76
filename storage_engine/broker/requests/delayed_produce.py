"""Partitions of requests whose answer waits: produces, and DeleteRecords.

A produce with acks=all waits until the high watermark has passed its last record; one with acks=1
and `flush.before.ack`, until the log is flushed so far. A duplicate waits in the same way. Source:
R-REP3, R-REP6, R-LOG4, KIP-91.

A DeleteRecords waits until the logs of all live replicas begin at the requested offset or above.
Clients can't read the records before it from the beginning of the wait on. Source: KIP-107.

Both end with an error when this broker stops to lead the partition, or the request's timeout is
over.
"""

from collections.abc import Callable, Container

from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.purgatory import WaitList
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.produce import ProducePartitionResponse


class AwaitedAppend:
    """A partition of a produce request that is not answered yet."""

    __slots__ = ("by_all", "index", "leader", "partition", "required_offset", "responses")

    def __init__(
        self,
        partition: HostedPartition,
        responses: list[ProducePartitionResponse],
        *,
        required_offset: int,
        index: int,
        by_all: bool = True,
    ) -> None:
        self.partition = partition
        self.leader = partition.leader
        """The leader at the time of the append; a later one may have other records at these
        offsets."""
        self.responses = responses
        """The responses of the request; an error replaces this partition's response."""
        self.required_offset = required_offset
        """The end offset that must be reached: one above the last offset appended."""
        self.index = index
        """The position of the partition in the response."""
        self.by_all = by_all
        """Whether all in-sync replicas must have the records, or only this broker's disk."""

    @property
    def waiters(self) -> WaitList:
        return self.partition.produce_waiters

    def check(self) -> bool:
        outcome = self.outcome()
        if outcome is not None and outcome is not ErrorCode.NONE:
            self._fail(outcome)
        return outcome is not None

    def expire(self) -> None:
        self._fail(ErrorCode.REQUEST_TIMED_OUT)

    def _fail(self, outcome: ErrorCode) -> None:
        response = self.responses[self.index]
        self.responses[self.index] = response._replace(error_code=int(outcome), base_offset=-1)

    def outcome(self) -> ErrorCode | None:
        """The outcome; None while it has to wait."""
        partition = self.partition
        leader = partition.leader
        if leader is None or leader is not self.leader:
            if partition.role is Role.FAILED:
                return ErrorCode.KAFKA_STORAGE_ERROR
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self.by_all:
            flushed = partition.log.recovery_point >= self.required_offset
            return ErrorCode.NONE if flushed else None
        if leader.high_watermark < self.required_offset:
            return None
        if len(leader.isr.maximal) < partition.min_in_sync_count:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE


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
        """`live` returns the brokers that are alive now."""
        self.partition = partition
        self._live = live
        self.required_offset = required_offset
        """The offset at which all replicas are to begin."""
        self.code: ErrorCode | None = None
        """The outcome; None while it has to wait."""
        self.low_watermark = -1
        """The smallest log start offset of the live replicas."""

    @property
    def waiters(self) -> WaitList:
        return self.partition.deletion_waiters

    def expire(self) -> None:
        self.code = ErrorCode.REQUEST_TIMED_OUT

    def check(self) -> bool:
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
