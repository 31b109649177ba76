"""The fetch session of a follower.

    partition is due      its next look is at the next fetch of the session, or at the next answer
    it is settled         the follower has everything, was told so, and counts as in sync

Each partition is one or the other. An append, a high watermark that moves and a new role make it
due; a check that finds nothing new for the follower settles it. So a fetch costs what is due: with
a thousand idle partitions and a busy one, the busy one. Unreported changes, such as a log start
moved by retention, are found by a check of all partitions now and then. Source: R-REP2, R-REP4,
KIP-227.
"""

from collections.abc import Callable, Iterable, Sequence

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.requests.fetch_reads import has_news
from storage_engine.broker.requests.fetch_sessions import (
    FetchSession,
    Key,
    MakeSession,
    plain_session,
)
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.replication.partition import SessionClock
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)

LOOK_AT_ALL_MS = 30_000
"""How often all partitions of a session are checked for unreported changes: 0.5 us each."""

Hosted = Callable[[TopicPartition], HostedPartition | None]


class _Watch:
    """A partition that was settled once; see FollowerWatch."""

    __slots__ = ("key", "partition", "session")

    def __init__(self, session: "FollowerSession", key: Key, partition: HostedPartition) -> None:
        self.session = session
        self.key = key
        self.partition = partition

    def note(self) -> None:
        self.session.due[self.key] = None

    def wake(self) -> None:
        self.session.due[self.key] = None
        if self.session.has_news(self):
            self.session.tell_news()


class FollowerSession(FetchSession):
    """The session of one channel of a follower. While no fetch of it arrives, each append to a
    partition costs one look-up."""

    __slots__ = (
        "_hosted",
        "_is_closed",
        "_looked_at_all_ms",
        "_watches",
        "clock",
        "due",
        "has_missed_news",
        "on_news",
        "replica",
        "replica_epoch",
    )

    def __init__(
        self, session_id: int, request: FetchRequest, *, now_ms: int, hosted: Hosted
    ) -> None:
        super().__init__(session_id, is_follower=True, now_ms=now_ms)
        self._hosted = hosted
        self.replica = BrokerId(request.replica_id)
        self.replica_epoch = request.replica_epoch
        self.clock = SessionClock()
        """Its time counts as a fetch of every settled partition."""
        self.due: dict[Key, None] = {}
        """The partitions to read, in the order in which they are served."""
        self._watches: dict[Key, _Watch] = {}
        """The watches of partitions once settled. Invariant: a partition not due is watched."""
        self._looked_at_all_ms = now_ms
        self.on_news: Callable[[], None] | None = None
        """Answers the fetch that waits; None when none waits."""
        self.has_missed_news = False
        """True when news came since the last `wanted`, and no fetch waited yet."""
        self._is_closed = False

    def takes(self, request: FetchRequest) -> bool:
        """Whether the request is of this follower. Another incarnation must get every partition
        again, since its place in the ISR belongs to the one before."""
        if request.replica_id != self.replica:
            return False
        if request.replica_epoch != self.replica_epoch:
            self.replica_epoch = request.replica_epoch
            self.due = dict.fromkeys(self.partitions)
        return True

    def update(
        self, named: Iterable[FetchPartition], forgotten: Iterable[tuple[str, Sequence[int]]]
    ) -> None:
        super().update(named, forgotten)
        for topic, indexes in forgotten:
            for index in indexes:
                self._forget((topic, index))
        for wanted in named:
            self.due[wanted.topic, wanted.partition] = None

    def _forget(self, key: Key) -> None:
        if key in self.partitions:
            return
        self.due.pop(key, None)
        watch = self._watches.pop(key, None)
        if watch is not None:
            watch.partition.follower_watches.discard(self.replica, watch)
            leader = watch.partition.leader
            if leader is not None:
                leader.leave_session(self.replica, self.clock)

    def close(self) -> None:
        """Stop the watches of the partitions."""
        for watch in self._watches.values():
            watch.partition.follower_watches.discard(self.replica, watch)
        self._is_closed = True
        self._watches.clear()
        self.due = dict.fromkeys(self.partitions)

    def wanted(self) -> list[FetchPartition]:
        """The partitions that are due. From this call on, news are noted."""
        self.has_missed_news = False
        for key in self.due:
            if key not in self._watches:
                self._watched(key)
        partitions = self.partitions
        return [partitions[key].wanted for key in self.due]

    def news(self, answers: Iterable[FetchPartitionResponse]) -> list[FetchPartitionResponse]:
        news = super().news(answers)
        due = self.due
        sent: dict[Key, None] = {}
        for answer in news:
            if answer.records:
                key = answer.topic, answer.partition
                due.pop(key, None)
                sent[key] = None
        self.settle()
        # Moved to the end: a full answer serves the others first next time.
        due.update(sent)
        return news

    def settle(self) -> None:
        """Drop partitions that have nothing new for the follower now."""
        for key in list(self.due):
            watch = self._watched(key)
            if watch is not None and not self._has_more(watch):
                del self.due[key]

    def used(self, now_ms: int) -> None:
        if now_ms - self._looked_at_all_ms < LOOK_AT_ALL_MS:
            return
        self._looked_at_all_ms = now_ms
        due = self.due
        for key, watch in self._watches.items():
            if key not in due and self._has_more(watch):
                due[key] = None

    def tell_news(self) -> None:
        """Pass on that some partition has news."""
        if self.on_news is None:
            self.has_missed_news = True
        else:
            self.on_news()

    def has_news(self, watch: _Watch) -> bool:
        """Whether the news of this partition ends the wait of a fetch."""
        return has_news(self.partitions[watch.key].wanted, watch.partition)

    def _watched(self, key: Key) -> _Watch | None:
        """The watch on the replica that is led here now; None where there is none."""
        watch = self._watches.get(key)
        if watch is not None:
            watches = watch.partition.follower_watches
            is_led = watch.partition.leader is not None
            if is_led and watches.has(self.replica, watch):
                return watch
            watches.discard(self.replica, watch)
            del self._watches[key]
        partition = self._hosted(TopicPartition(*key))
        if partition is None or partition.leader is None or self._is_closed:
            return None
        watch = self._watches[key] = _Watch(self, key, partition)
        partition.follower_watches.put(self.replica, watch)
        return watch

    def _has_more(self, watch: _Watch) -> bool:
        """Whether the follower lacks records, or its last answer is out of date, or it does not
        count as in sync by this session alone."""
        remembered = self.partitions[watch.key]
        wanted, sent = remembered.wanted, remembered.sent
        partition = watch.partition
        leader, log = partition.leader, partition.log
        return (
            leader is None
            or sent is None
            or sent[0] != leader.high_watermark
            or sent[2] != log.log_start_offset
            or wanted.fetch_offset != log.log_end_offset
            or wanted.current_leader_epoch != leader.leader_epoch
            or wanted.was_damaged
            or wanted.topic_id is not None
            or not leader.has_in_session(self.replica, self.clock)
        )


def session_maker(hosted: Hosted) -> MakeSession:
    """Makes plain sessions for clients, and FollowerSessions for followers."""

    def make(session_id: int, request: FetchRequest, now_ms: int) -> FetchSession:
        if request.replica_id < 0:
            return plain_session(session_id, request, now_ms)
        return FollowerSession(session_id, request, now_ms=now_ms, hosted=hosted)

    return make
