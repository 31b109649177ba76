"""Sends record batches to the leaders of their partitions.

    append -> PartitionQueue per partition -> one request per leader with the batches at hand -> up
    to 5 requests in flight per leader -> delivered | retried in order | final error

Each batch is acknowledged once, or the writer fails with one error and sends nothing more. Outside
of transactions a batch with a callback fails alone, and later batches go on. With idempotence (the
default with acks=-1) a retry never writes twice: it has the same producer id, sequence numbers and
bytes. Source: R-CLI1, R-CLI7; KIP-98, KIP-360. It is not thread-safe.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from storage_engine.client.closing import Closing
from storage_engine.client.cluster import Cluster
from storage_engine.client.in_flight import InFlight, LeaderRequests
from storage_engine.client.producer.leader_lookup import LeaderLookup
from storage_engine.client.producer.produce_queue import (
    NEWEST_OF_ENLISTED,
    OnDone,
    OpenTransaction,
    PartitionDelivery,
    PartitionQueue,
    PendingBatch,
    ProducerIdentity,
)
from storage_engine.client.producer.produce_verdict import Verdict, final_error, verdict_on
from storage_engine.client.producer.producer_errors import TriesExhaustedError
from storage_engine.client.producer.producer_requests import new_producer
from storage_engine.core.errors import (
    ConfigError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.blocking import Readable, wait_readable
from storage_engine.net.deadline import monotonic_ms, sleep_ms
from storage_engine.protocol.apis.current_leaders import LeaderNode
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
)

if TYPE_CHECKING:
    from storage_engine.protocol.records.record_encoder import EncodedBatch

MAX_REQUEST_BYTES = 1 << 20
"""Batches of different partitions share a request up to this; a single larger batch goes alone."""

BUFFER_BYTES = 32 << 20
"""`buffer.memory`: appended and not acknowledged; beyond it `append` waits."""

DELIVERY_TIMEOUT_MS = 120_000
"""`delivery.timeout.ms`: from append to acknowledgement, with all retries."""

WORK_BYTES = 64 << 10
"""`append` sends and receives once for this many bytes, so that small batches are sent together."""

WORK_MS = 5
"""It also does so after this many milliseconds, if it is called at all."""

_ANSWER_GRACE_MS = 2_000
"""The leader gives up waiting for replicas after the request timeout; its answer gets some time to
arrive."""

_LONGEST_WAIT_MS = 100
"""Timers (retries, expiry) are looked at this often."""

Request = InFlight[PendingBatch]


class BatchWriter(Closing):
    """Appends encoded batches to partitions, several leaders at a time."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        transaction: OpenTransaction | None = None,
        max_in_flight: int = 5,
        idempotent: bool | None = None,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
        retries: int | None = None,
        request_timeout_ms: int | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
        on_delivered: Callable[[TopicPartition, int, int], None] | None = None,
    ) -> None:
        """`transaction`: all batches are part of it; it needs acks=-1. `on_delivered` gets
        (partition, base offset, record count) of each acknowledged batch. `retries`: how often a
        batch is sent again at most, None for as often as the delivery timeout allows.
        """
        if acks not in (-1, 0, 1):
            raise ConfigError(f"acks is {acks}; it must be -1 (all), 0 or 1")
        if idempotent and acks != -1:
            raise ConfigError(f"idempotence needs acks=-1 (all), not {acks}")
        if transaction is not None and (acks != -1 or idempotent is False):
            raise ConfigError("a transaction needs acks=-1 (all) and idempotence")
        self._cluster = cluster
        self._acks = acks
        self._max_in_flight = max_in_flight
        self._idempotent = acks == -1 if idempotent is None else idempotent
        self._delivery_timeout_ms = delivery_timeout_ms
        self._retries = retries
        self._request_timeout_ms = request_timeout_ms or cluster.request_timeout_ms
        self._max_request_bytes = max_request_bytes
        self._buffer_bytes = buffer_bytes
        self._on_delivered = on_delivered
        self._transaction = transaction
        self._producer: ProducerIdentity | None = None
        if transaction is not None:
            self._producer = ProducerIdentity(transaction.producer_id, transaction.epoch, True)
        # Partitions that the coordinator has not heard of.
        self._unenlisted: list[TopicPartition] = []
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        # Partitions with batches that wait or are set aside, in the order of their turn.
        self._turns: dict[TopicPartition, PartitionQueue] = {}
        self._leaders: dict[int, LeaderRequests[PendingBatch]] = {}
        self._buffered_bytes = 0
        self._unworked_bytes = 0
        self._worked_at_ms = 0
        self._failure: HeadraceError | None = None
        self._lookup = LeaderLookup(cluster)
        self._closed = False
        self.deliveries: dict[TopicPartition, PartitionDelivery] = {}

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Announces batches for these partitions: a transaction enlists all of them in one
        request."""
        self._check()
        for tp in partitions:
            if tp not in self._queues:
                self._open_queue(tp)

    def append(
        self,
        tp: TopicPartition,
        batch: "EncodedBatch",
        *,
        done: OnDone | None = None,
        expires_at_ms: int | None = None,
    ) -> None:
        """Take over `batch`, whose bytes are stamped and belong to the writer until they are
        delivered. Waits while too much is buffered. Raises the error that the writer has failed
        with, if it has. `done` gets the outcome of the batch, unless the writer fails; its final
        error is then its own. `expires_at_ms` (monotonic) stands for the delivery timeout."""
        self._check()
        queue = self._queues.get(tp) or self._open_queue(tp)
        if expires_at_ms is None:
            expires_at_ms = monotonic_ms() + self._delivery_timeout_ms
        queue.append(batch.data, batch.record_count, expires_at_ms, done)
        self._buffered_bytes += len(batch.data)
        self._unworked_bytes += len(batch.data)
        self._turns.setdefault(tp, queue)
        if self._unworked_bytes >= WORK_BYTES or monotonic_ms() - self._worked_at_ms >= WORK_MS:
            self._work(0)
        while self._buffered_bytes > self._buffer_bytes and self._failure is None:
            self._work(_LONGEST_WAIT_MS)
        self._check()

    def poll(self, wait_ms: int = 0) -> None:
        """Send what waits and take what is answered, for a caller who appends seldom."""
        self._check()
        self._work(wait_ms)
        self._check()

    def due_in_ms(self, now_ms: int) -> int | None:
        """The time until `poll` should be called again even if no answer has come; None when
        nothing waits and nothing is in flight."""
        return None if self.idle else min(_LONGEST_WAIT_MS, self._next_timer_ms(now_ms))

    def sockets(self) -> list[Readable]:
        """The connections on which answers may come."""
        return [leader.connection for leader in self._leaders.values() if leader.sent]

    @property
    def idle(self) -> bool:
        """Whether no batch waits and none is in flight."""
        return all(queue.idle for queue in self._queues.values())

    def waiting(self, tp: TopicPartition) -> bool:
        """Whether a batch for `tp` waits to be sent."""
        queue = self._queues.get(tp)
        return queue is not None and bool(queue.waiting)

    def flush(self) -> None:
        """Return when all is acknowledged; raise the first final error."""
        while self._failure is None and not self.idle:
            self._work(_LONGEST_WAIT_MS)
        self._check()

    def close(self) -> None:
        """Flush, and give the connections back."""
        if self._closed:
            return
        try:
            if self._failure is None:
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Drop what is not acknowledged; it may or may not arrive."""
        self._closed = True
        while self._leaders:
            self._cluster.give_back(self._leaders.popitem()[1].connection)
        self._turns.clear()

    def _close_after_error(self) -> None:
        self.abandon()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise HeadraceError("the writer is closed")

    def _open_queue(self, tp: TopicPartition) -> PartitionQueue:
        if not self._cluster.has(tp):
            self._cluster.leader(tp)
        if self._idempotent and self._producer is None:
            self._producer = new_producer(self._cluster)
        if self._transaction is not None:
            self._unenlisted.append(tp)
        queue = self._queues[tp] = PartitionQueue(tp, self._producer)
        self.deliveries[tp] = PartitionDelivery()
        return queue

    # One round of work: answers in, timers, requests out.

    def _work(self, wait_ms: int) -> None:
        self._worked_at_ms = monotonic_ms()
        self._unworked_bytes = 0
        try:
            self._send_all()
            self._collect(wait_ms)
            self._expire()
            self._send_all()
        except HeadraceError as error:
            self._fail(error)

    def _fail(self, error: HeadraceError) -> None:
        """The first final error ends everything: what is in flight is abandoned."""
        if self._failure is None:
            self._failure = error
        while self._leaders:
            self._leaders.popitem()[1].connection.close()
        self._turns.clear()
        self._buffered_bytes = 0

    def _send_all(self) -> None:
        if self._unenlisted and self._transaction is not None:
            self._transaction.enlist(self._unenlisted)
            self._unenlisted = []
        if self._lookup.wanted:
            for topic in self._lookup.refresh_if_due(self._turns.values()):
                self._give_up_topic(topic)
        while self._turns and self._send_round():
            pass

    def _send_round(self) -> bool:
        """Sends one request to each leader that can take one. Returns False when there was none to
        send."""
        now_ms = monotonic_ms()
        chosen: dict[int, dict[TopicPartition, PendingBatch]] = {}
        sizes: dict[int, int] = {}
        for tp, queue in list(self._turns.items()):
            if not queue.waiting:
                if not queue.recovering:
                    del self._turns[tp]
                continue
            broker_id = self._destination(queue, now_ms)
            if broker_id is None:
                continue
            size = len(queue.waiting[0].data)
            if broker_id not in chosen:
                if not self._has_room(broker_id):
                    continue
                chosen[broker_id], sizes[broker_id] = {}, 0
            elif sizes[broker_id] + size > self._max_request_bytes:
                continue
            chosen[broker_id][tp] = queue.start_first(broker_id)
            sizes[broker_id] += size
            # Its next turn comes after all others'.
            self._turns[tp] = self._turns.pop(tp)
        for broker_id, batches in chosen.items():
            self._send(broker_id, batches)
        return bool(chosen)

    def _destination(self, queue: PartitionQueue, now_ms: int) -> int | None:
        """The leader, when the partition's next batch may be sent to it now."""
        if not queue.may_send(now_ms, one_at_a_time=not self._idempotent and self._acks != 0):
            return None
        leader = self._cluster.known_leader(queue.tp)
        if leader is None:
            self._lookup.doubt(queue.tp.topic)
            return None
        if queue.in_flight and queue.broker_id != leader.broker_id:
            return None
        if queue.renew_producer and not queue.waiting[0].perhaps_appended:
            queue.use_producer(new_producer(self._cluster))
        return leader.broker_id

    def _has_room(self, broker_id: int) -> bool:
        leader = self._leaders.get(broker_id)
        return leader is None or len(leader.sent) < self._max_in_flight

    def _send(self, broker_id: int, batches: dict[TopicPartition, PendingBatch]) -> None:
        request = InFlight(batches, self._request_timeout_ms + _ANSWER_GRACE_MS)
        leader = self._leaders.get(broker_id)
        try:
            if leader is None:
                connection = self._cluster.take(broker_id, request.deadline)
                leader = self._leaders[broker_id] = LeaderRequests(broker_id, connection)
            leader.sent.append(request)
            version = leader.connection.version_for(PRODUCE)
            name = None if self._transaction is None else self._transaction.transactional_id
            if name is not None:
                version = min(version, NEWEST_OF_ENLISTED)
            message = ProduceRequest(
                name,
                self._acks,
                self._request_timeout_ms,
                [ProducePartition(*tp, batch.data) for tp, batch in batches.items()],
            )
            leader.connection.send(
                PRODUCE, message, request.deadline, version=version, answered=self._acks != 0
            )
        except (KafkaError, DeadlineExceededError) as error:
            if isinstance(error, KafkaError) and not error.retriable:
                raise
            if leader is None:
                self._set_aside(request, str(error), perhaps_appended=False)
            else:
                self._drop(leader, str(error))
            return
        if self._acks == 0:
            leader.sent.pop()
            for tp, batch in batches.items():
                self._delivered(tp, batch, -1)

    def _collect(self, wait_ms: int) -> None:
        """Processes the answers that have arrived; waits up to `wait_ms` for the first."""
        busy = {each.connection: each for each in self._leaders.values() if each.sent}
        wait_ms = min(wait_ms, self._next_timer_ms(monotonic_ms()))
        if busy:
            for connection in wait_readable(busy, wait_ms):
                self._receive(busy[connection])
        elif self._turns:
            sleep_ms(wait_ms)
        for leader in list(self._leaders.values()):
            if (problem := leader.problem(self._cluster)) is not None:
                self._drop(leader, problem)

    def _next_timer_ms(self, now_ms: int) -> int:
        """The time until the first retry or metadata request is due."""
        timers = [queue.retry_at_ms for queue in self._turns.values()]
        if self._lookup.wanted:
            timers.append(self._lookup.due_at_ms)
        return min([at_ms - now_ms for at_ms in timers if at_ms > now_ms], default=_LONGEST_WAIT_MS)

    def _receive(self, leader: LeaderRequests[PendingBatch]) -> None:
        while leader.sent:
            try:
                response = leader.connection.receive_nowait()
            except (KafkaError, DeadlineExceededError) as error:
                self._drop(leader, str(error))
                return
            if response is None:
                return
            self._answered(leader.sent.popleft(), response)

    def _drop(self, leader: LeaderRequests[PendingBatch], reason: str) -> None:
        """The connection is lost, and with it the knowledge of what the leader has."""
        leader.connection.close()
        self._leaders.pop(leader.broker_id, None)
        for request in leader.sent:
            self._set_aside(request, reason, perhaps_appended=True)
        leader.sent.clear()

    def _set_aside(self, request: Request, reason: str, *, perhaps_appended: bool) -> None:
        for tp, batch in request.parts.items():
            self._retry(tp, batch, reason, perhaps_appended=perhaps_appended)

    def _retry(
        self,
        tp: TopicPartition,
        batch: PendingBatch,
        reason: str,
        *,
        perhaps_appended: bool,
        counts: bool = True,
        leader_is_known: bool = False,
    ) -> None:
        """`counts` False: it has failed only because one before it had."""
        queue = self._queues[tp]
        batch.tries += counts
        if counts and self._retries is not None and batch.tries > self._retries:
            message = f"{tp}: not delivered in {batch.tries} tries (retries={self._retries}): "
            self._give_up(queue, batch, TriesExhaustedError(message + reason))
            return
        self._cluster.figures.send_retries += 1
        queue.failed(
            batch, reason, perhaps_appended=perhaps_appended, leader_is_known=leader_is_known
        )
        self._turns.setdefault(tp, queue)
        if not leader_is_known:
            self._lookup.doubt(tp.topic)

    # Answers.

    def _answered(self, request: Request, response: ProduceResponse) -> None:
        self._cluster.figures.send_ns.observe(time.perf_counter_ns() - request.begun_ns)
        for answer in response.partitions:
            tp = TopicPartition(answer.topic, answer.partition)
            batch = request.parts.pop(tp, None)
            if batch is not None:
                self._settle(tp, batch, answer, response.nodes)
        self._set_aside(request, "the leader's answer left it out", perhaps_appended=True)

    def _settle(
        self,
        tp: TopicPartition,
        batch: PendingBatch,
        answer: ProducePartitionResponse,
        nodes: Sequence[LeaderNode],
    ) -> None:
        code = ErrorCode.of(answer.error_code)
        queue = self._queues[tp]
        verdict = verdict_on(
            code,
            idempotent=self._idempotent,
            earlier_failed=queue.recovering,
            perhaps_appended=batch.perhaps_appended,
            overtaken=queue.overtaken(batch),
        )
        if verdict is Verdict.DELIVERED:
            self._delivered(tp, batch, answer.base_offset)
            return
        if verdict is Verdict.RENEW and self._transaction is not None:
            # Another producer would not be part of the transaction.
            verdict = Verdict.FINAL
        if verdict is Verdict.FINAL:
            error = final_error(tp, len(batch.data), code, answer)
            self._give_up(queue, batch, error)
            return
        reason = f"{code.name}: {answer.error_message or code.meaning}"
        self._retry(
            tp,
            batch,
            reason,
            perhaps_appended=verdict is Verdict.RETRY_UNSURE,
            counts=code.retriable,
            leader_is_known=self._cluster.told_leader(tp, answer.current_leader, nodes),
        )
        queue.renew_producer |= verdict is Verdict.RENEW

    def _give_up(self, queue: PartitionQueue, batch: PendingBatch, error: HeadraceError) -> None:
        self._cluster.figures.batches_failed += 1
        if batch.done is None or self._transaction is not None:
            raise error
        queue.given_up(batch)
        self._buffered_bytes -= len(batch.data)
        batch.done(-1, error)

    def _give_up_topic(self, topic: str) -> None:
        error = self._cluster.unknown(TopicPartition(topic, 0))
        for queue in self._turns.values():
            while queue.tp.topic == topic and queue.waiting:
                self._give_up(queue, queue.waiting[0], error)

    def _delivered(self, tp: TopicPartition, batch: PendingBatch, base_offset: int) -> None:
        self._queues[tp].delivered(batch)
        self._buffered_bytes -= len(batch.data)
        self.deliveries[tp].add(base_offset, batch.record_count)
        self._cluster.figures.delivered(batch.record_count, len(batch.data))
        if self._on_delivered is not None:
            self._on_delivered(tp, base_offset, batch.record_count)
        if batch.done is not None:
            batch.done(base_offset, None)

    # Timers.

    def _expire(self) -> None:
        """Fail when a batch waits beyond its delivery timeout."""
        now_ms = monotonic_ms()
        for tp, queue in self._turns.items():
            while (batch := queue.first_expired(now_ms)) is not None:
                reason = self._lookup.last_error or queue.last_error or "it has no leader"
                message = f"{tp}: not delivered within {self._delivery_timeout_ms} ms: {reason}"
                self._give_up(queue, batch, DeadlineExceededError(message))
