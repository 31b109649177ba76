"""The waiting fetches of one broker: those of consumers, and of followers with and without a
session. Source: R-NET2, R-REP2.
"""

from collections.abc import Callable

from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.delayed_fetch import (
    FEW_PARTITIONS,
    LONGEST_WAIT_MS,
    DelayedFetch,
    WaitingPartitions,
    is_enough,
)
from storage_engine.broker.requests.fetch_reads import FetchRead, PartitionReader
from storage_engine.broker.requests.follower_sessions import FollowerSession
from storage_engine.core.ports import Scheduler
from storage_engine.protocol.apis.fetch import FetchRequest, with_partitions


class FollowerWait:
    """A follower's fetch that waits for one of the partitions of its session to have news."""

    __slots__ = (
        "_deadline",
        "_finish",
        "_gone",
        "_on_left",
        "_reader",
        "_request",
        "_session",
        "is_done",
    )

    def __init__(
        self,
        session: FollowerSession,
        request: FetchRequest,
        *,
        reader: PartitionReader,
        scheduler: Scheduler,
        finish: Callable[[FetchRequest, FetchRead | None], None],
        gone: Callable[[], bool],
        on_left: Callable[[], None],
    ) -> None:
        """`finish` gets the request with what is due by then, and what there is of that; None: it
        is to be read in steps. `on_left`: the wait is over."""
        self._on_left = on_left
        self._session = session
        self._request = request
        self._reader = reader
        self._finish = finish
        self._gone = gone
        self.is_done = False
        self._deadline = RequestDeadline(
            scheduler, min(request.max_wait_ms, LONGEST_WAIT_MS), self.end_wait
        )
        session.on_news = self.on_news

    def on_news(self) -> None:
        """Some partition of the session has news: answer, if that is enough."""
        if self._gone():
            self._leave()
            return
        if len(self._session.due) > FEW_PARTITIONS:
            self.end_wait()
            return
        request = self._renewed()
        read = self._reader.read(request)
        if is_enough(request, read):
            self._leave()
            self._finish(request, read)

    def end_wait(self) -> None:
        """Answer now, with what there is."""
        if not self.is_done:
            self._leave()
            self._finish(self._renewed(), None)

    def _renewed(self) -> FetchRequest:
        return with_partitions(self._request, self._session.wanted())

    def _leave(self) -> None:
        self.is_done = True
        self._deadline.finish()
        if self._session.on_news == self.on_news:
            self._session.on_news = None
        self._on_left()


class FollowerWaits:
    """Followers' fetches that wait here.

    A follower that has just got an order to follow more can't wait for the end of its long poll, up
    to half a second in which acks=all waits for it. It sends a fetch of nothing, and the one that
    waits is answered.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, list[DelayedFetch | FollowerWait]] = {}
        """The waiting fetches of each replica, one for each of its channels."""

    def add(self, replica: int, fetch: DelayedFetch | FollowerWait) -> None:
        if not fetch.is_done:
            self._waiting.setdefault(replica, []).append(fetch)

    def forget_done(self, replica: int) -> None:
        """Keep only what still waits of this follower, who may be anybody that claims its id."""
        waiting = [each for each in self._waiting.get(replica, ()) if not each.is_done]
        if waiting:
            self._waiting[replica] = waiting
        else:
            self._waiting.pop(replica, None)

    def end(self, replica: int) -> None:
        """Answer what waits of this follower."""
        for fetch in self._waiting.pop(replica, ()):
            fetch.end_wait()


class FetchWaits:
    """The waiting fetches of one broker."""

    def __init__(
        self, reader: PartitionReader, *, replicas: ReplicaManager, scheduler: Scheduler
    ) -> None:
        self._reader = reader
        self._replicas = replicas
        self._scheduler = scheduler
        self._kept = WaitingPartitions()
        self.of_followers = FollowerWaits()
        self.count = 0
        """The fetches that wait now."""

    def wait(
        self,
        request: FetchRequest,
        read: FetchRead,
        *,
        finish: Callable[[FetchRead | None], None],
        gone: Callable[[], bool],
    ) -> bool:
        """Have a fetch wait, as `DelayedFetch` does; False when a client's fetch must not, because
        too much is kept already."""
        kept, count = self._kept, len(request.partitions)
        is_follower = request.replica_id >= 0
        if not is_follower and not kept.has_room_for(count):
            return False
        kept.add(count)
        self.count += 1

        def left() -> None:
            kept.add(-count)
            self._left(request)

        delayed = DelayedFetch(
            request,
            read,
            reader=self._reader,
            replicas=self._replicas,
            scheduler=self._scheduler,
            finish=finish,
            gone=gone,
            on_left=left,
        )
        if is_follower:
            self.of_followers.add(request.replica_id, delayed)
        return True

    def wait_in_session(
        self,
        session: FollowerSession,
        request: FetchRequest,
        *,
        finish: Callable[[FetchRequest, FetchRead | None], None],
        gone: Callable[[], bool],
    ) -> None:
        """Have a follower's fetch wait, as `FollowerWait` does."""
        session.settle()
        self.count += 1
        fetch = FollowerWait(
            session,
            request,
            reader=self._reader,
            scheduler=self._scheduler,
            finish=finish,
            gone=gone,
            on_left=lambda: self._left(request),
        )
        self.of_followers.add(request.replica_id, fetch)
        if session.has_missed_news:
            fetch.on_news()

    def _left(self, request: FetchRequest) -> None:
        self.count -= 1
        if request.replica_id >= 0:
            self.of_followers.forget_done(request.replica_id)
