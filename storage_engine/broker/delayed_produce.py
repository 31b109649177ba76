"""A produce that waits: for its followers (acks=all), or for this broker's disk (acks=1 and
`flush.before.ack`).

Rule: a partition is answered once its high watermark, or what is flushed of its log, has passed the
last offset appended (a duplicate waits just the same), or with an error once this broker no longer
leads it or the time is over. Source: R-REP3, R-REP6, R-LOG4, KIP-91.
"""

from collections.abc import Callable, Sequence

from storage_engine.broker.hosted_partition import HostedPartition, Role
from storage_engine.broker.purgatory import Deadline
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Scheduler
from storage_engine.protocol.apis.produce import ProducePartitionResponse


class AwaitedAppend:
    """One partition of the request, not answered yet."""

    __slots__ = ("by_all", "index", "partition", "required_offset")

    def __init__(
        self, partition: HostedPartition, *, required_offset: int, index: int, by_all: bool = True
    ) -> None:
        self.partition = partition
        self.required_offset = required_offset
        """The end offset that answers it: one above the last offset appended."""
        self.index = index
        """Its place in the response."""
        self.by_all = by_all
        """Whether all in-sync replicas must have it, or only this one's disk."""

    def outcome(self) -> ErrorCode | None:
        """None while it has to wait."""
        partition = self.partition
        leader = partition.leader
        if leader is None:
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


class DelayedProduce:
    """Waits for all partitions of one request."""

    __slots__ = ("_deadline", "_done", "_respond", "_responses", "_waiting")

    def __init__(
        self,
        waiting: Sequence[AwaitedAppend],
        responses: list[ProducePartitionResponse],
        *,
        timeout_ms: int,
        scheduler: Scheduler,
        respond: Callable[[], None],
    ) -> None:
        self._waiting = list(waiting)
        self._responses = responses
        self._respond = respond
        self._done = False
        self._deadline: Deadline | None = None
        if self.try_complete():
            return
        self._deadline = Deadline(scheduler, timeout_ms, self._expire)
        for item in self._waiting:
            item.partition.produce_waiters.add(self)

    def try_complete(self) -> bool:
        """Look at every open partition; answer when none is left."""
        if self._done:
            return True
        still = []
        for item in self._waiting:
            outcome = item.outcome()
            if outcome is None:
                still.append(item)
            else:
                self._settle(item, outcome)
        self._waiting = still
        if still:
            return False
        self._finish()
        return True

    def _expire(self) -> None:
        self._deadline = None
        for item in self._waiting:
            self._settle(item, ErrorCode.REQUEST_TIMED_OUT)
            item.partition.produce_waiters.discard(self)
        self._finish()

    def _finish(self) -> None:
        self._done = True
        if self._deadline is not None:
            self._deadline.finish()
        self._respond()

    def _settle(self, item: AwaitedAppend, outcome: ErrorCode) -> None:
        if outcome is not ErrorCode.NONE:
            response = self._responses[item.index]
            self._responses[item.index] = response._replace(error_code=int(outcome), base_offset=-1)
