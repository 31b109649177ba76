"""The waiting fetches of one broker: those of consumers, and of followers with and without a
session. Source: R-NET2, R-REP2.

Translates the topic ids of a fetch to names for the reader, and back for the answer.

An id is looked up anew for each request, since a topic of the name may have been created again; the
reader checks that the replica belongs to the topic with that id. Source: KIP-516.
"""

from collections.abc import Callable, Generator, Iterable
from functools import partial

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.delayed_fetch import (
    DelayedFetch,
    FetchWait,
    Finish,
    SessionWait,
    WaitingPartitions,
)
from storage_engine.broker.requests.fetch_reads import FetchRead, PartitionReader
from storage_engine.broker.requests.follower_sessions import FollowerSession
from storage_engine.broker.unexpected import guarded
from storage_engine.core.ports import Scheduler
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)
from storage_engine.protocol.apis.topic_ids import id_of_text

NEWS_MS = 500
"""How often waiting fetches of followers are looked at. As long as a fetch of Kafka's waits."""


class FollowerWaits:
    """Followers' fetches that wait here.

    A follower that has just got an order to follow more can't wait for the end of its long poll,
    some seconds in which acks=all waits for it. It sends a fetch without partitions, and its
    waiting fetch is answered.

    Records, another leader and an error end a wait at once. High watermarks, log starts and what
    concerns the ISR are looked for from time to time, in all waiting fetches together. So an idle
    follower may wait for long, and costs this look in place of an answer and another fetch.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_to_look = False
        self._waiting: dict[int, list[FetchWait]] = {}
        """The waiting fetches of each replica, one for each of its channels."""

    def add(self, replica: int, fetch: FetchWait) -> None:
        if not fetch.is_done:
            self._waiting.setdefault(replica, []).append(fetch)
            self._look_later()

    def _look_later(self) -> None:
        if not self._is_to_look:
            self._is_to_look = True
            self._scheduler.call_later(NEWS_MS, self._look)

    def _look(self) -> None:
        self._is_to_look = False
        for fetch in [fetch for waiting in self._waiting.values() for fetch in waiting]:
            guarded("a follower's fetch", fetch.look)
        if self._waiting:
            self._look_later()

    def forget_done(self, replica: int) -> None:
        """Keep only waiting fetches of this replica id, which any client may have claimed."""
        waiting = [each for each in self._waiting.get(replica, ()) if not each.is_done]
        if waiting:
            self._waiting[replica] = waiting
        else:
            self._waiting.pop(replica, None)

    def end(self, replica: int) -> None:
        """Answer the waiting fetches of this follower."""
        for fetch in self._waiting.pop(replica, ()):
            fetch.end_wait()


class FetchWaits:
    """The waiting fetches of one broker."""

    def __init__(
        self,
        reader: PartitionReader,
        *,
        replicas: ReplicaManager,
        scheduler: Scheduler,
        lag_max_ms: int,
    ) -> None:
        """`lag_max_ms`: when a follower that has not fetched counts as lagging here."""
        self._reader = reader
        self._follower_wait_max_ms = lag_max_ms // 2
        """A follower may have another `replica.lag.time.max.ms`, and so ask for a longer wait."""
        self._replicas = replicas
        self._scheduler = scheduler
        self._kept = WaitingPartitions()
        self.of_followers = FollowerWaits(scheduler)
        self.count = 0
        """The number of fetches that wait now."""

    def wait(
        self,
        request: FetchRequest,
        read: FetchRead,
        *,
        session: FollowerSession | None,
        finish: Finish,
        gone: Callable[[], bool],
    ) -> bool:
        """Have a fetch wait, with `session` for news of the whole session; False when it must not,
        because it names no partition, or is a client's and too many partitions wait already."""
        count = 0 if session is not None else len(request.partitions)
        is_follower = request.replica_id >= 0
        if session is None and not count:
            return False
        if not is_follower and not self._kept.has_room_for(count):
            return False
        self._kept.add(count)
        self.count += 1
        wait: FetchWait
        if session is None:
            wait = DelayedFetch(
                request, read, reader=self._reader, replicas=self._replicas,
                scheduler=self._scheduler, finish=finish, gone=gone,
                on_left=partial(self._left, request, count),
            )  # fmt: skip
        else:
            session.settle()
            wait_ms = min(request.max_wait_ms, self._follower_wait_max_ms)
            request = request._replace(max_wait_ms=wait_ms)
            wait = SessionWait(
                session, request, reader=self._reader, scheduler=self._scheduler,
                finish=finish, gone=gone, on_left=partial(self._left, request, count),
            )  # fmt: skip
        if is_follower:
            self.of_followers.add(request.replica_id, wait)
        if session is not None and session.has_missed_news:
            session.tell_news()
        return True

    def _left(self, request: FetchRequest, count: int) -> None:
        self._kept.add(-count)
        self.count -= 1
        if request.replica_id >= 0:
            self.of_followers.forget_done(request.replica_id)


UNKNOWN = ""
"""The name of a topic that this broker does not know."""


def with_names(metadata: MetadataCache, asked: Iterable[FetchPartition]) -> list[FetchPartition]:
    """The partitions by name, each with its id. ValueError for a text that is not an id: a session
    may have a name from a request of an older version."""
    partitions: list[FetchPartition] = []
    text = name = ""
    topic_id = None
    for wanted in asked:
        if wanted.topic != text or topic_id is None:
            text = wanted.topic
            topic_id = id_of_text(text)
            # Zeros are the id of every topic whose id is lost: they name none of them.
            found = metadata.topic_name(topic_id) if topic_id.int else None
            name = UNKNOWN if found is None else found
        partitions.append(FetchPartition(name, *wanted[1:8], topic_id, wanted.want))
    return partitions


def with_ids(
    asked: FetchRequest, answers: Iterable[FetchPartitionResponse]
) -> Generator[None, None, list[FetchPartitionResponse]]:
    """The answers in the order of the request, with its topic ids; in steps."""
    named = []
    for wanted, answer in zip(asked.partitions, answers, strict=True):
        named.append(FetchPartitionResponse(wanted.topic, *answer[1:]))
        yield None
    return named
