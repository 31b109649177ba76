"""Answers clients that know no typed batches: with one record for each row, of JSON or of Avro as
the topic's settings say.

    read -> all batches are converted -> answer
         -> some are not -> copied, a thread converts them -> read again -> answer

A batch becomes exactly one batch, at the same offsets; control batches stay as they are.
Conversions are kept for other clients, up to CACHED_MAX_BYTES, by leader epoch and CRC, too: never
by offset alone, at which another batch may be after a truncation. As an answer is made of a new
read, everything is checked again after a wait: leadership, truncation, high watermark; the right to
read, and whether the client is still there, when the answer is sent.

The records of Avro have the id of the topic's schema; until it is known here, the answer is an
error that clients retry.

A fetch's limits count the bytes that are sent: conversion ends where they are reached. Followers,
and clients that ask for typed batches, never come here.
"""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.cold_reads import ColdReads
from storage_engine.broker.requests.fetch_reads import READ_COMMITTED, FetchRead, PartitionReader
from storage_engine.broker.requests.typed_reads import UnconvertedSlice
from storage_engine.broker.schemas.topic_schema_ids import TopicSchemaIds
from storage_engine.broker.shared_threads import SharedThreads
from storage_engine.broker.unexpected import guarded
from storage_engine.core.errors import CorruptRecordError, ErrorCode, KafkaError
from storage_engine.core.fair_queue import Share
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background, SlicedRecords
from storage_engine.core.typed.foreign_format import ForeignFormat
from storage_engine.core.typed.topic_schema import TopicSchema, UnknownSchemaVersionError
from storage_engine.net.client_log import ClientLog
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)
from storage_engine.protocol.records.record_batch import BatchHeader, crc_matches, iter_headers
from storage_engine.protocol.typed.typed_batch import is_typed

CONVERTED_AT_ONCE, CONVERTED_EACH = 3, 2
"""The most fetches that are converted at a time: of all clients, and of one principal."""

CACHED_MAX_BYTES = 32 << 20
"""The most bytes of conversions that are kept for other clients."""

CACHED_BATCH_MAX_BYTES = CACHED_MAX_BYTES // 4
"""The largest conversion that is kept: a larger one would drive out too many others."""

FETCH_MAX_BYTES = 8 << 20
"""The most bytes of records in an answer, or one batch, whatever the client's limit."""

STORED_MAX_BYTES = 4 << 20
"""The most stored bytes, or one batch, that are copied to be converted for one fetch."""

BATCHES_MAX = 500
"""The most batches in an answer: they are looked up one by one."""

HELD_MAX_BYTES = 128 << 20
"""The most bytes of all conversions in memory, also of those that slow clients have not received
yet: beyond it an answer has one batch."""

HELD_HARD_MAX_BYTES = 4 * HELD_MAX_BYTES
"""Beyond this, nothing is converted, and clients have to ask again: a batch of a hundred bytes, all
nulls, may become a hundred megabytes, and each client that receives nothing holds one."""

MOST_ROUNDS = 3
"""The most conversions of a fetch. After that it is answered with the records there are: otherwise
a log that is compacted or truncated all the time would answer no fetch."""

_TRY_AGAIN = ErrorCode.REPLICA_NOT_AVAILABLE
"""An error that every client knows and retries."""

log = ClientLog(__name__)


class _Key(NamedTuple):
    """Distinguishes a batch from all others that were, or will be, at the same offset."""

    topic_id: UUID
    partition: int
    base_offset: int
    leader_epoch: int
    crc: int
    schema_version: int
    """The latest version, whose columns the records have."""
    schema_id: int
    """The id in records of Avro; OF_JSON for others."""


class ConvertedBatch(bytearray):
    """A converted batch. Its memory is counted for as long as there is a reference to it."""

    __slots__ = ("__weakref__",)


_NOT_TYPED = CorruptRecordError(
    "a batch of a typed topic has no columns, and its CRC does not match"
).as_outcome()
"""A marker, or a batch without rows; or one whose header is damaged: not every client checks the
CRC of a batch that looks like a marker."""

Converted = ConvertedBatch | KafkaError
"""A batch of records, or the error of its conversion."""


class _StoredBatch(NamedTuple):
    """A batch as it is stored, with memory of its own."""

    key: _Key
    header: BatchHeader
    batch: memoryview
    schema: TopicSchema


OF_JSON = -1
"""In place of a schema's id: the records are of JSON."""


class _Need(NamedTuple):
    """The batches of a partition to convert, and the most bytes of records that are needed."""

    batches: list[_StoredBatch]
    limit: int


class ConvertedBatches:
    """The conversions that are kept, and the memory of all conversions."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, ConvertedBatch] = OrderedDict()
        self._kept_bytes = 0
        self._held: weakref.WeakValueDictionary[_Key, ConvertedBatch] = (
            weakref.WeakValueDictionary()
        )
        """All conversions in memory, also those that are not kept: they are shared, too."""
        self.held_bytes = 0

    def get(self, key: _Key) -> ConvertedBatch | None:
        batch = self._kept.get(key)
        if batch is None:
            return self._held.get(key)
        self._kept.move_to_end(key)
        return batch

    def take(self, key: _Key, batch: ConvertedBatch) -> None:
        """Count a new conversion, and keep it if it is not too large."""
        size = len(batch)
        self.held_bytes += size
        self._held[key] = batch
        weakref.finalize(batch, self._freed, size).atexit = False
        if size > CACHED_BATCH_MAX_BYTES or key in self._kept:
            return
        self._kept[key] = batch
        self._kept_bytes += size
        while self._kept_bytes > CACHED_MAX_BYTES:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    def _freed(self, size: int) -> None:
        self.held_bytes -= size


@dataclass(slots=True, kw_only=True, eq=False)
class _ForeignFetch:
    """A fetch with batches that are, or were, to be converted."""

    request: FetchRequest
    share: Share
    respond: Callable[[FetchRead], None]
    gone: Callable[[], bool]
    has_thread: bool = False
    """Whether it has a thread for its conversion now."""
    needs: Sequence["_Need"] = ()
    """The batches it lacks, valid only for the turn of the read."""
    converted: dict[_Key, Converted] = field(default_factory=dict)
    """The batches converted for it, which the cache may have dropped again."""
    rounds: int = 0


class ForeignAnswers:
    """Answers fetches once their bytes are in the page cache, and converted where they must be."""

    def __init__(
        self,
        background: Background,
        *,
        reader: PartitionReader,
        replicas: ReplicaManager,
        cold_reads: ColdReads,
        schema_ids: TopicSchemaIds,
    ) -> None:
        self._schema_ids = schema_ids
        self._threads = SharedThreads(background, at_once=CONVERTED_AT_ONCE, each=CONVERTED_EACH)
        self._reader = reader
        self._replicas = replicas
        self._cold_reads = cold_reads
        self._cache = ConvertedBatches()
        self.conversions = 0
        """The number of batches converted so far."""

    def answer(
        self,
        request: FetchRequest,
        read: FetchRead,
        share: Share,
        respond: Callable[[FetchRead], None],
        gone: Callable[[], bool],
    ) -> None:
        """Respond with `read`, which was just made, or a newer one when its bytes are cold or not
        converted. `gone`: whether the client's connection is closed; nothing is done for it
        then."""
        fetch = _ForeignFetch(request=request, share=share, respond=respond, gone=gone)
        self._cold_reads.answer(request, read, share, partial(self._warm, fetch), gone)

    def _warm(self, fetch: _ForeignFetch, read: FetchRead) -> None:
        """Respond, or have the missing batches converted. `read` was just made."""
        if not any(isinstance(answer.records, UnconvertedSlice) for answer in read.partitions):
            fetch.respond(read)
            return
        making = _AnswerInMaking(fetch, read, self._cache, self._replicas, self._schema_ids)
        if making.needs and fetch.rounds < MOST_ROUNDS and (making.is_empty or not fetch.rounds):
            if self._cache.held_bytes > HELD_HARD_MAX_BYTES:
                making.refuse_the_rest()
            else:
                self._have_converted(fetch, making.needs)
                return
        for partition, offset, damage in making.damaged:
            self._reader.note_damage(partition, offset, damage)
        fetch.respond(making.read)

    def _have_converted(self, fetch: _ForeignFetch, needs: Sequence[_Need]) -> None:
        """Convert the batches when it is the fetch's turn, which may be now."""
        if fetch.has_thread:
            fetch.has_thread = False
            self._convert(fetch, needs)
            return
        fetch.needs = needs
        self._threads.when_its_turn(fetch.share, partial(self._begin, fetch))
        # In a later turn they would be out of date.
        fetch.needs = ()

    def _begin(self, fetch: _ForeignFetch) -> None:
        """Use the thread, if the fetch still needs it."""
        if fetch.needs:
            self._convert(fetch, fetch.needs)
            return
        fetch.has_thread = True
        self._look_again(fetch)
        if fetch.has_thread:
            fetch.has_thread = False
            self._threads.ended(fetch.share)

    def _look_again(self, fetch: _ForeignFetch) -> None:
        if not fetch.gone():
            guarded("a fetch of JSON", self._read_again, fetch)

    def _read_again(self, fetch: _ForeignFetch) -> None:
        read = self._reader.read(fetch.request)
        self._cold_reads.answer(
            fetch.request, read, fetch.share, partial(self._warm, fetch), fetch.gone
        )

    def _convert(self, fetch: _ForeignFetch, needs: Sequence[_Need]) -> None:
        limit = min(fetch.request.max_bytes, FETCH_MAX_BYTES)
        if self._cache.held_bytes > HELD_MAX_BYTES:
            limit = 0

        def done(converted: dict[_Key, Converted]) -> None:
            for key, batch in converted.items():
                if isinstance(batch, ConvertedBatch):
                    self._cache.take(key, batch)
            fetch.converted.update(converted)
            self.conversions += len(converted)
            size = sum(
                len(batch) for batch in converted.values() if isinstance(batch, ConvertedBatch)
            )
            self._threads.ended(fetch.share, size)
            self._look_again(fetch)

        def failed(error: Exception) -> None:
            log.error("", "batches not converted", exc_info=error)
            self._threads.ended(fetch.share)
            self._look_again(fetch)

        fetch.rounds += 1
        self._threads.background.submit(partial(_converted, needs, limit), done, failed)


class _AnswerInMaking:
    """A read whose stored batches are replaced by their conversions."""

    def __init__(
        self,
        fetch: _ForeignFetch,
        read: FetchRead,
        cache: ConvertedBatches,
        replicas: ReplicaManager,
        schema_ids: TopicSchemaIds,
    ) -> None:
        self._fetch = fetch
        self._schema_ids = schema_ids
        self._cache = cache
        self._room = min(fetch.request.max_bytes, FETCH_MAX_BYTES)
        self._batches_left = BATCHES_MAX
        self._stored_left = STORED_MAX_BYTES
        self.needs: list[_Need] = []
        self._waiting: list[int] = []
        """The positions of partitions that have no records yet."""
        self.damaged: list[tuple[HostedPartition, int, CorruptRecordError]] = []
        self.is_empty = True
        """Whether no partition so far has records. Later ones don't count: otherwise a batch that
        is larger than the limit would never come beside a topic that always has some."""
        self.read = read
        for place, wanted in enumerate(fetch.request.partitions):
            answer = read.partitions[place]
            if isinstance(answer.records, UnconvertedSlice):
                partition = replicas.get(TopicPartition(wanted.topic, wanted.partition))
                assert partition is not None, "it was read in this turn"
                made = self._made_of(partition, wanted, answer, answer.records)
                read.partitions[place] = made
                if made.records is None and not made.error_code:
                    self._waiting.append(place)
                if made.error_code:
                    read.failed = True
            elif answer.records is not None:
                self.is_empty = False

    def refuse_the_rest(self) -> None:
        """Answer the partitions without conversions with a retriable error."""
        for place in self._waiting:
            answer = self.read.partitions[place]
            self.read.partitions[place] = _try_again(answer)

    def _made_of(
        self,
        partition: HostedPartition,
        wanted: FetchPartition,
        answer: FetchPartitionResponse,
        stored: UnconvertedSlice,
    ) -> FetchPartitionResponse:
        """The answer with the conversions up to the first missing batch; that and the missing
        batches after it are added to `needs`."""
        if self._stored_left <= 0 or self._batches_left <= 0:
            # The partition is first in the client's next fetch.
            return answer._replace(records=None)
        schema_id = self._schema_id(answer.topic, stored)
        if schema_id is None:
            return _try_again(answer)
        data = stored.copy()
        self._stored_left -= len(data)
        limit = min(wanted.partition_max_bytes, self._room)
        pieces: list[ConvertedBatch | memoryview] = []
        size = 0
        end_offset = wanted.fetch_offset
        batches = self._batches(partition, stored, data, schema_id)
        for each in batches:
            found = self._found(each)
            if found is None:
                missing = [each, *(other for other in batches if self._found(other) is None)]
                self.needs.append(_Need(missing, limit - size))
                break
            if isinstance(found, KafkaError):
                if not pieces:
                    return self._failed(partition, answer, each.header, found)
                break
            if size + len(found) > limit and not self.is_empty:
                break
            self.is_empty = False
            pieces.append(found)
            size += len(found)
            end_offset = each.header.next_offset
        self._room = max(0, self._room - size)
        if not pieces:
            return answer._replace(records=None)
        aborted = answer.aborted_transactions
        if self._fetch.request.isolation_level == READ_COMMITTED:
            known = partition.log.reads.aborted_transactions(wanted.fetch_offset, end_offset)
            aborted = [(every.producer_id, every.first_offset) for every in known]
        return answer._replace(records=SlicedRecords(pieces), aborted_transactions=aborted)

    def _schema_id(self, topic: str, stored: UnconvertedSlice) -> int | None:
        """None where the id is not known yet."""
        if stored.foreign_format is ForeignFormat.JSON:
            return OF_JSON
        return self._schema_ids.current(topic, stored.schema)

    def _batches(
        self,
        partition: HostedPartition,
        stored: UnconvertedSlice,
        data: memoryview,
        schema_id: int,
    ) -> Iterator["_StoredBatch"]:
        """The next batches, as many as may still be looked up."""
        for position, header in iter_headers(data):
            if self._batches_left <= 0:
                return
            self._batches_left -= 1
            key = _Key(
                partition.topic_id,
                partition.topic_partition.partition,
                header.base_offset,
                header.partition_leader_epoch,
                header.crc,
                stored.schema.latest.version,
                schema_id,
            )
            batch = data[position : position + header.size_in_bytes]
            yield _StoredBatch(key, header, batch, stored.schema)

    def _found(self, each: "_StoredBatch") -> ConvertedBatch | memoryview | KafkaError | None:
        """The bytes or error for a batch; None until it is converted."""
        if not is_typed(each.header):
            return each.batch if crc_matches(each.batch, 0, len(each.batch)) else _NOT_TYPED
        found = self._fetch.converted.get(each.key)
        return self._cache.get(each.key) if found is None else found

    def _failed(
        self,
        partition: HostedPartition,
        answer: FetchPartitionResponse,
        header: BatchHeader,
        failure: KafkaError,
    ) -> FetchPartitionResponse:
        code = failure.code
        if isinstance(failure, CorruptRecordError):
            offset = max(header.base_offset, partition.log.log_start_offset)
            self.damaged.append((partition, offset, failure))
        elif isinstance(failure, UnknownSchemaVersionError):
            code = _TRY_AGAIN
        return FetchPartitionResponse(answer.topic, answer.partition, int(code))


def _try_again(answer: FetchPartitionResponse) -> FetchPartitionResponse:
    return FetchPartitionResponse(answer.topic, answer.partition, int(_TRY_AGAIN))


def _records_of(each: _StoredBatch) -> bytearray:
    # The imports are here: they load Arrow, which a broker without such clients saves.
    if each.key.schema_id == OF_JSON:
        from storage_engine.protocol.typed.json_rows import as_json_batches

        return as_json_batches(each.batch, each.header, each.schema)
    from storage_engine.protocol.typed.avro_rows import as_avro_batches

    return as_avro_batches(each.batch, each.header, each.schema, each.key.schema_id)


def _converted(needs: Sequence[_Need], limit: int) -> dict[_Key, Converted]:
    """Convert batches up to the limits, at least one. Runs on any thread."""
    converted: dict[_Key, Converted] = {}
    total = 0
    for need in needs:
        size = 0
        for each in need.batches:
            if converted and total >= limit:
                return converted
            if size and size >= need.limit:
                break
            try:
                batch = ConvertedBatch(_records_of(each))
            except KafkaError as error:
                converted[each.key] = error.as_outcome()
                break
            except Exception as error:
                offset = each.header.base_offset
                log.error("", "batch not converted offset=%d", offset, exc_info=error)
                converted[each.key] = KafkaError(
                    "a batch met an error in this broker, see its log",
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                )
                break
            converted[each.key] = batch
            size += len(batch)
            total += len(batch)
    return converted
