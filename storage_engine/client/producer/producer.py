"""Sends records to topics: the public producer.

    from storage_engine.client import Producer

    with Producer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
        future = producer.send("clicks", b"/home", key=b"user-7", headers=[("page", b"1")])
        print(future.result().offset)
        producer.send_table("clicks", pa.table({"key": ["a", "b"], "value": ["1", "2"]}))

`send` and `send_table` put records into batches and return; one thread sends them. No record is
lost silently: each one's future gets the outcome, and `flush` and `close` raise the first error
since the last flush. Any number of threads may use a producer. Source: R-CLI1, R-CLI7; the errors
are in `producer_errors`.
"""

import contextlib
import enum
import functools
import operator
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from storage_engine.client.closing import Closing
from storage_engine.client.groups.group_requests import GroupMetadata
from storage_engine.client.producer.partition_choice import KEY_PARTITIONERS, Partitioner
from storage_engine.client.producer.producer_batch import (
    BATCH_OVERHEAD_BYTES,
    ProducerBatch,
    record_bytes,
)
from storage_engine.client.producer.producer_config import ProducerConfig
from storage_engine.client.producer.producer_errors import (
    ProducerFencedError,
    SerializationError,
    TransactionFailedError,
)
from storage_engine.client.producer.producer_loop import ProducerLoop
from storage_engine.client.producer.record_future import RecordFuture, RecordMetadata
from storage_engine.client.producer.topic_watch import TopicPartitions
from storage_engine.client.security.security_rows import Given
from storage_engine.core.errors import (
    ConfigError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    RecordTooLargeError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms

if TYPE_CHECKING:
    import pyarrow as pa

    from storage_engine.client.producer.tables.table_future import TableFuture
    from storage_engine.client.producer.tables.typed_topics import TypedTopic
    from storage_engine.protocol.records.record_encoder import EncodedBatch

Encoder = Callable[[Any], bytes | None]
"""Makes bytes of a key or value."""

Callback = Callable[[RecordMetadata | None, BaseException | None], None]
"""Called with the place of a record in the log, or the error."""

LARGEST_TIMESTAMP_MS = (1 << 62) - 1
"""Two of them differ by an int64."""

RecordHeaders = Iterable[tuple[str, bytes | None]]


def encode_plain(data: Any) -> bytes | None:
    """The encoder unless another is given: bytes as they are, text as UTF-8, None as null."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise SerializationError(
        f"a {type(data).__name__} is neither bytes nor text; give an encoder for it"
    )


class _Stage(enum.Enum):
    """The stage of a producer with a `transactional.id`."""

    NEW = "init_transactions was not called"
    READY = "no transaction is open; begin_transaction opens one"
    OPEN = "a transaction is open; commit_transaction or abort_transaction ends it"
    FENCED = "another producer has the transactional.id; close this one"


class Producer(Closing):
    """By default it is idempotent, with acks=all. `close` it, or use it in a `with` block."""

    def __init__(
        self,
        config: Given,
        *,
        key_encoder: Encoder = encode_plain,
        value_encoder: Encoder = encode_plain,
        partitioner: Partitioner | None = None,
    ) -> None:
        """`config`: see `producer_config.SETTINGS`, Kafka's keys, values also as text; ConfigError
        for a wrong one. Opens nothing before the first record. `partitioner`: (topic, key, value,
        number of partitions) -> partition; None: keys as the setting `partitioner` says,
        records without one to one partition a batch."""
        if partitioner is not None and "partitioner" in config:
            raise ConfigError("partitioner is a setting and an argument; leave one of the two out")
        self._config = ProducerConfig.of(config)
        self._encode_key = key_encoder
        self._encode_value = value_encoder
        self._partitioner = partitioner
        self._of_keys = KEY_PARTITIONERS[self._config.partitioner]
        self._random = random.Random()
        self._loop = ProducerLoop(self._config)
        self._stage = None if self._config.transactional_id is None else _Stage.NEW

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: RecordHeaders = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        callback: Callback | None = None,
    ) -> RecordFuture:
        """Put one record on its way. The future's result says where it is; its exception why it is
        not (perhaps: see `producer_errors`). With asyncio: `await asyncio.wrap_future(future)`.

        Waits up to `max.block.ms` for the topic's partitions and for room in `buffer.memory`.
        Raises SerializationError, RecordTooLargeError, BufferFullError, and KafkaError for a topic
        or partition that does not exist. `timestamp_ms` None is now. `callback` runs in the
        producer's thread: it must be short, and must not flush. With a `transactional.id` a
        transaction must be open.
        """
        if self._stage is not None:
            self._expect(_Stage.OPEN)
        encoded_key = self._encoded(self._encode_key, key, "key", topic)
        encoded_value = self._encoded(self._encode_value, value, "value", topic)
        rows = _checked_headers(headers) if headers else []
        size = record_bytes(encoded_key, encoded_value, rows)
        limit = min(self._config.max_request_size, self._config.buffer_memory)
        if size + BATCH_OVERHEAD_BYTES > limit:
            raise RecordTooLargeError(
                f"a record for topic '{topic}' takes {size} bytes; max.request.size and "
                f"buffer.memory allow {limit - BATCH_OVERHEAD_BYTES}"
            )
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        else:
            timestamp_ms = _checked_timestamp(timestamp_ms)
        known = self._loop.topic(topic)
        if partition is None:
            partition = self._choose(topic, encoded_key, encoded_value, known)
        elif not 0 <= partition < known.partition_count:
            raise _no_such_partition(topic, partition, known.partition_count)
        future = self._loop.add(
            topic,
            partition,
            known.available,
            encoded_key,
            encoded_value,
            rows,
            timestamp_ms,
            size,
        )
        if callback is not None:
            future.add_done_callback(functools.partial(_call, callback))
        return future

    def send_table(self, topic: str, table: "pa.Table | pa.RecordBatch") -> "TableFuture":
        """Put the rows of an Arrow table on their way, encoded and partitioned as columns.

        Columns: value; as far as they are there key, headers, timestamp, partition (see
        `table_batches`). A topic with a schema has its own columns, matched by name, and as far as
        they are there _partition, _timestamp, _headers, _deleted (see `typed_rows`); what does not
        fit is a SerializationError that names the column. The encoders and the partitioner of
        single records are not asked. The future is done when all rows are; its exception is the
        first one's, and other rows may be there. Returns when the last row is encoded and has room
        in `buffer.memory`.
        """
        from storage_engine.client.producer.tables.table_future import TableProgress

        if self._stage is not None:
            self._expect(_Stage.OPEN)
        known = self._loop.topic(topic)
        progress = TableProgress(self._loop.changed)
        typed = self._loop.typed_topic(topic)
        if typed is None:
            batches = self._opaque_batches(table, known.partition_count)
        else:
            batches = self._typed_batches(topic, table, typed, known.partition_count)
        try:
            for partition, batch in batches:
                if len(batch) > self._config.max_request_size:
                    raise RecordTooLargeError(
                        f"a record for topic '{topic}' takes {len(batch)} bytes; max.request.size "
                        f"is {self._config.max_request_size}"
                    )
                tp = TopicPartition(topic, partition)
                on_done = progress.begin(partition, batch.record_count)
                try:
                    self._loop.add_encoded(
                        ProducerBatch.of_encoded(
                            tp, monotonic_ms(), self._loop.changed, batch, on_done
                        )
                    )
                except HeadraceError:
                    progress.end()
                    raise
        finally:
            progress.end()
        return progress.future

    def _opaque_batches(
        self, table: "pa.Table | pa.RecordBatch", partition_count: int
    ) -> "Iterator[tuple[int, EncodedBatch]]":
        from storage_engine.client.producer.tables.table_batches import (
            TABLE_BATCH_BYTES,
            table_batches,
        )

        config = self._config
        wanted_bytes = max(config.batch_size, TABLE_BATCH_BYTES)
        return table_batches(
            table,
            partition_count,
            batch_bytes=min(wanted_bytes, config.max_request_size, config.buffer_memory),
            compression=config.compression_type,
            partitioner=self._of_keys,
            first_partition=self._random.randrange(partition_count),
            now_ms=time.time_ns() // 1_000_000,
        )

    def _typed_batches(
        self,
        topic: str,
        table: "pa.Table | pa.RecordBatch",
        typed: "TypedTopic",
        partition_count: int,
    ) -> "Iterator[tuple[int, EncodedBatch]]":
        from storage_engine.client.producer.tables.typed_batches import (
            STORED_BATCH_BYTES,
            typed_batches,
            typed_codec,
        )
        from storage_engine.client.producer.tables.typed_rows import fitted

        config = self._config
        codec = typed_codec(config.compression_type, topic)
        try:
            rows = fitted(table, topic, typed.known.schema)
        except SerializationError:
            # The schema may have changed.
            renewed = self._loop.typed_topic(topic, anew=True)
            if renewed is None or renewed.known == typed.known:
                raise
            typed = renewed
            rows = fitted(table, topic, typed.known.schema)
        wanted_bytes = max(config.batch_size, STORED_BATCH_BYTES)
        most_bytes = min(config.max_request_size, config.buffer_memory, typed.largest_batch_bytes)
        return typed_batches(
            rows,
            typed.known,
            partition_count,
            batch_bytes=min(wanted_bytes, most_bytes),
            compression=codec,
            partitioner=self._of_keys,
            first_partition=self._random.randrange(partition_count),
            now_ms=time.time_ns() // 1_000_000,
        )

    # --- transactions, which one thread at a time begins and ends ---

    def init_transactions(self) -> None:
        """Takes over the `transactional.id`, once: a transaction that its last owner left open is
        aborted, and that producer is fenced."""
        self._expect(_Stage.NEW)
        self._loop.init_transactions()
        self._stage = _Stage.READY

    def begin_transaction(self) -> None:
        """Begins a transaction: records sent from now on become readable (with read_committed) when
        it is committed, or never."""
        self._expect(_Stage.READY)
        self._loop.begin_transaction()
        self._stage = _Stage.OPEN

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata
    ) -> None:
        """Commit with the transaction what of its input a consumer has read: by partition the next
        offset, and the consumer's `group_metadata()`. CommitRefusedError when the partitions are
        another member's. After any error the transaction can only be aborted."""
        self._expect(_Stage.OPEN)
        with self._noting_fences():
            self._loop.send_offsets(offsets, group)

    def commit_transaction(self) -> None:
        """Flush, and commit. TransactionFailedError where a record could not be sent: abort. After
        a DeadlineExceededError the outcome is open: call it again."""
        self._expect(_Stage.OPEN)
        with self._noting_fences():
            self._loop.commit_transaction()
            self._stage = _Stage.READY

    def abort_transaction(self) -> None:
        """Aborts the transaction: no reader with read_committed ever gets its records; futures that
        wait fail."""
        self._expect(_Stage.OPEN)
        with self._noting_fences():
            self._loop.abort_transaction()
            self._stage = _Stage.READY

    @contextlib.contextmanager
    def _noting_fences(self) -> Iterator[None]:
        try:
            yield
        except (ProducerFencedError, TransactionFailedError) as error:
            if isinstance(error.__cause__ or error, ProducerFencedError):
                self._stage = _Stage.FENCED
            raise

    def _expect(self, stage: _Stage) -> None:
        if self._stage is None:
            raise ConfigError("transactions need a transactional.id; give the producer one")
        if self._stage is _Stage.FENCED:
            raise ProducerFencedError(_Stage.FENCED.value)
        if self._stage is not stage:
            raise TransactionFailedError(f"this call is not possible now: {self._stage.value}")

    def flush(self, timeout_ms: int | None = None) -> None:
        """Return when everything sent before is acknowledged or has failed. Raises the first error
        since the last flush; DeadlineExceededError after `timeout_ms`."""
        self._loop.flush(timeout_ms)

    def ready(self, topic: str) -> bool:
        """Whether `send` to it, of whatever size, would not wait now."""
        return self._loop.ready(topic)

    def partitions_for(self, topic: str) -> int:
        """The number of partitions of a topic. Raises KafkaError when the topic does not exist."""
        return self._loop.topic(topic).partition_count

    def close(self, timeout_ms: int | None = None) -> None:
        """`flush`, and the end: what is not acknowledged after `timeout_ms` fails. A transaction
        that is open is aborted."""
        if self._stage is _Stage.OPEN:
            # If not now, then after its timeout.
            with contextlib.suppress(HeadraceError):
                self.abort_transaction()
        self._loop.close(timeout_ms)

    @staticmethod
    def _encoded(encode: Encoder, data: Any, part: str, topic: str) -> bytes | None:
        if data is None or (type(data) is bytes and encode is encode_plain):
            return data
        try:
            encoded = encode(data)
        except (ValueError, TypeError, LookupError, AttributeError, SerializationError) as error:
            raise SerializationError(
                f"the {part} of a record for topic '{topic}': {error}"
            ) from error
        if encoded is not None and not isinstance(encoded, bytes):
            raise SerializationError(
                f"the {part} of a record for topic '{topic}': the encoder gave a "
                f"{type(encoded).__name__}, not bytes"
            )
        return encoded

    def _choose(
        self, topic: str, key: bytes | None, value: bytes | None, known: TopicPartitions
    ) -> int | None:
        """Returns None for any partition that has a leader."""
        if self._partitioner is not None:
            partition = self._partitioner(topic, key, value, known.partition_count)
            if not 0 <= partition < known.partition_count:
                raise ConfigError(
                    f"the partitioner gave {partition!r} for topic '{topic}', which has partitions "
                    f"0 to {known.partition_count - 1}"
                )
            return partition
        return self._of_keys.partition_of(key, known.partition_count)


def _call(callback: Callback, done: RecordFuture) -> None:
    error = done.exception()
    callback(None if error is not None else done.result(), error)


def _checked_headers(headers: RecordHeaders) -> list[tuple[str, bytes | None]]:
    rows = list(headers)
    for row in rows:
        match row:
            case (str(name), bytes() | None) if _is_utf8(name):
                continue
        raise SerializationError(f"the header {row!r} is not a pair of text and bytes")
    return rows


def _checked_timestamp(timestamp_ms: int) -> int:
    try:
        number = operator.index(timestamp_ms)
    except TypeError:
        number = -1
    if not 0 <= number <= LARGEST_TIMESTAMP_MS:
        raise SerializationError(f"the timestamp {timestamp_ms} is not a time in milliseconds")
    return number


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_such_partition(topic: str, partition: int, count: int) -> KafkaError:
    return KafkaError(
        f"topic '{topic}' has {count} partitions, so there is no partition {partition}",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
