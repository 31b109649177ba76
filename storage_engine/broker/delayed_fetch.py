"""A fetch that waits for data.

Rule (document 001): it is answered at once when it wants no wait, asks for no partition, has enough
bytes, or failed; otherwise when data comes, or when `max_wait` is over with what there is. Source:
R-NET2.
"""

from collections.abc import Callable

from storage_engine.broker.fetch_reads import FetchRead, FetchReader, has_news
from storage_engine.broker.hosted_partition import HostedPartition
from storage_engine.broker.purgatory import Deadline
from storage_engine.broker.replica_manager import ReplicaManager
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.protocol.apis.fetch import FetchRequest

LONGEST_WAIT_MS = 60_000
"""However long a client is willing to wait: it asks again, and one that is gone is noticed."""


def must_answer(request: FetchRequest, read: FetchRead) -> bool:
    """The four conditions of document 001; and data that must be fetched from a disk is there."""
    return (
        request.max_wait_ms <= 0
        or not request.partitions
        or read.bytes_readable >= request.min_bytes
        or read.failed
        or bool(read.cold)
    )


class DelayedFetch:
    """One waiting fetch. The request is kept decoded: its frame's memory is gone."""

    __slots__ = ("_deadline", "_done", "_gone", "_partitions", "_reader", "_request", "_respond")

    def __init__(
        self,
        request: FetchRequest,
        *,
        reader: FetchReader,
        replicas: ReplicaManager,
        scheduler: Scheduler,
        respond: Callable[[FetchRead], None],
        gone: Callable[[], bool],
    ) -> None:
        """`gone`: whether the client's connection is closed."""
        self._gone = gone
        self._request = request
        self._reader = reader
        self._respond = respond
        self._done = False
        self._partitions: list[HostedPartition] = []
        for wanted in request.partitions:
            partition = replicas.get(TopicPartition(wanted.topic, wanted.partition))
            if partition is not None:
                partition.data_waiters.add(self)
                self._partitions.append(partition)
        self._deadline = Deadline(
            scheduler, min(request.max_wait_ms, LONGEST_WAIT_MS), self._expire
        )

    def try_complete(self) -> bool:
        if self._done:
            return True
        if self._gone():
            self._deadline.finish()
            self._leave()
            return True
        if self._request.replica_id >= 0 and not self._has_news():
            return False
        read = self._reader.read(self._request)
        if not must_answer(self._request, read):
            return False
        self._deadline.finish()
        self._answer(read)
        return True

    def _has_news(self) -> bool:
        """Whether it is worth a read. Most of what wakes a follower's fetch, which may wait on a
        thousand partitions, is a high watermark that has moved; that is told with other news."""
        partitions = self._partitions
        if len(partitions) != len(self._request.partitions):
            return True
        return any(map(has_news, self._request.partitions, partitions))

    @property
    def is_done(self) -> bool:
        return self._done

    def end_wait(self) -> None:
        """Answer now, with what there is."""
        if not self._done:
            self._deadline.finish()
            self._expire()

    def _expire(self) -> None:
        if not self._done:
            self._answer(self._reader.read(self._request))

    def _answer(self, read: FetchRead) -> None:
        self._leave()
        self._respond(read)

    def _leave(self) -> None:
        self._done = True
        for partition in self._partitions:
            partition.data_waiters.discard(self)


class FollowerWaits:
    """Followers' fetches that wait here.

    A follower that has just been told to follow more can't wait for the end of its long poll, up to
    half a second in which acks=all waits for it. It sends a fetch of nothing, and the one that
    waits is answered.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, list[DelayedFetch]] = {}
        """By replica: one for each of its channels."""

    def add(self, replica: int, fetch: DelayedFetch) -> None:
        others = [each for each in self._waiting.get(replica, ()) if not each.is_done]
        self._waiting[replica] = [*others, fetch]

    def end(self, replica: int) -> None:
        """Answer what waits of this follower."""
        for fetch in self._waiting.pop(replica, ()):
            fetch.end_wait()
