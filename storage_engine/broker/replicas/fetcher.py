"""The fetch loop of a follower: fetches from one leader all partitions that this broker follows
there.

    fetch -> answer -> taken, as much a turn of the event loop as one partition may bring
          -> partitions that belong to another channel leave -> fetch ...

One request is under way, and the next is sent when the whole answer is appended. Since a fetch
acknowledges all records below its offset, a fetch of a partition with `flush.before.ack` waits
until these are flushed; such partitions have a loop of their own, so that no other partition waits
for the disk. Source: R-REP2, R-REP8, R-CTL3, KIP-227 for sessions.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage_engine.broker import unexpected
from storage_engine.broker.cluster.leader_doubts import LeaderDoubts
from storage_engine.broker.replicas.answer_turns import FollowerTurn, TakenAnswer, split
from storage_engine.broker.replicas.followed_partition import (
    CHANNEL,
    DURABLE_CHANNEL,
    Followed,
    ReplicationThrottle,
)
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.leader_answers import LeaderAnswers
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import Clock, Endpoint, Scheduler, Timer, TransportError
from storage_engine.protocol.apis.fetch import (
    API as FETCH,
)
from storage_engine.protocol.apis.fetch import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.fetch_session import NO_SESSION_EPOCH, ClientFetchSession
from storage_engine.protocol.transport import Transport

log = logging.getLogger(__name__)

FETCH_VERSION = 12
"""The first version that carries the last fetched epoch, and whose answers name a divergence."""

LOOK_AT_ALL_MS = 30_000
"""How often all partitions are checked for unreported changes, some 0.5 us each."""

LOST_RETRY_MS = 20
"""First pause after a lost connection: perhaps only the connection broke, or another broker leads
by then. It doubles up to replica.fetch.backoff.ms."""

UNTOLD_WAIT_MS = 500
"""The longest wait of a fetch without a session: a leader tells it nothing but records."""

REQUEST_SLACK_MS = 30_000
"""A fetch counts as lost this long after its longest wait at the leader
(replica.socket.timeout.ms)."""

_SESSION_CODES = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """Kafka's `replica.fetch.*`."""

    broker_id: int
    max_bytes: int
    """Limit for one partition in an answer; about as much is appended in one turn of the loop."""
    response_max_bytes: int
    min_bytes: int
    wait_max_ms: int
    """The longest wait of a fetch in a session: the leader ends it for whatever it has to tell."""
    backoff_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherPorts:
    """The parts of the broker that fetch loops use."""

    transport: Transport
    scheduler: Scheduler
    clock: Clock
    broker_epoch: Callable[[], int]
    keep_log_starts: Callable[[list[HostedPartition]], bool]
    throttle: ReplicationThrottle
    doubts: LeaderDoubts


class PeerFetcher:
    """The fetch loop of one channel."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: FetcherSettings,
        ports: FetcherPorts,
        *,
        channel: str,
        on_leaving: Callable[["PeerFetcher", Sequence[Followed]], None],
    ) -> None:
        """`on_leaving` receives partitions that this loop has released for another channel."""
        self.endpoint = endpoint
        self.channel = channel
        self._settings = settings
        self._ports = ports
        self._on_leaving = on_leaving
        self._answers = LeaderAnswers(
            endpoint.broker_id,
            backoff_ms=settings.backoff_ms,
            clock=ports.clock,
            throttle=ports.throttle,
        )
        self._followed: dict[TopicPartition, Followed] = {}
        self._joining: dict[TopicPartition, Followed] = {}
        """Partitions to be followed from the next `wake` on."""
        self._due: dict[TopicPartition, Followed] = {}
        """Partitions that the next fetch may have to name; the session has the others."""
        self._paused: dict[TopicPartition, Followed] = {}
        """Partitions that the fetches leave out for a while."""
        self._left: set[TopicPartition] = set()
        """Partitions that leave the session: no longer followed, or paused."""
        self._looked_at_all_ms = 0
        self._long_poll_ended = False
        """True when the leader was asked to answer the fetch under way without further wait."""
        self._session = ClientFetchSession()
        self.heard_ms: int | None = None
        """The monotonic time of the leader's last answer in ms; None before the first."""
        self._in_flight = False
        self._answer: TakenAnswer | None = None
        """The answer to the last fetch, until all of it is applied."""
        self._losses = 0
        """Fetches in a row that were not answered."""
        self._flushing = 0
        """Partitions whose flush the next fetch waits for."""
        self._unkept: list[HostedPartition] = []
        """Partitions whose log start is not written yet: the next fetch, which reports it, waits
        for the write."""
        self._timer: Timer | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._followed) + len(self._joining)

    @property
    def most_behind(self) -> int:
        """The most committed records that a partition of this loop lacks."""
        return max((each.behind_records for each in self._followed.values()), default=0)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._followed or tp in self._joining

    def add(self, followed: Followed) -> None:
        """Follow one more partition, from the next `wake` on."""
        tp = followed.topic_partition
        self._drop(tp)
        followed.asked = None
        self._joining[tp] = followed
        # The answer to a request under way will not count for it.
        self._session.name_again(*tp)

    def wake(self) -> None:
        """Fetch the added partitions, all together, without waiting for the end of a long poll."""
        if not self._joining:
            return
        self._followed.update(self._joining)
        self._due.update(self._joining)
        self._joining.clear()
        if self._in_flight:
            self._end_long_poll()
        else:
            self._schedule(0)

    def look_at(self, tp: TopicPartition) -> None:
        """Name the partition in the next fetch, if it is followed here and its end has changed."""
        followed = self._followed.get(tp)
        if followed is not None:
            self._due[tp] = followed

    def _end_long_poll(self) -> None:
        if self._long_poll_ended:
            return
        self._long_poll_ended = True
        request = FetchRequest(
            replica_id=self._settings.broker_id,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=0,
            partitions=[],
            session_epoch=NO_SESSION_EPOCH,
        )
        self._send(request, lambda _reply: None)

    def _send(
        self, request: FetchRequest, on_reply: Callable[[FetchResponse | TransportError], None]
    ) -> None:
        self._ports.transport.request(
            self.endpoint,
            self.channel,
            FETCH,
            FETCH_VERSION,
            request,
            timeout_ms=self._settings.wait_max_ms + REQUEST_SLACK_MS,
            on_reply=on_reply,
        )

    def remove(self, tp: TopicPartition) -> Followed | None:
        """Stop following the partition; None where it was not followed."""
        joining = self._joining.pop(tp, None)
        return self._drop(tp) or joining

    def _drop(self, tp: TopicPartition) -> Followed | None:
        self._due.pop(tp, None)
        self._paused.pop(tp, None)
        self._left.add(tp)
        return self._followed.pop(tp, None)

    def close(self) -> None:
        """Stop; later answers are ignored."""
        self._closed = True
        self._answer = None
        for each in (self._followed, self._joining, self._due, self._paused):
            each.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._ports.transport.disconnect(self.endpoint, self.channel)

    @property
    def _is_busy(self) -> bool:
        """Whether something is under way after which the next fetch is sent."""
        return self._in_flight or self._answer is not None or self._flushing > 0 or self._closed

    def _schedule(self, delay_ms: int) -> None:
        if self._is_busy:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._ports.scheduler.call_later(delay_ms, self._run)

    def _run(self) -> None:
        self._timer = None
        if self._is_busy or not self._followed:
            return
        try:
            self._fetch_what_is_ready()
        except Exception as error:  # noqa: BLE001 - whatever it is, the loop goes on
            self._in_flight = False
            self._session.lost()
            self._schedule(self._settings.backoff_ms)
            unexpected.report(f"fetch from broker {self.endpoint.broker_id} not sent", error)

    def _fetch_what_is_ready(self) -> None:
        if self._unkept and not self._ports.keep_log_starts(self._unkept):
            self._schedule(self._settings.backoff_ms)
            return
        self._unkept = []
        now_ms = self._ports.clock.monotonic_ms()
        self._look(now_ms)
        ready = [f for f in self._due.values() if self._is_ready(f, now_ms)]
        if len(self._paused) == len(self._followed):
            self._schedule(max(1, min(f.resume_ms for f in self._paused.values()) - now_ms))
            return
        unflushed = [f.partition for f in ready if f.partition.must_flush]
        if unflushed:
            self._flush_first(unflushed)
            return
        self._fetch(ready, now_ms)

    def _look(self, now_ms: int) -> None:
        """Find the partitions that are due."""
        due, followed = self._due, self._followed
        if self._paused:
            for tp in [tp for tp, f in self._paused.items() if f.resume_ms <= now_ms]:
                due[tp] = followed[tp]
        if self._session.is_new or self.channel not in (CHANNEL, DURABLE_CHANNEL):
            # Partitions that are behind may be under a throttle, which pauses all of them.
            self._due = dict(followed)
        elif now_ms - self._looked_at_all_ms >= LOOK_AT_ALL_MS:
            self._looked_at_all_ms = now_ms
            due.update([(tp, f) for tp, f in followed.items() if f.has_changed])

    def _fetch(self, ready: list[Followed], now_ms: int) -> None:
        self._in_flight = True
        settings = self._settings
        for followed in ready:
            followed.asked = followed.wanted(settings.max_bytes)
        wanted = [followed.asked for followed in ready if followed.asked is not None]
        if self._session.is_new:
            part = self._session.next(wanted)
        else:
            if self._left:
                self._left.difference_update(followed.topic_partition for followed in ready)
            part = self._session.next_changed(wanted, self._left)
        self._due.clear()
        self._left.clear()
        request = FetchRequest(
            replica_id=settings.broker_id,
            replica_epoch=self._ports.broker_epoch(),
            # After a loss the leader is in doubt until it answers.
            max_wait_ms=0 if self._losses else self._longest_wait(now_ms),
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            partitions=part.partitions,
            session_id=part.session_id,
            session_epoch=part.session_epoch,
            forgotten=part.forgotten,
        )
        self._send(request, self._on_reply)

    def _is_ready(self, followed: Followed, now_ms: int) -> bool:
        if followed.resume_ms <= now_ms:
            pause_ms = self._ports.throttle.pause_ms(
                followed.partition, in_sync=followed.is_caught_up
            )
            if pause_ms:
                followed.resume_ms = now_ms + pause_ms
        if followed.resume_ms <= now_ms:
            if self._paused:
                self._paused.pop(followed.topic_partition, None)
            return True
        tp = followed.topic_partition
        self._paused[tp] = followed
        followed.asked = None
        self._left.add(tp)
        return False

    def _flush_first(self, partitions: list[HostedPartition]) -> None:
        """Flush, then continue, also with partitions that were truncated or failed meanwhile."""

        def settled() -> None:
            self._flushing -= 1
            # In a turn of its own: a flush that fails at once must not become a deep stack.
            self._schedule(0)

        self._flushing = len(partitions)
        for partition in partitions:
            try:
                partition.flush(settled)
            except Exception as error:  # noqa: BLE001 - whatever it is, the loop goes on
                settled()
                unexpected.report(f"{partition.topic_partition} not flushed", error)

    def _longest_wait(self, now_ms: int) -> int:
        """The longest wait of a fetch: it ends when the next paused partition is due."""
        if not self._paused:
            wait_max_ms = self._settings.wait_max_ms
            return min(wait_max_ms, UNTOLD_WAIT_MS) if self._session.is_new else wait_max_ms
        pauses = [f.resume_ms - now_ms for f in self._paused.values()]
        return min(pauses)

    def _on_reply(self, reply: FetchResponse | TransportError) -> None:
        self._in_flight = self._long_poll_ended = False
        if self._closed:
            return
        if isinstance(reply, TransportError):
            self._session.lost()
            self._ports.doubts.lost(BrokerId(self.endpoint.broker_id))
        else:
            self._losses = 0
            self._ports.doubts.heard(BrokerId(self.endpoint.broker_id))
            self._session.took(reply)
            if reply.error_code in _SESSION_CODES:
                # The leader has ended the session: the next fetch names all partitions.
                self._schedule(0)
                return
        if isinstance(reply, TransportError):
            level = logging.DEBUG if self._losses else logging.INFO
            log.log(level, "fetch from broker %d failed: %s", self.endpoint.broker_id, reply.reason)
            pause_ms = LOST_RETRY_MS << min(self._losses, 10)
            self._losses += 1
            self._schedule(min(pause_ms, self._settings.backoff_ms))
            return
        if reply.error_code:
            log.info("fetch from broker %d failed: %s", self.endpoint.broker_id, reply.error_code)
            self._schedule(self._settings.backoff_ms)
            return
        self.heard_ms = self._ports.clock.monotonic_ms()
        self._answer = TakenAnswer(reply.partitions)
        self._process_responses()

    def _process_responses(self) -> None:
        """Append as much of the answer as one turn may, and the rest in the next turns, so that
        other work (answers on other channels, producers) does not wait for all of it."""
        answer = self._answer
        if answer is None:
            return
        is_over = True
        try:
            is_over = self._process_partitions(answer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the loop goes on
            # The rest of the answer is fetched again: the leader counts its high watermarks as
            # received.
            self._session.lost()
            unexpected.report(f"answer of broker {self.endpoint.broker_id}", error)
        finally:
            if is_over:
                self._answer = None
                self._run()
            else:
                self._ports.scheduler.call_soon(self._process_responses)

    def _process_partitions(self, answer: TakenAnswer) -> bool:
        """Apply a part of the answer; True when it was the rest."""
        turn = FollowerTurn(self._settings.max_bytes)
        is_over = True
        while answer.left:
            each = answer.left.popleft()
            tp = TopicPartition(each.topic, each.partition)
            # Each once, and none that was added anew since the request, under another epoch or as
            # another topic of that name.
            followed = self._followed.get(tp)
            if followed is not None and followed.asked is not None and tp not in answer.taken:
                answer.taken.add(tp)
                self._due[tp] = followed
                try:
                    rest = self._append(followed, each, turn)
                    if rest is not None:
                        answer.put_back(tp, rest)
                except Exception as error:  # noqa: BLE001 - whatever it is, the others are taken
                    backoff_ms = self._settings.backoff_ms
                    followed.resume_ms = self._ports.clock.monotonic_ms() + backoff_ms
                    unexpected.report(f"{tp} not replicated", error)
            if turn.is_over:
                is_over = False
                break
        for partition in turn.watched:
            # Consumers that read here wait for the high watermark.
            partition.data_waiters.wake()
        if turn.shortened and not self._ports.keep_log_starts(turn.shortened):
            self._unkept += turn.shortened
        # Partitions with data go to the end, so that a full response serves the others first next.
        for followed in turn.brought:
            tp = followed.topic_partition
            if self._followed.get(tp) is followed:
                self._followed[tp] = self._followed.pop(tp)
        if turn.leaving:
            self._hand_over(turn.leaving)
        return is_over

    def _append(
        self, followed: Followed, each: FetchPartitionResponse, turn: FollowerTurn
    ) -> FetchPartitionResponse | None:
        """Apply a partition's answer, and return the part of it for which this turn has no room."""
        partition = followed.partition
        turn.room -= 1
        if partition.role is not Role.FOLLOWER:
            return None
        start_offset = partition.log.log_start_offset
        if len(partition.data_waiters):
            turn.watched.append(partition)
        each, rest, batches = split(each, turn.room_batches)
        turn.room_batches -= batches
        size = self._answers.take(followed, each)
        partition.note_change()
        turn.room_bytes -= size
        if partition.log.log_start_offset > start_offset:
            turn.shortened.append(partition)
        if size and rest is not None:
            return rest
        if followed.channel != self.channel:
            turn.leaving.append(followed)
        elif size:
            turn.brought.append(followed)
        return None

    def _hand_over(self, leaving: list[Followed]) -> None:
        gone = [f for f in leaving if self._followed.get(f.topic_partition) is f]
        for followed in gone:
            self._drop(followed.topic_partition)
        if gone:
            self._on_leaving(self, gone)
