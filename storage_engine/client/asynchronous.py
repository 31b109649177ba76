"""`Producer`, `Consumer` and `Admin` for programs that use asyncio.

    from storage_engine.client import AsyncConsumer, AsyncProducer

    async with AsyncProducer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
        acknowledged = await producer.send("clicks", b"/home", key=b"user-7")
        print((await acknowledged).offset)

    async with AsyncConsumer({**config, "group.id": "billing"}) as consumer:
        await consumer.subscribe(["clicks"])
        async for record in consumer:
            print(record.value)

Methods, settings and errors are those of the class without Async; every method that may wait is a
coroutine, and the calls run one after the other in a thread of the client. A call that is cancelled
before it has begun is never made. A call that has begun runs to its end there, and later calls,
`close` too, wait for it; so a cancelled commit may succeed all the same. A cancelled `poll` or
iteration returns nothing and loses nothing. All tasks that use a client must run on one event loop.
"""

import asyncio
import contextlib
import functools
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from storage_engine.client.admin.admin_client import Admin
from storage_engine.client.consumer.consumer import POLL_MS, Consumer
from storage_engine.client.consumer.consumer_record import ConsumerRecord
from storage_engine.client.fetching.typed_reading import Selection
from storage_engine.client.groups.group_requests import GroupMetadata
from storage_engine.client.producer.partition_choice import Partitioner
from storage_engine.client.producer.producer import Encoder, Producer, RecordHeaders, encode_plain
from storage_engine.client.producer.record_future import RecordMetadata
from storage_engine.client.security.security_rows import Given
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline

if TYPE_CHECKING:
    import pyarrow as pa

    from storage_engine.client.producer.tables.table_future import TableMetadata

_SLICE_MS = 100
"""A wait for records is cut into slices of this length: for so long a cancelled wait may delay the
next call."""

Client = TypeVar("Client", bound=AbstractContextManager[object])
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
Taken = TypeVar("Taken", bound=Sized)
Positions = dict[TopicPartition, int]


class InThread(Generic[Client]):
    """A client, and the one thread in which it is called."""

    def __init__(self, client: Client) -> None:
        self.blocking = client
        """The blocking client, for callbacks: they run in the client's thread and may call it."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-async")
        self._process = os.getpid()
        self._closed = False
        # Of the calls made, which are done in this order.
        self._last: Future[Any] = Future()
        self._last.set_result(None)

    def _submit(
        self,
        work: Callable[Arguments, Result],
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> "Future[Result]":
        name = type(self.blocking).__name__.lower()
        if self._process != os.getpid():
            # Its thread is the parent's.
            raise HeadraceError(f"the {name} was made before a fork; make one in each process")
        if self._closed:
            raise HeadraceError(f"the {name} is closed")
        future = self._last = self._thread.submit(work, *arguments, **named)
        return future

    async def _call(
        self,
        work: Callable[Arguments, Result],
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        return await asyncio.wrap_future(self._submit(work, *arguments, **named))

    async def close(self) -> None:
        """Waits for earlier calls, then closes. A second call does nothing."""
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the client like its own `with` block does, and completes in the thread even when
        this is cancelled."""
        if self._closed or self._process != os.getpid():
            return
        ended = self._submit(self.blocking.__exit__, kind, error, traceback)
        self._closed = True
        self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(ended))


def _awaited(
    method: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate[InThread[Any], Arguments], Coroutine[object, None, Result]]:
    """A method of a client, done in its thread."""

    @functools.wraps(method)
    async def call(
        self: InThread[Any], /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        return await self._call(method, self.blocking, *arguments, **named)

    return call


class AsyncAdmin(InThread[Admin]):
    """See `Admin`."""

    def __init__(self, config: Given) -> None:
        """Takes the arguments of `Admin`."""
        super().__init__(Admin(config))

    create_topics = _awaited(Admin.create_topics)
    alter_schema = _awaited(Admin.alter_schema)
    describe_schemas = _awaited(Admin.describe_schemas)
    delete_topics = _awaited(Admin.delete_topics)
    create_partitions = _awaited(Admin.create_partitions)
    list_topics = _awaited(Admin.list_topics)
    describe_topics = _awaited(Admin.describe_topics)
    describe_topic_configs = _awaited(Admin.describe_topic_configs)
    describe_broker_configs = _awaited(Admin.describe_broker_configs)
    alter_topic_configs = _awaited(Admin.alter_topic_configs)
    alter_broker_configs = _awaited(Admin.alter_broker_configs)
    list_groups = _awaited(Admin.list_groups)
    describe_group = _awaited(Admin.describe_group)
    delete_group = _awaited(Admin.delete_group)
    describe_group_configs = _awaited(Admin.describe_group_configs)
    alter_group_configs = _awaited(Admin.alter_group_configs)
    group_offsets = _awaited(Admin.group_offsets)
    alter_group_offsets = _awaited(Admin.alter_group_offsets)
    reset_group_offsets = _awaited(Admin.reset_group_offsets)
    delete_group_offsets = _awaited(Admin.delete_group_offsets)
    list_offsets = _awaited(Admin.list_offsets)
    delete_records = _awaited(Admin.delete_records)
    describe_cluster = _awaited(Admin.describe_cluster)
    describe_log_dirs = _awaited(Admin.describe_log_dirs)
    alter_reassignments = _awaited(Admin.alter_reassignments)
    list_reassignments = _awaited(Admin.list_reassignments)
    elect_leaders = _awaited(Admin.elect_leaders)
    list_transactions = _awaited(Admin.list_transactions)
    describe_transaction = _awaited(Admin.describe_transaction)
    describe_producers = _awaited(Admin.describe_producers)


class Completions(Generic[Result]):
    """Futures of a producer as futures of the loop, which is woken once for all that are done at
    the same time, and not for each."""

    def __init__(self) -> None:
        self._done: deque[tuple[asyncio.Future[Result], Future[Result]]] = deque()
        # The loop that was woken last, until it looks: one that has ended never does.
        self._notified: asyncio.AbstractEventLoop | None = None

    def awaitable(self, future: "Future[Result]") -> "asyncio.Future[Result]":
        """Returns an awaitable; cancelling it does not cancel `future`."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Result] = loop.create_future()
        future.add_done_callback(lambda done: self._notify(loop, waiting, done))
        return waiting

    def _notify(
        self,
        loop: asyncio.AbstractEventLoop,
        waiting: "asyncio.Future[Result]",
        done: "Future[Result]",
    ) -> None:
        """Runs in the thread that completes the future."""
        if loop.is_closed():
            return
        self._done.append((waiting, done))
        if self._notified is not loop:
            self._notified = loop
            # Closed: nobody waits any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        # This comes before the look: calls that end from now on wake it again.
        self._notified = None
        own = asyncio.get_running_loop()
        while self._done:
            waiting, done = self._done.popleft()
            if (loop := waiting.get_loop()) is own:
                _complete(waiting, done)
            else:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(_complete, waiting, done)


def _complete(waiting: "asyncio.Future[Result]", done: "Future[Result]") -> None:
    if waiting.cancelled():
        return
    error = done.exception()
    if error is None:
        waiting.set_result(done.result())
    else:
        waiting.set_exception(error)


class AsyncProducer(InThread[Producer]):
    """See `Producer`."""

    def __init__(
        self,
        config: Given,
        *,
        key_encoder: Encoder = encode_plain,
        value_encoder: Encoder = encode_plain,
        partitioner: Partitioner | None = None,
    ) -> None:
        """Takes the arguments of `Producer`. Encoders and the partitioner must not block: they may
        run in the event loop."""
        producer = Producer(
            config, key_encoder=key_encoder, value_encoder=value_encoder, partitioner=partitioner
        )
        super().__init__(producer)
        self._records: Completions[RecordMetadata] = Completions()
        self._tables: Completions[TableMetadata] = Completions()

    async def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: RecordHeaders = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> "asyncio.Future[RecordMetadata]":
        """Sends one record, once there is room for it. The future that is returned completes when
        the record is acknowledged; cancelling it does not cancel the record."""
        record = (topic, value, key, headers, timestamp_ms, partition)
        if not self._closed and self._last.done() and self.blocking.ready(topic):
            return self._records.awaitable(self.blocking.send(*record))
        return self._records.awaitable(await self._call(self.blocking.send, *record))

    async def send_table(
        self, topic: str, table: "pa.Table | pa.RecordBatch"
    ) -> "asyncio.Future[TableMetadata]":
        """The same for the rows of an Arrow table."""
        sent = await self._call(self.blocking.send_table, topic, table)
        return self._tables.awaitable(sent)

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Like `Producer.flush`. Other sends continue meanwhile."""
        await asyncio.to_thread(self.blocking.flush, timeout_ms)

    partitions_for = _awaited(Producer.partitions_for)
    init_transactions = _awaited(Producer.init_transactions)
    begin_transaction = _awaited(Producer.begin_transaction)
    send_offsets_to_transaction = _awaited(Producer.send_offsets_to_transaction)
    commit_transaction = _awaited(Producer.commit_transaction)
    abort_transaction = _awaited(Producer.abort_transaction)


class AsyncConsumer(InThread[Consumer]):
    """See `Consumer`. Callbacks run in the client's thread: what they need of the consumer
    they call on `blocking`."""

    def __init__(self, config: Given) -> None:
        """Takes the arguments of `Consumer`."""
        super().__init__(Consumer(config))
        # So many records iteration can take at once; while it is not 0, nothing runs in the thread.
        self._ready = 0
        self._getting_ready = asyncio.Lock()
        # Tells where polls began whose callers were cancelled.
        self._unseen: deque[Callable[[], Positions]] = deque()

    subscribe = _awaited(Consumer.subscribe)
    assign = _awaited(Consumer.assign)
    unsubscribe = _awaited(Consumer.unsubscribe)
    partitions_of = _awaited(Consumer.partitions_of)
    position = _awaited(Consumer.position)
    seek = _awaited(Consumer.seek)
    seek_to_beginning = _awaited(Consumer.seek_to_beginning)
    seek_to_end = _awaited(Consumer.seek_to_end)
    pause = _awaited(Consumer.pause)
    resume = _awaited(Consumer.resume)
    offsets_for_times = _awaited(Consumer.offsets_for_times)
    beginning_offsets = _awaited(Consumer.beginning_offsets)
    end_offsets = _awaited(Consumer.end_offsets)
    commit = _awaited(Consumer.commit)
    committed = _awaited(Consumer.committed)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer reads now."""
        return self.blocking.assignment

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self.blocking.paused

    def group_metadata(self) -> GroupMetadata:
        """The metadata that a producer's `send_offsets_to_transaction` needs."""
        return self.blocking.group_metadata()

    async def poll(
        self, timeout_ms: int = POLL_MS, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Like `Consumer.poll`."""
        return await self._take(
            lambda wait_ms: self.blocking.poll(wait_ms, max_records), timeout_ms, _firsts_of_rows
        )

    async def poll_table(
        self,
        timeout_ms: int = POLL_MS,
        *,
        columns: Iterable[str] | None = None,
        where: str | None = None,
    ) -> "pa.Table":
        """Like `Consumer.poll_table`."""
        names = Selection.of(columns, where).columns
        polled = await self._take(
            lambda wait_ms: self.blocking.poll_rows(wait_ms, columns=names, where=where),
            timeout_ms,
            lambda polled: polled.first_offsets,
        )
        return polled.table

    async def _take(
        self,
        poll: Callable[[int], Taken],
        timeout_ms: int,
        firsts: Callable[[Taken], Positions],
    ) -> Taken:
        """Waits in slices, so that the thread is free soon after a cancellation."""
        deadline = Deadline.after(timeout_ms)
        while True:
            polled = self._submit(poll, min(deadline.left_ms, _SLICE_MS))
            try:
                taken = await asyncio.wrap_future(polled)
            except asyncio.CancelledError:
                if not polled.cancel():
                    self._unseen.append(functools.partial(_began, polled, firsts))
                raise
            if len(taken) or deadline.passed:
                return taken

    def _submit(
        self,
        work: Callable[Arguments, Result],
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> "Future[Result]":
        def in_turn() -> Result:
            self._read_again()
            return work(*arguments, **named)

        # It may move positions.
        self._ready = 0
        return super()._submit(in_turn)

    def _read_again(self) -> None:
        """Makes records be read again that were polled for a cancelled call: nobody has seen them,
        so they must not be committed."""
        while self._unseen:
            firsts = self._unseen.popleft()
            # Where that poll has failed the next one does, too.
            with contextlib.suppress(HeadraceError):
                for tp, offset in firsts().items():
                    if tp in self.blocking.assignment:
                        self.blocking.seek(tp, offset)

    async def tables(
        self, *, columns: Iterable[str] | None = None, where: str | None = None
    ) -> "AsyncIterator[pa.Table]":
        """Tables with rows, for ever."""
        names = Selection.of(columns, where).columns
        while True:
            table = await self.poll_table(columns=names, where=where)
            if table.num_rows:
                yield table

    def __aiter__(self) -> Self:
        """Like `Consumer.__iter__`."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        if not self._ready:
            await self._get_ready()
        self._ready -= 1
        return next(self.blocking)

    async def _get_ready(self) -> None:
        async with self._getting_ready:
            while not self._ready:
                asked = self._submit(self.blocking.ready, _SLICE_MS)
                count = await asyncio.wrap_future(asked)
                if asked is self._last:
                    self._ready = count


def _began(polled: "Future[Taken]", firsts: Callable[[Taken], Positions]) -> Positions:
    return firsts(polled.result())


def _firsts_of_rows(rows: Iterable[ConsumerRecord]) -> Positions:
    firsts: Positions = {}
    for row in rows:
        firsts.setdefault(TopicPartition(row.topic, row.partition), row.offset)
    return firsts
