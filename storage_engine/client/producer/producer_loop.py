"""The part of a producer that runs in the thread of its loop. Only it talks to brokers.

    callers -> Accumulator -> [loop] encode -> BatchWriter -> leaders
       ^                                          |
       +------------------ futures <--------------+

The loop's lock guards the shared state; it is not held while futures are settled. When the writer
fails as a whole, all its batches fail, and the next record starts a new writer. R-CLI1, R-CLI7.
"""

import functools
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from storage_engine.client.groups.group_requests import GroupMetadata
from storage_engine.client.loop import ClientLoop, LoopEndedError
from storage_engine.client.producer.accumulator import Accumulator
from storage_engine.client.producer.partition_choice import StickyPartition
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.client.producer.producer_batch import Headers, ProducerBatch
from storage_engine.client.producer.producer_config import ProducerConfig
from storage_engine.client.producer.producer_errors import (
    BufferFullError,
    ProducerClosedError,
    TransactionFailedError,
)
from storage_engine.client.producer.record_future import RecordFuture
from storage_engine.client.producer.tables.typed_topics import REQUEST_MS, TypedTopic, TypedTopics
from storage_engine.client.producer.topic_watch import TopicPartitions, TopicWatch
from storage_engine.client.producer.transactions import ProducerTransactions
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.blocking import Readable
from storage_engine.net.deadline import Deadline, monotonic_ms

_log = logging.getLogger(__name__)

_UNBOUNDED = 1 << 62
"""The writer's own limit of memory: `buffer.memory` counts before it."""

_END_MS = 500
"""A thread that is not held up by a broker ends within this time."""

_OF_PARENT = "the producer was made before a fork; make one in each process"

_CLOSED = "the producer was closed before this was acknowledged"


class ProducerLoop:
    """The state of a producer that its callers and its loop share."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._cluster = config.cluster(config.delivery_timeout_ms)
        self._writer: BatchWriter | None = None
        self._transactions: ProducerTransactions | None = None
        if config.transactional_id is not None:
            self._transactions = ProducerTransactions(
                self._cluster,
                config.transactional_id,
                timeout_ms=config.transaction_timeout_ms,
                deadline_ms=config.max_block_ms,
            )
        self._loop = ClientLoop(
            "headrace-producer", work=self, on_end=self._ended, on_fork=self._forked
        )
        # It guards all below; who waits is notified of free memory, topics and finished batches.
        self._lock = self._loop.lock
        self.changed = self._loop.changed
        self._accumulator = Accumulator(
            self.changed, batch_bytes=config.batch_size, linger_ms=config.linger_ms
        )
        self._topics = TopicWatch(unknown_wait_ms=self._cluster.unknown_topic_wait_ms)
        self._typed_topics = TypedTopics(
            config.cluster(min(REQUEST_MS, max(1, config.max_block_ms))),
            max_age_ms=config.metadata_max_age_ms,
        )
        # Batches that are taken or wait, in the order in which they were begun; the values are
        # unused.
        self._unfinished: dict[ProducerBatch, None] = {}
        self._sticky: dict[str, StickyPartition] = {}
        self._random = random.Random()
        self._used_bytes = 0
        self._first_error: HeadraceError | None = None
        # The first error of the transaction that is open.
        self._transaction_error: HeadraceError | None = None
        self._loop.start()

    # For callers, in any thread.

    def topic(self, name: str) -> TopicPartitions:
        """HeadraceError when it can't be had within `max.block.ms`."""
        known = self._topics.known(name)
        now_ms = monotonic_ms()
        if known is not None and now_ms - known.learnt_ms < self._config.metadata_max_age_ms:
            return known
        if known is None:
            _import_encoder()
        with self._lock, self.changed.waiting() as waiting:
            if self._topics.want(name, now_ms):
                self._loop.wake()
            if known is not None:
                return known
            deadline = Deadline.after(self._config.max_block_ms)
            while (known := self._topics.known(name)) is None:
                self._check_open()
                if (error := self._topics.failure(name)) is not None:
                    raise error
                if not waiting.wait(deadline):
                    last = self._topics.last_error(name)
                    raise DeadlineExceededError(
                        f"the brokers did not name the partitions of topic '{name}' within "
                        f"max.block.ms ({self._config.max_block_ms} ms)"
                        + (f": {last}" if last else "")
                    )
            return known

    def typed_topic(self, name: str, *, anew: bool = False) -> TypedTopic | None:
        """None for a topic without a schema. `anew`: ask brokers, even if it is known.
        HeadraceError when it can't be had within `max.block.ms`."""
        deadline = Deadline.after(self._config.max_block_ms)
        while anew or not self._typed_topics.is_known(name):
            try:
                if self._loop.is_current:
                    self._typed_topics.learn(name)
                else:
                    self._call("send_table", lambda: self._typed_topics.learn(name))
                anew = False
            except (KafkaError, DeadlineExceededError) as error:
                is_final = isinstance(error, KafkaError) and not error.retriable
                if is_final or deadline.passed:
                    raise
        return self._typed_topics.get(name)

    def ready(self, topic: str) -> bool:
        """Neither the partitions nor room for the largest record need waiting for."""
        room = self._config.buffer_memory - self._used_bytes
        return self._topics.known(topic) is not None and room >= self._config.max_request_size

    def add(
        self,
        topic: str,
        partition: int | None,
        available: Sequence[int],
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        size: int,
    ) -> RecordFuture:
        """Adds a record of at most `size` bytes to the open batch of its partition. For the
        partition None it chooses one of `available`, the same one for a batch's worth of records.
        """
        record = (key, value, headers, timestamp_ms)
        with self._lock:
            if partition is None:
                self._check_open()
                partition = self._sticky_partition(topic).next(size, available)
            tp = TopicPartition(topic, partition)
            while True:
                self._wait_for_room(size)
                batch, is_news = self._accumulator.room_for(tp, size, monotonic_ms())
                records = batch.records
                index = len(records)
                # From here to the end of the list without a call: a handler may have sent, flushed
                # or closed before, but not meanwhile.
                if batch.closed or batch.taken:
                    continue
                self._unfinished[batch] = None
                self._used_bytes += size
                batch.reserved += size
                batch.size += size
                records += (record,)
                break
            if self._accumulator.filled(batch) or is_news:
                self._loop.wake()
        if is_news:
            self._fail_if_ended()
        return batch.future_of(record, index)

    def add_encoded(self, batch: ProducerBatch) -> None:
        """Queues a batch that is encoded already."""
        size = batch.size
        with self._lock:
            while True:
                self._wait_for_room(size)
                queue = self._accumulator.queue_behind(batch.tp)
                # As in `add`.
                if queue.is_dropped:
                    continue
                self._unfinished[batch] = None
                self._used_bytes += size
                batch.reserved = size
                queue += (batch,)
                break
            self._loop.wake()
        self._fail_if_ended()

    def _fail_if_ended(self) -> None:
        """Fail what a call has added that a handler has interrupted to close the producer."""
        if self._loop.has_ended:
            self._fail(ProducerClosedError(_CLOSED), every=True)

    def _sticky_partition(self, topic: str) -> StickyPartition:
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = StickyPartition(self._config.batch_size, self._random)
            self._sticky[topic] = sticky
        return sticky

    def flush(self, timeout_ms: int | None = None) -> None:
        """Return when everything added before is done. Raises the first error since the last time,
        DeadlineExceededError after `timeout_ms`."""
        self._check_caller("flush")
        if self._loop.is_of_parent and self._unfinished:
            # Its parent has them too, and sends them.
            raise ProducerClosedError(_OF_PARENT)
        with self._lock, self.changed.waiting() as waiting:
            batches = list(self._unfinished)
            self._accumulator.flush()
            self._loop.wake()
            deadline = None if timeout_ms is None else Deadline.after(timeout_ms)
            for batch in batches:
                while not batch.finished:
                    if not waiting.wait(deadline):
                        raise DeadlineExceededError(
                            f"{len(self._unfinished)} batches are not acknowledged after "
                            f"{timeout_ms} ms"
                        )
            error, self._first_error = self._first_error, None
        if error is not None:
            raise error

    def close(self, timeout_ms: int | None) -> None:
        """Flush, and end; what is not done by then fails."""
        self._check_caller("close")
        if self._loop.is_stopping:
            return
        try:
            self.flush(timeout_ms)
        finally:
            self._loop.stop()
            self._loop.join(None if timeout_ms is None else _END_MS)
            if not self._loop.has_ended:
                # It waits for a broker, for as long as that may take: callers do not.
                self._fail(ProducerClosedError(_CLOSED), every=True)

    # Transactions: carried out by the thread, one after the other.

    def init_transactions(self) -> None:
        self._call("init_transactions", self._own_transactions.init)

    def begin_transaction(self) -> None:
        self._call("begin_transaction", self._begin)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        work = self._own_transactions.send_offsets
        try:
            self._call("send_offsets_to_transaction", lambda: work(offsets, group))
        except (KafkaError, DeadlineExceededError) as error:
            # A commit without them would have the input read again.
            with self._lock:
                self._transaction_error = self._transaction_error or error
            raise

    def commit_transaction(self) -> None:
        """TransactionFailedError where something of it has failed."""
        with self._lock:
            error = self._transaction_error
        if error is None:
            try:
                self.flush()
            except HeadraceError as failure:
                error = failure
        if error is not None:
            raise TransactionFailedError(f"abort the transaction: {error}") from error
        self._call("commit_transaction", self._commit)

    def abort_transaction(self) -> None:
        """Batches that are not acknowledged yet fail."""
        self._call("abort_transaction", self._abort)

    @property
    def _own_transactions(self) -> ProducerTransactions:
        assert self._transactions is not None, "the producer has a transactional.id"
        return self._transactions

    def _call(self, method: str, work: Callable[[], None]) -> None:
        self._check_caller(method)
        self._check_open()
        try:
            self._loop.call(work)
        except LoopEndedError:
            raise ProducerClosedError(_CLOSED) from None

    def _check_caller(self, method: str) -> None:
        if self._loop.is_current:
            raise HeadraceError(f"{method} can't be called in a callback: it would wait for itself")

    def _check_open(self) -> None:
        if self._loop.is_of_parent:
            raise ProducerClosedError(_OF_PARENT)
        if self._loop.is_stopping:
            raise ProducerClosedError("the producer is closed")

    def _wait_for_room(self, size: int) -> None:
        self._check_open()
        limit = self._config.buffer_memory
        if not self._used_bytes or self._used_bytes + size <= limit:
            # What is larger than all goes alone.
            return
        deadline = Deadline.after(self._config.max_block_ms)
        self._accumulator.flush()
        self._loop.wake()
        with self.changed.waiting() as waiting:
            while self._used_bytes and self._used_bytes + size > limit:
                if self._loop.is_current or not waiting.wait(deadline):
                    raise BufferFullError(
                        f"buffer.memory ({limit} bytes) was full for max.block.ms "
                        f"({self._config.max_block_ms} ms): send more slowly, or raise one of them"
                    )
                self._check_open()

    # The work of the loop, in its thread.

    def turn(self) -> None:
        """Send what is ready, and take what has come."""
        now_ms = monotonic_ms()
        with self._lock:
            batches = list(self._accumulator.take(now_ms, self._is_waiting))
            topics = self._topics.due(now_ms)
        if topics:
            error = self._topics.request(self._cluster, topics)
            with self._lock:
                self._topics.seen(self._cluster, topics, error, monotonic_ms())
                self.changed.notify_all()
        try:
            for batch in batches:
                self._append(batch)
            if self._writer is not None:
                self._writer.poll(0)
        except HeadraceError as failure:
            self._writer_failed(failure)

    def due_in_ms(self, now_ms: int) -> int | None:
        due_ms = [
            self._accumulator.due_in_ms(now_ms, self._is_waiting),
            self._topics.due_in_ms(now_ms),
            None if self._writer is None else self._writer.due_in_ms(now_ms),
        ]
        return min((due for due in due_ms if due is not None), default=None)

    def sockets(self) -> Iterable[Readable]:
        return () if self._writer is None else self._writer.sockets()

    def _ended(self, _is_broken: bool) -> None:
        with self._lock:
            self._accumulator.drop()
        self._fail(ProducerClosedError(_CLOSED), every=True)
        if self._writer is not None:
            self._writer.abandon()
        self._cluster.close()
        self._typed_topics.close()

    def _forked(self) -> None:
        """The parent sends what is unfinished, and only there its futures have an outcome."""
        for batch in list(self._unfinished):
            batch.outcome.abandon(ProducerClosedError(_OF_PARENT))

    def _begin(self) -> None:
        with self._lock:
            self._transaction_error = None
        self._own_transactions.begin()
        self._writer = self._new_writer()

    def _commit(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._own_transactions.end(commits=True)

    def _abort(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
        with self._lock:
            self._accumulator.drop()
        self._fail(TransactionFailedError("the transaction was aborted"), every=True)
        with self._lock:
            self._first_error = self._transaction_error = None
        self._own_transactions.end(commits=False)

    def _is_waiting(self, tp: TopicPartition) -> bool:
        return self._writer is not None and self._writer.waiting(tp)

    def _append(self, batch: ProducerBatch) -> None:
        if self._writer is None:
            if self._transactions is not None:
                self._finish(batch, -1, TransactionFailedError("abort the transaction"))
                return
            self._writer = self._new_writer()
        try:
            encoded = batch.encode(self._config.compression_type)
        except HeadraceError as error:
            self._finish(batch, -1, error)
            return
        try:
            self._writer.append(
                batch.tp,
                encoded,
                done=functools.partial(self._finish, batch),
                expires_at_ms=batch.begun_ms + self._config.delivery_timeout_ms,
            )
        except KafkaError as error:
            is_gone = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not is_gone or self._transactions is not None:
                raise
            # Records of other topics have nothing to do with that.
            self._finish(batch, -1, error)

    def _new_writer(self) -> BatchWriter:
        config = self._config
        return BatchWriter(
            self._cluster,
            transaction=self._transactions,
            acks=config.acks,
            idempotent=config.enable_idempotence,
            max_in_flight=config.max_in_flight_requests_per_connection,
            delivery_timeout_ms=config.delivery_timeout_ms,
            retries=config.retries,
            request_timeout_ms=config.request_timeout_ms,
            max_request_bytes=config.max_request_size,
            buffer_bytes=_UNBOUNDED,
        )

    # Batches that are done.

    def _finish(self, batch: ProducerBatch, base_offset: int, error: HeadraceError | None) -> None:
        with self._lock:
            if batch.settling:
                return
            batch.settling = True
            self._used_bytes -= batch.reserved
            batch.reserved = 0
        if isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_ID:
            # A topic that is made anew has another schema.
            self._typed_topics.forget(batch.tp.topic)
        try:
            batch.on_done(base_offset, error)
        except BaseException:  # noqa: BLE001 - a callback's, such as sys.exit(): others wait
            _log.exception("a callback of a batch for %s failed", batch.tp)
        with self._lock:
            batch.finished = True
            del self._unfinished[batch]
            if error is not None:
                self._first_error = self._first_error or error
                self._transaction_error = self._transaction_error or error
            self.changed.notify_all()

    def _writer_failed(self, error: HeadraceError) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
        self._fail(error)

    def _fail(self, error: HeadraceError, *, every: bool = False) -> None:
        """Fails all batches that are not in the accumulator, or `every` batch."""
        with self._lock:
            batches = [batch for batch in self._unfinished if batch.taken or every]
        for batch in batches:
            self._finish(batch, -1, error)


def _import_encoder() -> None:
    """Load what encodes batches, before there are any: the loop would wait for an import that a
    handler has interrupted, and the handler for the loop."""
    import storage_engine.protocol.records.record_encoder  # noqa: F401
