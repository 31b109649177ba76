"""Followers: a fetch loop per leading broker, for the partitions that it leads and we follow.

Rule: a follower appends what its leader sends, at the leader's offsets, and cuts its log only where
leader epochs say that the two diverge. Since a fetch acknowledges all below its offset, one of a
partition with `flush.before.ack` waits until that is flushed; these partitions have a loop of their
own, so that no other waits for the disk. Source: R-REP2, R-REP8, R-CTL3, R-LOG4; KIP-595 for the
divergence in the answer, KIP-227 for sessions.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from storage_engine.broker.hosted_partition import HostedPartition, Role
from storage_engine.broker.replication_throttle import ReplicationThrottle
from storage_engine.core.errors import (
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    LogFullError,
    LogStorageError,
)
from storage_engine.core.follower import truncation_offset
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import (
    Clock,
    Endpoint,
    Scheduler,
    Timer,
    Transport,
    TransportError,
)
from storage_engine.protocol.apis.fetch import (
    API as FETCH,
)
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.fetch_session import NO_SESSION_EPOCH, ClientFetchSession

log = logging.getLogger(__name__)

FETCH_VERSION = 12
"""The first that carries the last fetched epoch and answers with a divergence."""

CHANNEL = "fetch"
DURABLE_CHANNEL = "durable fetch"
"""Of the partitions that are flushed before a fetch acknowledges them."""

Flush = Callable[[HostedPartition, Callable[[], None]], None]
"""Flushes a partition's log; the callback comes when that is over, well or not."""

EPOCH_RETRY_MS = 50
"""First pause where leader and follower have not heard of the same election yet: a matter of
moments. It doubles up to replica.fetch.backoff.ms: a leader that is to lead a thousand partitions
more gets there sooner when it isn't asked for all of them all the time."""

REQUEST_SLACK_MS = 30_000
"""On top of the longest wait at the leader, before a fetch counts as lost
(replica.socket.timeout.ms)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """Kafka's `replica.fetch.*`."""

    broker_id: int
    max_bytes: int
    response_max_bytes: int
    min_bytes: int
    wait_max_ms: int
    backoff_ms: int


_ELECTION_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

_SESSION_CODES = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
)


class _Followed:
    """A partition that is being followed."""

    __slots__ = ("is_caught_up", "is_full", "partition", "refusals", "resume_ms", "was_damaged")

    def __init__(self, partition: HostedPartition) -> None:
        self.partition = partition
        self.is_caught_up = False
        """It held all committed records when it was last answered."""
        self.is_full = False
        """There was no room for the last records."""
        self.was_damaged = False
        """The last records were bad: the leader is told with the next fetch."""
        self.refusals = 0
        """How often in a row the leader has answered that it does not lead, or not under this
        epoch."""
        self.resume_ms = 0
        """Not fetched before this time: the leader answered with an error."""


class PeerFetcher:
    """The fetch loop towards one leader: one request under way."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: FetcherSettings,
        *,
        transport: Transport,
        scheduler: Scheduler,
        clock: Clock,
        broker_epoch: Callable[[], int],
        flush: Flush,
        on_failure: Callable[[HostedPartition, Exception], None],
        keep_log_starts: Callable[[list[HostedPartition]], None],
        throttle: ReplicationThrottle,
        channel: str = CHANNEL,
    ) -> None:
        self._throttle = throttle
        self.endpoint = endpoint
        self._channel = channel
        self._settings = settings
        self._transport = transport
        self._scheduler = scheduler
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._flush = flush
        self._on_failure = on_failure
        self._keep_log_starts = keep_log_starts
        self._followed: dict[TopicPartition, _Followed] = {}
        self._joining: dict[TopicPartition, _Followed] = {}
        """To be followed from the next `wake` on."""
        self._is_hurried = False
        """The leader was told not to let the fetch under way wait any longer."""
        self._session = ClientFetchSession()
        self.heard_ms: int | None = None
        """When the leader answered last."""
        self._in_flight = False
        self._flushing = 0
        """Partitions whose flush the next fetch waits for."""
        self._timer: Timer | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._followed) + len(self._joining)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._followed or tp in self._joining

    def add(self, partition: HostedPartition) -> None:
        """Follow one more, from the next `wake` on."""
        tp = partition.topic_partition
        self._followed.pop(tp, None)
        self._joining[tp] = _Followed(partition)
        # What the leader answers to a request under way will not count.
        self._session.name_again(*tp)

    def wake(self) -> None:
        """Fetch what was added, all together, and not only when a long poll for others is over."""
        if not self._joining:
            return
        self._followed.update(self._joining)
        self._joining.clear()
        if self._in_flight:
            self._end_long_poll()
        else:
            self._schedule(0)

    def _end_long_poll(self) -> None:
        if self._is_hurried:
            return
        self._is_hurried = True
        hurry = FetchRequest(
            replica_id=self._settings.broker_id,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=0,
            partitions=[],
            session_epoch=NO_SESSION_EPOCH,
        )
        self._transport.request(
            self.endpoint,
            self._channel,
            FETCH,
            FETCH_VERSION,
            hurry,
            timeout_ms=self._settings.wait_max_ms + REQUEST_SLACK_MS,
            on_reply=lambda _reply: None,
        )

    def remove(self, tp: TopicPartition) -> None:
        self._followed.pop(tp, None)
        self._joining.pop(tp, None)

    def close(self) -> None:
        """Stop; what is under way is ignored when it comes."""
        self._closed = True
        self._followed.clear()
        self._joining.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._transport.disconnect(self.endpoint, self._channel)

    def _schedule(self, delay_ms: int) -> None:
        if self._in_flight or self._flushing or self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.call_later(delay_ms, self._run)

    def _run(self) -> None:
        self._timer = None
        if self._in_flight or self._flushing or self._closed or not self._followed:
            return
        now_ms = self._clock.monotonic_ms()
        ready = [f for f in self._followed.values() if self._is_ready(f, now_ms)]
        if not ready:
            self._schedule(max(1, min(f.resume_ms for f in self._followed.values()) - now_ms))
            return
        unflushed = [f.partition for f in ready if f.partition.must_flush]
        if unflushed:
            self._flush_first(unflushed)
            return
        self._in_flight = True
        settings = self._settings
        asked = {f.partition.topic_partition: f for f in ready}
        part = self._session.next([self._wanted(f) for f in ready])
        request = FetchRequest(
            replica_id=settings.broker_id,
            replica_epoch=self._broker_epoch(),
            max_wait_ms=min(settings.wait_max_ms, self._soonest_resume(now_ms)),
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            partitions=part.partitions,
            session_id=part.session_id,
            session_epoch=part.session_epoch,
            forgotten=part.forgotten,
        )
        self._transport.request(
            self.endpoint,
            self._channel,
            FETCH,
            FETCH_VERSION,
            request,
            timeout_ms=settings.wait_max_ms + REQUEST_SLACK_MS,
            on_reply=lambda reply: self._on_reply(reply, asked),
        )

    def _is_ready(self, followed: _Followed, now_ms: int) -> bool:
        if followed.resume_ms <= now_ms:
            pause_ms = self._throttle.pause_ms(followed.partition, in_sync=followed.is_caught_up)
            if pause_ms:
                followed.resume_ms = now_ms + pause_ms
        return followed.resume_ms <= now_ms

    def _flush_first(self, partitions: list[HostedPartition]) -> None:
        """Then go on: with what was cut or failed meanwhile, too."""

        def settled() -> None:
            self._flushing -= 1
            if not self._flushing:
                # In a turn of its own: a flush that fails at once must not become a deep stack.
                self._schedule(0)

        self._flushing = len(partitions)
        for partition in partitions:
            self._flush(partition, settled)

    def _soonest_resume(self, now_ms: int) -> int:
        """A partition that pauses is not kept waiting by a long poll for the others."""
        pauses = [f.resume_ms - now_ms for f in self._followed.values() if f.resume_ms > now_ms]
        return min(pauses, default=self._settings.wait_max_ms)

    def _wanted(self, followed: _Followed) -> FetchPartition:
        partition = followed.partition
        replica_log = partition.log
        return FetchPartition(
            topic=partition.topic_partition.topic,
            partition=partition.topic_partition.partition,
            fetch_offset=replica_log.log_end_offset,
            partition_max_bytes=self._settings.max_bytes,
            current_leader_epoch=partition.leader_epoch,
            last_fetched_epoch=replica_log.latest_epoch,
            log_start_offset=replica_log.log_start_offset,
            was_damaged=followed.was_damaged,
        )

    def _on_reply(
        self, reply: FetchResponse | TransportError, asked: dict[TopicPartition, _Followed]
    ) -> None:
        self._in_flight = self._is_hurried = False
        if self._closed:
            return
        if isinstance(reply, TransportError):
            self._session.lost()
        else:
            self._session.took(reply)
            if reply.error_code in _SESSION_CODES:
                # Ended by the leader: all is asked for anew.
                self._schedule(0)
                return
        if isinstance(reply, TransportError) or reply.error_code:
            reason = reply.reason if isinstance(reply, TransportError) else str(reply.error_code)
            log.info("fetch from broker %d failed: %s", self.endpoint.broker_id, reason)
            self._schedule(self._settings.backoff_ms)
            return
        self.heard_ms = self._clock.monotonic_ms()
        try:
            self._take_all(reply, asked)
        finally:
            # Whatever was wrong with one answer: the loop goes on.
            self._run()

    def _take_all(self, reply: FetchResponse, asked: dict[TopicPartition, _Followed]) -> None:
        moved: list[TopicPartition] = []
        shortened: list[HostedPartition] = []
        watched: list[TopicPartition] = []
        for answer in reply.partitions:
            tp = TopicPartition(answer.topic, answer.partition)
            followed = self._followed.get(tp)
            # The same object: neither added anew under another epoch, nor another topic of that
            # name.
            if followed is None or followed is not asked.get(tp):
                continue
            if followed.partition.role is not Role.FOLLOWER:
                continue
            start_offset = followed.partition.log.log_start_offset
            if len(followed.partition.data_waiters):
                watched.append(tp)
            if self._take(followed, answer):
                moved.append(tp)
            if followed.partition.log.log_start_offset > start_offset:
                shortened.append(followed.partition)
        for tp in watched:
            # Consumers that read here wait for the high watermark.
            if tp in self._followed:
                self._followed[tp].partition.data_waiters.wake()
        if shortened:
            # Before the next fetch reports it.
            self._keep_log_starts(shortened)
        # Who got data goes to the end, so that a full response serves the others first next time.
        for tp in moved:
            if tp in self._followed:
                self._followed[tp] = self._followed.pop(tp)

    def _take(self, followed: _Followed, answer: FetchPartitionResponse) -> bool:
        """Apply one partition's answer. True when it brought records."""
        partition = followed.partition
        try:
            if answer.error_code:
                self._on_error(followed, answer)
                return False
            if answer.diverging_epoch is not None:
                followed.refusals = 0
                self._truncate(partition, *answer.diverging_epoch)
                return False
            followed.refusals = 0
            got_records = bool(answer.records)
            if got_records:
                size = len(_as_view(answer.records))
                self._throttle.took(partition, size, in_sync=followed.is_caught_up)
                partition.log.append_as_follower(_as_view(answer.records))
                if followed.is_full:
                    followed.is_full = False
                    log.info("following %s again: there is room", partition.topic_partition)
                if followed.was_damaged:
                    followed.was_damaged = False
                    log.info("following %s again: undamaged", partition.topic_partition)
            partition.log.advance_log_start(
                min(answer.log_start_offset, partition.log.log_end_offset)
            )
            partition.follower_high_watermark = max(
                min(answer.high_watermark, partition.log.log_end_offset),
                partition.log.log_start_offset,
            )
            followed.is_caught_up = partition.log.log_end_offset >= answer.high_watermark
            partition.log.note_high_watermark(partition.follower_high_watermark)
            return got_records
        except LogFullError as failure:
            if not followed.is_full:
                log.warning("paused following %s: %s", partition.topic_partition, failure)
            followed.is_full = True
            self._pause(followed)
        except CorruptRecordError as failure:
            if not followed.was_damaged:
                log.error(
                    "refused bad records of %s from its leader, broker %d, at offset %d; it is told"
                    " and asked again: %s",
                    partition.topic_partition,
                    self.endpoint.broker_id,
                    partition.log.log_end_offset,
                    failure,
                )
            followed.was_damaged = True
            self._pause(followed)
        except LogStorageError as failure:
            self._on_failure(partition, failure)
        except KafkaError as failure:
            log.error("can't follow %s: %s", partition.topic_partition, failure)
            self._pause(followed)
        return False

    def _truncate(self, partition: HostedPartition, epoch: int, leader_end_offset: int) -> None:
        replica_log = partition.log
        offset = truncation_offset(
            replica_log.leader_epochs,
            log_end_offset=replica_log.log_end_offset,
            diverging_epoch=epoch,
            leader_end_offset=leader_end_offset,
        )
        log.info(
            "truncate partition=%s from=%d to=%d diverging_epoch=%d leader_end=%d",
            partition.topic_partition,
            replica_log.log_end_offset,
            offset,
            epoch,
            leader_end_offset,
        )
        if offset < partition.follower_high_watermark:
            log.warning(
                "truncate partition=%s below its high watermark %d",
                partition.topic_partition,
                partition.follower_high_watermark,
            )
            partition.follower_high_watermark = offset
        if offset < replica_log.log_start_offset:
            replica_log.truncate_fully_and_start_at(offset)
        else:
            replica_log.truncate_to(offset)

    def _on_error(self, followed: _Followed, answer: FetchPartitionResponse) -> None:
        partition = followed.partition
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset >= 0:
            replica_log = partition.log
            is_empty = replica_log.log_start_offset == replica_log.log_end_offset
            if is_empty or replica_log.log_end_offset < answer.log_start_offset:
                log.warning(
                    "restart partition=%s at the leader's log start %d; was %d",
                    partition.topic_partition,
                    answer.log_start_offset,
                    replica_log.log_end_offset,
                )
                replica_log.truncate_fully_and_start_at(answer.log_start_offset)
                partition.follower_high_watermark = answer.log_start_offset
                return
        log.log(
            logging.DEBUG if followed.refusals else logging.INFO,
            "fetch partition=%s from broker %d: %s",
            partition.topic_partition,
            self.endpoint.broker_id,
            code.name,
        )
        if code in _ELECTION_CODES:
            pause_ms = min(EPOCH_RETRY_MS << min(followed.refusals, 10), self._settings.backoff_ms)
            followed.refusals += 1
            self._pause(followed, pause_ms)
        else:
            self._pause(followed)

    def _pause(self, followed: _Followed, pause_ms: int | None = None) -> None:
        pause_ms = self._settings.backoff_ms if pause_ms is None else pause_ms
        followed.resume_ms = self._clock.monotonic_ms() + pause_ms


def _as_view(records: object) -> memoryview:
    return records if isinstance(records, memoryview) else memoryview(records)  # type: ignore[arg-type]


class FetcherManager:
    """All fetch loops; a partition is in at most one of them."""

    def __init__(
        self,
        settings: FetcherSettings,
        *,
        transport: Transport,
        scheduler: Scheduler,
        clock: Clock,
        broker_epoch: Callable[[], int],
        flush: Flush,
        on_failure: Callable[[HostedPartition, Exception], None],
        keep_log_starts: Callable[[list[HostedPartition]], None],
        throttle: ReplicationThrottle,
    ) -> None:
        self._throttle = throttle
        self._settings = settings
        self._transport = transport
        self._scheduler = scheduler
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._flush = flush
        self._on_failure = on_failure
        self._fetchers: dict[tuple[Endpoint, str], PeerFetcher] = {}
        """By leader and channel."""
        self._keep_log_starts = keep_log_starts

    def add(self, partition: HostedPartition, leader: Endpoint) -> None:
        """Follow `leader` for this partition, from the next `wake` on."""
        channel = DURABLE_CHANNEL if partition.config.flush_before_ack else CHANNEL
        key = leader, channel
        self.remove(partition.topic_partition, keep=key)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = PeerFetcher(
                leader,
                self._settings,
                transport=self._transport,
                scheduler=self._scheduler,
                clock=self._clock,
                broker_epoch=self._broker_epoch,
                flush=self._flush,
                on_failure=self._on_failure,
                channel=channel,
                keep_log_starts=self._keep_log_starts,
                throttle=self._throttle,
            )
        fetcher.add(partition)

    def wake(self) -> None:
        """Fetch what was added since the last call."""
        for fetcher in self._fetchers.values():
            fetcher.wake()

    def heard_ms(self, tp: TopicPartition) -> int | None:
        """When the leader of a followed partition answered last, in monotonic ms; None: not yet."""
        return next((f.heard_ms for f in self._fetchers.values() if tp in f), None)

    def remove(self, tp: TopicPartition, *, keep: tuple[Endpoint, str] | None = None) -> None:
        """Stop following; idle loops are closed (document 001, step 7)."""
        for key, fetcher in list(self._fetchers.items()):
            if tp in fetcher:
                fetcher.remove(tp)
                if not fetcher and key != keep:
                    fetcher.close()
                    del self._fetchers[key]

    def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
