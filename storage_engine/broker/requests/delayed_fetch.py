"""A fetch that waits for data.

A fetch is answered at once when it allows no wait, names no partition, has enough bytes, or failed.
Otherwise it is answered when enough data has come, or, with less, when `max_wait` is over. Source:
R-NET2.
"""

from collections.abc import Callable

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.fetch_reads import FetchRead, PartitionReader, has_news
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.protocol.apis.fetch import (
    READ_COMMITTED,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)

LONGEST_WAIT_MS = 60_000
"""The longest wait of a fetch, whatever it asks for: the client sends another, and the end of its
connection is noticed."""

FEW_PARTITIONS = 20
"""A fetch of at most so many is read at once, and may always wait."""

WAITING_PARTITIONS_MAX = 200_000
"""The most partitions that all waiting fetches of many partitions may name together: some 80 MB."""


def must_answer(request: FetchRequest, read: FetchRead) -> bool:
    """Whether one of the four conditions above holds, or there is data that a disk must give."""
    return not request.partitions or is_enough(request, read)


def is_enough(request: FetchRequest, read: FetchRead) -> bool:
    """Like `must_answer`, of a session's fetch, which waits also when nothing of it is due."""
    return (
        request.max_wait_ms <= 0
        or read.bytes_readable >= request.min_bytes
        or read.failed
        or read.is_cut
        or bool(read.cold)
    )


class _Watched:
    """A partition of a waiting fetch that has several."""

    __slots__ = ("fetch", "partition", "seen", "size", "wanted")

    def __init__(
        self, fetch: "DelayedFetch", wanted: FetchPartition, partition: HostedPartition, size: int
    ) -> None:
        self.fetch = fetch
        self.wanted = wanted
        self.partition = partition
        self.size = size
        """Bytes that were readable at the last check."""
        self.seen: _Seen | None = None
        """What the partition of a consumer was like at its last check."""

    def try_complete(self) -> bool:
        return self.fetch.check(self)


class DelayedFetch:
    """One waiting fetch. The request is kept decoded: its frame's memory is gone.

    News of one partition cost one read, however many partitions the fetch names: it is answered
    when what was readable of each, when it was last looked at, is enough together.
    """

    __slots__ = (
        "_deadline",
        "_done",
        "_finish",
        "_gone",
        "_on_left",
        "_readable",
        "_reader",
        "_request",
        "_seen",
        "_waiters",
    )

    def __init__(
        self,
        request: FetchRequest,
        read: FetchRead,
        *,
        reader: PartitionReader,
        replicas: ReplicaManager,
        scheduler: Scheduler,
        finish: Callable[[FetchRead | None], None],
        gone: Callable[[], bool],
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        """`read`: what there was of all partitions just now. `finish` gets what there is when the
        wait is over, or None: then all is to be read anew. `gone`: whether the client's connection
        is closed. `on_left`: the wait is over."""
        self._gone = gone
        self._request = request
        self._reader = reader
        self._finish = finish
        self._on_left = on_left
        self._done = False
        self._readable = read.bytes_readable
        self._waiters: list[tuple[HostedPartition, DelayedFetch | _Watched]] = []
        self._seen: _Seen | None = None
        """What the one partition of a consumer was like at its last look."""
        self._deadline = RequestDeadline(
            scheduler, min(request.max_wait_ms, LONGEST_WAIT_MS), self._expire
        )
        if len(request.partitions) == 1:
            partition = self._hosted(replicas, request.partitions[0])
            if partition is not None:
                self._watch(partition, self)
                self._seen = _seen(request, partition)
            return
        late: list[_Watched] = []
        is_gone = False
        for wanted, answer in zip(request.partitions, read.partitions, strict=True):
            partition = self._hosted(replicas, wanted)
            if partition is None:
                if not answer.error_code:
                    is_gone = True
                continue
            size = 0 if answer.records is None else len(answer.records)
            watched = _Watched(self, wanted, partition, size)
            self._watch(partition, watched)
            is_late = _has_changed(wanted, answer, partition)
            if is_late or (request.replica_id >= 0 and has_news(wanted, partition)):
                late.append(watched)
            elif request.replica_id < 0:
                watched.seen = _seen(request, partition)
        if is_gone:
            self._end(None)
            return
        for watched in late:
            watched.try_complete()

    @staticmethod
    def _hosted(replicas: ReplicaManager, wanted: FetchPartition) -> HostedPartition | None:
        return replicas.get(TopicPartition(wanted.topic, wanted.partition))

    def _watch(self, partition: HostedPartition, waiter: "DelayedFetch | _Watched") -> None:
        partition.data_waiters.add(waiter)
        self._waiters.append((partition, waiter))

    def try_complete(self) -> bool:
        """The one partition of the request may have news."""
        if self._is_over():
            return True
        partition = self._waiters[0][0]
        request = self._request
        if request.replica_id >= 0:
            if not has_news(request.partitions[0], partition):
                return False
        else:
            seen = _seen(request, partition)
            if seen == self._seen:
                return False
            self._seen = seen
        read = self._reader.read(request)
        if not must_answer(request, read):
            return False
        self._end(read)
        return True

    def check(self, watched: _Watched) -> bool:
        """Called when one of several partitions may have new records."""
        if self._is_over():
            return True
        request = self._request
        # Most of what wakes a follower's fetch is a high watermark that has moved, which is sent
        # with other news.
        partition = watched.partition
        if request.replica_id >= 0:
            if not has_news(watched.wanted, partition):
                return False
        else:
            seen = _seen(request, partition)
            if seen == watched.seen:
                return False
            watched.seen = seen
        read = FetchRead(request.max_bytes)
        self._reader.read_more(request, [watched.wanted], read)
        self._readable += read.bytes_readable - watched.size
        watched.size = read.bytes_readable
        if not (read.failed or read.is_cut or read.cold or self._readable >= request.min_bytes):
            return False
        self._end(None)
        return True

    def _is_over(self) -> bool:
        if not self._done and self._gone():
            self._deadline.finish()
            self._leave()
        return self._done

    @property
    def is_done(self) -> bool:
        return self._done

    def end_wait(self) -> None:
        """Answer now, with what there is."""
        if not self._done:
            self._end(None)

    def _expire(self) -> None:
        if not self._done:
            self._end(None)

    def _end(self, read: FetchRead | None) -> None:
        self._deadline.finish()
        self._leave()
        self._finish(read)

    def _leave(self) -> None:
        self._done = True
        for partition, waiter in self._waiters:
            partition.data_waiters.discard(waiter)
        self._waiters.clear()
        self._on_left()


def _has_changed(
    wanted: FetchPartition, answer: FetchPartitionResponse, partition: HostedPartition
) -> bool:
    """Whether a partition has changed since it was read: others were read after it, perhaps in
    later turns."""
    return (
        partition.leader is None
        or partition.high_watermark != answer.high_watermark
        or partition.log.log_start_offset != answer.log_start_offset
        or wanted.current_leader_epoch not in (-1, partition.leader_epoch)
    )


_Seen = tuple[object, object, int, int, int]


def _seen(request: FetchRequest, partition: HostedPartition) -> _Seen:
    """All that decides on what a consumer gets: the log, role and leader epoch, and the bounds of
    what it may read. An append alone changes none of them."""
    log = partition.log
    is_isolated = request.isolation_level == READ_COMMITTED
    return (
        log,
        partition.role,
        partition.leader_epoch,
        partition.last_stable_offset if is_isolated else partition.high_watermark,
        log.log_start_offset,
    )


class WaitingPartitions:
    """Counts the partitions of all waiting fetches of all clients. A waiting fetch keeps some 400
    bytes for each partition. When the count is high, a fetch of many partitions is answered at once
    with the records there are, as if its time were over; fetches of few partitions always wait.
    """

    def __init__(self, most: int = WAITING_PARTITIONS_MAX) -> None:
        self._most = most
        self.kept = 0

    def has_room_for(self, count: int) -> bool:
        """Whether a fetch of so many partitions may wait."""
        return count <= FEW_PARTITIONS or self.kept + count <= self._most

    def add(self, count: int) -> None:
        """A fetch waits; to be called with the negative number when it does no more."""
        self.kept += count
