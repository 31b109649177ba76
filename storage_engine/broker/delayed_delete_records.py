"""A DeleteRecords that waits for the followers.

Rule: a partition is answered once all its live replicas begin at or above the offset asked for, or
with an error once this broker no longer leads it or the time is over; the records are gone for
clients from the beginning. Source: KIP-107.
"""

from collections.abc import Callable, Container, Sequence

from storage_engine.broker.hosted_partition import HostedPartition, Role
from storage_engine.broker.purgatory import Deadline
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Scheduler


class AwaitedDeletion:
    """One partition of the request, not answered yet."""

    __slots__ = ("code", "low_watermark", "partition", "required_offset")

    def __init__(self, partition: HostedPartition, *, required_offset: int) -> None:
        self.partition = partition
        self.required_offset = required_offset
        """Where all replicas shall begin."""
        self.code: ErrorCode | None = None
        """None while it has to wait."""
        self.low_watermark = -1
        """Where the last of the live replicas begins."""

    def look(self, live: Container[int]) -> bool:
        """Whether it is settled by now."""
        partition = self.partition
        self.low_watermark = partition.low_watermark(live)
        if partition.leader is None:
            failed = partition.role is Role.FAILED
            self.code = (
                ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        elif self.low_watermark >= self.required_offset:
            self.code = ErrorCode.NONE
        return self.code is not None


class DelayedDeleteRecords:
    """Waits for all partitions of one request."""

    __slots__ = ("_deadline", "_done", "_live", "_respond", "_waiting")

    def __init__(
        self,
        deletions: Sequence[AwaitedDeletion],
        *,
        live: Callable[[], Container[int]],
        timeout_ms: int,
        scheduler: Scheduler,
        respond: Callable[[], None],
    ) -> None:
        self._waiting = list(deletions)
        self._live = live
        self._respond = respond
        self._done = False
        self._deadline: Deadline | None = None
        if self.try_complete():
            return
        self._deadline = Deadline(scheduler, timeout_ms, self._expire)
        for item in self._waiting:
            item.partition.deletion_waiters.add(self)

    def try_complete(self) -> bool:
        """Look at every open partition; answer when none is left."""
        if self._done:
            return True
        live = self._live()
        self._waiting = [item for item in self._waiting if not item.look(live)]
        if self._waiting:
            return False
        self._finish()
        return True

    def _expire(self) -> None:
        self._deadline = None
        for item in self._waiting:
            item.code = ErrorCode.REQUEST_TIMED_OUT
            item.partition.deletion_waiters.discard(self)
        self._finish()

    def _finish(self) -> None:
        self._done = True
        if self._deadline is not None:
            self._deadline.finish()
        self._respond()
