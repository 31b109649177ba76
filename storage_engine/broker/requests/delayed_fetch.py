"""A fetch that waits for data.

A fetch is answered at once when it allows no wait, names no partition, has enough bytes, or failed.
Otherwise it is answered when enough data has come, or, with less, when `max_wait` is over. One in a
follower's session waits for news of the whole session. Source: R-NET2.
"""

from collections.abc import Callable

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.fetch_reads import FetchRead, PartitionReader, has_news
from storage_engine.broker.requests.follower_sessions import FollowerSession
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.protocol.apis.fetch import (
    READ_COMMITTED,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)

LONGEST_WAIT_MS = 60_000
"""The longest wait of a fetch, whatever its request says: the client sends another, and the end of
its connection is noticed."""

FEW_PARTITIONS = 20
"""The most partitions of a fetch that is read at once, and may always wait."""

Finish = Callable[[FetchRequest, FetchRead | None], None]
"""Called at the end of the wait, with the request (of a session: with the partitions due by then)
and the read; None: it must be read again."""

WAITING_PARTITIONS_MAX = 200_000
"""The most partitions that all waiting fetches of many partitions may name together: some 80 MB."""


class FetchWait:
    """One waiting fetch. The request is kept decoded: its frame's memory is gone."""

    __slots__ = ("_deadline", "_finish", "_gone", "_on_left", "_reader", "_request", "is_done")

    def __init__(
        self,
        request: FetchRequest,
        *,
        reader: PartitionReader,
        scheduler: Scheduler,
        finish: Finish,
        gone: Callable[[], bool],
        on_left: Callable[[], None],
    ) -> None:
        """`gone`: whether the client's connection is closed. `on_left`: called after the wait."""
        self._request = request
        self._reader = reader
        self._finish = finish
        self._gone = gone
        self._on_left = on_left
        self.is_done = False
        self._deadline = RequestDeadline(
            scheduler, min(request.max_wait_ms, LONGEST_WAIT_MS), self.end_wait
        )

    def end_wait(self) -> None:
        """Answer now, with the records there are."""
        if not self.is_done:
            self._end(self._wanted(), None)

    def look(self) -> None:
        """Answer if there is something to tell that does not end the wait at once."""

    def _is_over(self) -> bool:
        if not self.is_done and self._gone():
            self._leave()
        return self.is_done

    def _end(self, request: FetchRequest, read: FetchRead | None) -> None:
        self._leave()
        self._finish(request, read)

    def _leave(self) -> None:
        self.is_done = True
        self._deadline.finish()
        self._stop_listening()
        self._on_left()

    def _wanted(self) -> FetchRequest:
        """The request with the partitions to answer."""
        return self._request

    def _stop_listening(self) -> None:
        raise NotImplementedError


class _Watched:
    """A partition of a waiting fetch."""

    __slots__ = ("fetch", "partition", "seen", "size", "wanted")

    def __init__(
        self, fetch: "DelayedFetch", wanted: FetchPartition, partition: HostedPartition, size: int
    ) -> None:
        self.fetch = fetch
        self.wanted = wanted
        self.partition = partition
        self.size = size
        """The bytes that were readable at the last check."""
        self.seen: _Seen | None = None
        """The state of a consumer's partition at its last check."""

    def try_complete(self) -> bool:
        return self.fetch.check(self)


class DelayedFetch(FetchWait):
    """A fetch that waits for news of its partitions.

    News of one partition costs one read, however many partitions the fetch names: it is answered
    when the bytes readable in each, at its last read, are enough together.
    """

    __slots__ = ("_readable", "_watched")

    def __init__(
        self,
        request: FetchRequest,
        read: FetchRead,
        *,
        reader: PartitionReader,
        replicas: ReplicaManager,
        scheduler: Scheduler,
        finish: Finish,
        gone: Callable[[], bool],
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        """`read`: the read of all partitions just now."""
        super().__init__(
            request, reader=reader, scheduler=scheduler, finish=finish, gone=gone, on_left=on_left
        )
        self._readable = read.bytes_readable
        self._watched: list[_Watched] = []
        late: list[_Watched] = []
        is_gone = False
        for wanted, answer in zip(request.partitions, read.partitions, strict=True):
            partition = replicas.get(TopicPartition(wanted.topic, wanted.partition))
            if partition is None:
                if not answer.error_code:
                    is_gone = True
                continue
            size = 0 if answer.records is None else len(answer.records)
            watched = _Watched(self, wanted, partition, size)
            partition.data_waiters.add(watched)
            self._watched.append(watched)
            is_late = _has_changed(wanted, answer, partition)
            if is_late or (request.replica_id >= 0 and has_news(wanted, partition)):
                late.append(watched)
            elif request.replica_id < 0:
                watched.seen = _seen(request, partition)
        if is_gone:
            self.end_wait()
            return
        for watched in late:
            watched.try_complete()

    def check(self, watched: _Watched) -> bool:
        """Check a partition that may have new records; True when the wait is over."""
        if self._is_over():
            return True
        request = self._request
        # Mostly a high watermark that has moved wakes a follower's fetch; it is sent with other
        # news.
        partition = watched.partition
        if request.replica_id >= 0:
            if not has_news(watched.wanted, partition):
                return False
        else:
            seen = _seen(request, partition)
            if seen == watched.seen:
                return False
            watched.seen = seen
        read = self._reader.read(request, [watched.wanted])
        self._readable += read.bytes_readable - watched.size
        watched.size = read.bytes_readable
        if self._readable < request.min_bytes and not read.is_enough(request):
            return False
        self._end(request, read if len(request.partitions) == 1 else None)
        return True

    def _stop_listening(self) -> None:
        for watched in self._watched:
            watched.partition.data_waiters.discard(watched)
        self._watched.clear()


class SessionWait(FetchWait):
    """A follower's fetch that waits for news of any partition of its session."""

    __slots__ = ("_session",)

    def __init__(
        self,
        session: FollowerSession,
        request: FetchRequest,
        *,
        reader: PartitionReader,
        scheduler: Scheduler,
        finish: Finish,
        gone: Callable[[], bool],
        on_left: Callable[[], None],
    ) -> None:
        super().__init__(
            request, reader=reader, scheduler=scheduler, finish=finish, gone=gone, on_left=on_left
        )
        self._session = session
        session.on_news = self.on_news

    def on_news(self) -> None:
        """Answer if the news of the session's partitions is enough."""
        if self._is_over():
            return
        if len(self._session.due) > FEW_PARTITIONS:
            self.end_wait()
            return
        request = self._wanted()
        read = self._reader.read(request)
        if read.is_enough(request):
            self._end(request, read)

    def look(self) -> None:
        if self._is_over():
            return
        if len(self._session.due) <= FEW_PARTITIONS:
            self._session.settle()
        if self._session.due:
            self.end_wait()

    def _wanted(self) -> FetchRequest:
        return self._request.of(self._session.wanted())

    def _stop_listening(self) -> None:
        if self._session.on_news == self.on_news:
            self._session.on_news = None


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
    """The state that decides on a consumer's records: the log, role and leader epoch, and the
    bounds of what it may read. An append alone changes none of them."""
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
        """Whether a fetch of that many partitions may wait."""
        return count <= FEW_PARTITIONS or self.kept + count <= self._most

    def add(self, count: int) -> None:
        """Add the partitions of a waiting fetch; with a negative number, at the end of its wait."""
        self.kept += count
