"""The thread of a producer: it alone talks to brokers.

    callers -> Accumulator -> [thread] encode -> BatchWriter -> leaders
       ^                                            |
       +------------------ futures <----------------+

Rule: one lock guards what both sides see, and is held for moments only: never while encoding,
sending, or telling a future. When the writer fails as a whole, everything that it had fails with
it, and the next record starts a new one. Source: R-CLI1, R-CLI7.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from storage_engine.client.broker_discovery import ZooKeeperBrokers
from storage_engine.client.cluster import Cluster
from storage_engine.client.consumer.group_requests import GroupMetadata
from storage_engine.client.producer.accumulator import Accumulator, RecordGroup
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.client.producer.producer_config import ProducerConfig
from storage_engine.client.producer.producer_errors import (
    BufferFullError,
    ProducerClosedError,
    TransactionFailedError,
)
from storage_engine.client.producer.record_future import next_future
from storage_engine.client.producer.record_groups import RecordMetadata, encode_group, tell
from storage_engine.client.producer.transactions import ProducerTransactions
from storage_engine.client.topic_watch import TopicPartitions, TopicWatch
from storage_engine.core.errors import DeadlineExceededError, HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.blocking import wait_readable
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.net.waker import Waker

_LONGEST_WAIT_MS = 100
"""Of the thread while something is under way."""

_IDLE_WAIT_MS = 60_000
"""And while nothing is: it is woken when there is."""

_UNBOUNDED = 1 << 62
"""The writer's own limit: `buffer.memory` counts before it."""


Group = RecordGroup[Any]


class Sender:
    """Everything that takes long happens here."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._cluster = _cluster_of(config)
        self._writer: BatchWriter | None = None
        self._transactions: ProducerTransactions | None = None
        if config.transactional_id is not None:
            self._transactions = ProducerTransactions(
                self._cluster,
                config.transactional_id,
                timeout_ms=config.transaction_timeout_ms,
                deadline_ms=config.max_block_ms,
            )
        self._waker = Waker()
        self._futures_lock = threading.RLock()
        # Guards all below, and tells of memory, topics and groups that are done.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._accumulator: Accumulator[Any] = Accumulator(
            batch_bytes=config.batch_size, linger_ms=config.linger_ms
        )
        self._topics = TopicWatch(unknown_wait_ms=self._cluster.unknown_topic_wait_ms)
        # Taken or waiting, in the order in which they were begun. The values are unused.
        self._unfinished: dict[Group, None] = {}
        self._used_bytes = 0
        self._first_error: HeadraceError | None = None
        # What failed in the transaction that is open.
        self._transaction_error: HeadraceError | None = None
        self._commands: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._sleeping = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="headrace-producer", daemon=True)
        self._thread.start()

    # What callers use, from any thread.

    def topic(self, name: str) -> TopicPartitions:
        """HeadraceError when it can't be had within `max.block.ms`."""
        known = self._topics.known(name)
        now_ms = monotonic_ms()
        if known is not None and now_ms - known.learnt_ms < self._config.metadata_max_age_ms:
            return known
        with self._changed:
            if self._topics.want(name, now_ms):
                self._wake()
            if known is not None:
                return known
            deadline = Deadline.after(self._config.max_block_ms)
            while (known := self._topics.known(name)) is None:
                self._check_open()
                if (error := self._topics.failure(name)) is not None:
                    raise error
                if not self._wait(deadline):
                    last = self._topics.last_error(name)
                    raise DeadlineExceededError(
                        f"the partitions of topic '{name}' were not known within max.block.ms "
                        f"({self._config.max_block_ms} ms)" + (f": {last}" if last else "")
                    )
            return known

    def ready(self, topic: str) -> bool:
        """Neither the partitions nor room for the largest record need waiting for."""
        room = self._config.buffer_memory - self._used_bytes
        return self._topics.known(topic) is not None and room >= self._config.max_request_size

    def add(
        self,
        tp: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        timestamp_ms: int,
        size: int,
    ) -> "Future[RecordMetadata]":
        """Put a record that takes `size` bytes at most into the open batch of its partition."""
        with self._lock:
            self._reserve(size)
            group, look = self._accumulator.room_for(tp, size, monotonic_ms())
            if not group.waiters:
                self._unfinished[group] = None
            group.keys.append(key)
            group.values.append(value)
            group.headers.append(headers)
            group.timestamps.append(timestamp_ms)
            future = next_future(group.waiters, self._futures_lock)
            group.waiters.append(future)
            group.size += size
            group.reserved += size
            if self._accumulator.filled(group) or look:
                self._wake()
        return future

    def add_encoded(self, group: Group) -> None:
        """A batch that is made already; its waiter is told of it by `group.waiters`."""
        with self._changed:
            self._reserve(group.size)
            group.reserved = group.size
            self._unfinished[group] = None
            self._accumulator.add_encoded(group)
            self._wake()

    def flush(self, timeout_ms: int | None = None) -> None:
        """Return when everything added before is done. Raises the first error since the last time,
        DeadlineExceededError after `timeout_ms`."""
        self._check_caller("flush")
        with self._changed:
            groups = list(self._unfinished)
            self._accumulator.flush()
            self._wake()
            deadline = None if timeout_ms is None else Deadline.after(timeout_ms)
            for group in groups:
                while not group.finished:
                    if not self._wait(deadline):
                        raise DeadlineExceededError(
                            f"{len(self._unfinished)} batches are not acknowledged after "
                            f"{timeout_ms} ms"
                        )
            error, self._first_error = self._first_error, None
        if error is not None:
            raise error

    def close(self, timeout_ms: int | None) -> None:
        """As `flush`, then the end; what is not done by then fails."""
        self._check_caller("close")
        with self._changed:
            if self._closing:
                return
        try:
            self.flush(timeout_ms)
        finally:
            with self._changed:
                self._closing = True
                self._wake()
                self._changed.notify_all()
            self._thread.join()

    # Transactions: carried out by the thread, one after the other.

    def init_transactions(self) -> None:
        self._call("init_transactions", self._own_transactions.init)

    def begin_transaction(self) -> None:
        self._call("begin_transaction", self._begin)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        work = self._own_transactions.send_offsets
        self._call("send_offsets_to_transaction", lambda: work(offsets, group))

    def commit_transaction(self) -> None:
        """TransactionFailedError where something of it has failed."""
        with self._changed:
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
        """What is not acknowledged fails."""
        self._call("abort_transaction", self._abort)

    @property
    def _own_transactions(self) -> ProducerTransactions:
        assert self._transactions is not None, "the producer has a transactional.id"
        return self._transactions

    def _call(self, method: str, work: Callable[[], None]) -> None:
        self._check_caller(method)
        future: Future[None] = Future()
        with self._changed:
            self._check_open()
            self._commands.append((work, future))
            self._wake()
        future.result()

    def _check_caller(self, method: str) -> None:
        if threading.current_thread() is self._thread:
            raise HeadraceError(f"{method} can't be called in a callback: it would wait for itself")

    def _check_open(self) -> None:
        if self._closing:
            raise ProducerClosedError("the producer is closed")

    def _reserve(self, size: int) -> None:
        self._check_open()
        if self._used_bytes + size > self._config.buffer_memory:
            self._wait_for_room(size)
        self._used_bytes += size

    def _wait_for_room(self, size: int) -> None:
        limit = self._config.buffer_memory
        if size > limit and not self._used_bytes:
            # It goes alone.
            return
        deadline = Deadline.after(self._config.max_block_ms)
        self._accumulator.flush()
        self._wake()
        while self._used_bytes and self._used_bytes + size > limit:
            inside = threading.current_thread() is self._thread
            if inside or not self._wait(deadline):
                raise BufferFullError(
                    f"buffer.memory ({limit} bytes) was full for max.block.ms "
                    f"({self._config.max_block_ms} ms): send more slowly, or raise one of them"
                )
            self._check_open()

    def _wait(self, deadline: Deadline | None) -> bool:
        """For a change; False when the time is over."""
        if deadline is None:
            self._changed.wait()
            return True
        if deadline.passed:
            return False
        self._changed.wait(deadline.left_ms / 1000)
        return True

    def _wake(self) -> None:
        if self._sleeping:
            self._sleeping = False
            self._waker.wake()

    # The thread.

    def _run(self) -> None:
        try:
            while self._round():
                pass
        finally:
            with self._changed:
                self._closing = True
                self._sleeping = False
                self._accumulator.drop()
                commands, self._commands = self._commands, deque()
            closed = ProducerClosedError("the producer was closed before this was acknowledged")
            for _, future in commands:
                future.set_exception(closed)
            self._fail(closed)
            if self._writer is not None:
                self._writer.abandon()
            self._cluster.close()
            self._waker.close()

    def _round(self) -> bool:
        """Send what is ready, take what has come, wait for more; False at the end."""
        self._waker.clear()
        now_ms = monotonic_ms()
        with self._changed:
            self._sleeping = False
            if self._closing:
                return False
        self._run_commands()
        with self._changed:
            groups = list(self._accumulator.take(now_ms, self._is_waiting))
            topics = self._topics.due(now_ms)
        if topics:
            error = self._topics.look(self._cluster, topics)
            with self._changed:
                self._topics.seen(self._cluster, topics, error, monotonic_ms())
                self._changed.notify_all()
        try:
            for group in groups:
                self._append(group)
            self._poll()
        except HeadraceError as failure:
            self._writer_failed(failure)
        return True

    def _run_commands(self) -> None:
        while True:
            with self._changed:
                if not self._commands:
                    return
                work, future = self._commands[0]
            try:
                work()
            except HeadraceError as error:
                failure: HeadraceError | None = error
            else:
                failure = None
            with self._changed:
                self._commands.popleft()
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)

    def _begin(self) -> None:
        with self._changed:
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
        with self._changed:
            self._accumulator.drop()
        self._fail(TransactionFailedError("the transaction was aborted"), every=True)
        with self._changed:
            self._first_error = self._transaction_error = None
        self._own_transactions.end(commits=False)

    def _is_waiting(self, tp: TopicPartition) -> bool:
        return self._writer is not None and self._writer.waiting(tp)

    def _append(self, group: Group) -> None:
        if self._writer is None:
            if self._transactions is not None:
                self._finish(group, -1, TransactionFailedError("abort the transaction"))
                return
            self._writer = self._new_writer()
        encoded = group.encoded
        if encoded is None:
            try:
                encoded = encode_group(group, self._config.compression_type)
            except HeadraceError as error:
                self._finish(group, -1, error)
                return
        self._writer.append(
            group.tp,
            encoded,
            done=lambda offset, error: self._finish(group, offset, error),
            expires_at_ms=group.begun_ms + self._config.delivery_timeout_ms,
        )

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
            waker=self._waker,
        )

    def _poll(self) -> None:
        """Wait for answers, records or timers."""
        writer = self._writer
        if writer is not None:
            writer.poll(0)
        busy = writer is not None and not writer.idle
        with self._changed:
            now_ms = monotonic_ms()
            due_ms = [
                self._accumulator.due_in_ms(now_ms, self._is_waiting),
                self._topics.due_in_ms(now_ms),
                _LONGEST_WAIT_MS if busy else _IDLE_WAIT_MS,
            ]
            wait_ms = min(due for due in due_ms if due is not None)
            if self._closing or self._commands:
                wait_ms = 0
            self._sleeping = wait_ms > 0
        if busy:
            assert writer is not None
            writer.poll(wait_ms)
        elif wait_ms:
            wait_readable([self._waker], wait_ms)

    # What became of groups.

    def _finish(self, group: Group, base_offset: int, error: HeadraceError | None) -> None:
        with self._changed:
            if group.finished:
                return
            self._used_bytes -= group.reserved
            group.reserved = 0
        tell(group, base_offset, error)
        with self._changed:
            group.finished = True
            del self._unfinished[group]
            if error is not None:
                self._first_error = self._first_error or error
                self._transaction_error = self._transaction_error or error
            self._changed.notify_all()

    def _writer_failed(self, error: HeadraceError) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
        self._fail(error)

    def _fail(self, error: HeadraceError, *, every: bool = False) -> None:
        """Everything that is not in the accumulator, or `every` batch."""
        with self._changed:
            every = every or self._closing
            groups = [group for group in self._unfinished if group.taken or every]
        for group in groups:
            self._finish(group, -1, error)


def _cluster_of(config: ProducerConfig) -> Cluster:
    where, source = config.bootstrap_servers, None
    if config.zookeeper_connect is not None:
        where = f"the cluster of ZooKeeper at {config.zookeeper_connect}"
        source = ZooKeeperBrokers(
            config.zookeeper_connect, timeout_ms=config.zookeeper_connection_timeout_ms
        )
    return Cluster(
        where,
        client_id=config.client_id,
        request_timeout_ms=config.request_timeout_ms,
        deadline_ms=config.delivery_timeout_ms,
        source=source,
    )
