"""The rules for appends that follow from a log's settings, computed once and not for each append:
the timestamps that are taken, the moment to roll a segment, the form of batches.

A batch from a client may need a preparation before its append: its keys are checked (cleanup.policy
with `compact`), its records are compressed with another codec (compression.type), or records in
JSON or Avro become the columns of a typed topic. A preparation uses no state of the log, so that it
can run on another thread. Source: R-LOG2, R-LOG7, R-LOG10, R-LOG12, KIP-937.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, ParamSpec, TypeVar
from uuid import UUID
from zlib import crc32

from storage_engine.core.errors import (
    CorruptRecordError,
    DecompressedTooLargeError,
    ErrorCode,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    RecordTooLargeError,
)
from storage_engine.core.schemas.avro.schema import AvroSchema
from storage_engine.core.typed.foreign_format import ForeignFormat
from storage_engine.core.typed.topic_schema import TopicSchema, UnknownSchemaVersionError
from storage_engine.log.log_config import MAX_SEGMENT_BYTES, NO_TIME_LIMIT, LogConfig
from storage_engine.log.segments.indexes import MAX_RELATIVE_OFFSET
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.segment_list import LogFolder
from storage_engine.protocol.apis.wire import NO_TOPIC_ID
from storage_engine.protocol.records.compression import (
    MAX_DECOMPRESSED_BYTES,
    decompress,
    recompressed,
    uncompressed,
)
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    BytesLike,
    Codec,
    iter_headers,
    read_header,
    validate_for_append,
)
from storage_engine.protocol.records.record_keys import WALKED_RECORDS_MAX, check_batch_keys
from storage_engine.protocol.typed.typed_batch import check_typed_batch, claimed_columns, is_typed

CHECKED_COLUMNS_MAX = 1_000
"""The most columns of the typed batches of an append that are checked at once, which takes about a
millisecond."""

LEAST_COLUMNS = 20
"""The fewest columns that a batch counts as: a batch with fewer takes as long to check."""

MOST_WRITERS = 100
"""The most schemas that the records of one append may be written in."""

Args = ParamSpec("Args")
Made = TypeVar("Made")


class UnknownWritersError(KafkaError):
    """Records are written in schemas that were not handed in."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS

    def __init__(self, ids: frozenset[int]) -> None:
        super().__init__("the schemas of records are not known yet")
        self.ids = ids
        """The ids of all records of the append."""


_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""The codec that each `compression.type` of a topic stores; None: the producer's."""

_COLUMN_CODECS = {
    None: Codec.LZ4,
    Codec.NONE: Codec.NONE,
    Codec.GZIP: Codec.ZSTD,
    Codec.SNAPPY: Codec.LZ4,
    Codec.LZ4: Codec.LZ4,
    Codec.ZSTD: Codec.ZSTD,
}
"""The codec of columns that are made here, for each of them; Arrow knows only these."""


class Requirement(NamedTuple):
    """The demands of a topic's settings on batches."""

    keys: bool
    """True when every record must have a key."""
    codec: Codec | None
    """The codec for batches; None: any."""
    schema: TopicSchema | None = None
    """The schema for typed batches; None: records are stored as they come."""
    foreign_format: ForeignFormat = ForeignFormat.JSON
    """The records of which typed batches are made."""

    def is_settled_at_once(self, records: memoryview) -> bool:
        """Return True when an append can be accepted or refused at once, with no decompression: its
        codec is right, and where keys are demanded, it has few records to check; of a typed topic,
        it has typed batches of few columns and no others."""
        count = 0
        try:
            for position, header in iter_headers(records):
                if self.schema is not None:
                    count += max(LEAST_COLUMNS, claimed_columns(records, position))
                    if count > CHECKED_COLUMNS_MAX or not is_typed(header):
                        return False
                    continue
                if self.codec not in (None, header.compression):
                    return False
                count += header.records_count
                if self.keys and (header.compression or count > WALKED_RECORDS_MAX):
                    return False
        except CorruptRecordError:
            # The append reports the error.
            pass
        return True


class DecompressionRoom:
    """How much the batches of one append may decompress to, and make of columns."""

    __slots__ = ("is_exceeded", "left", "most")

    def __init__(self, most: int = MAX_DECOMPRESSED_BYTES) -> None:
        self.most = self.left = most
        self.is_exceeded = False

    @property
    def used(self) -> int:
        return self.most - self.left

    def take(self, size: int) -> None:
        """RecordTooLargeError where there is less room."""
        if size > self.left:
            raise self.exceeded()
        self.left -= size

    def exceeded(self) -> RecordTooLargeError:
        """The error where there is less room than is needed."""
        self.left, self.is_exceeded = 0, True
        return RecordTooLargeError(
            "the record batches of one request for one partition decompress to more than"
            f" {self.most} bytes: send smaller batches"
        )


def requirement_of(config: LogConfig) -> Requirement | None:
    """Return the requirement of a topic's settings; None when any valid batch is appended as it
    is."""
    codec = _CODECS[config.compression_type]
    if config.schema is not None:
        # The columns of a key have no nulls, so that every row has one.
        return Requirement(False, codec, config.schema, config.foreign_format)
    return Requirement(config.compacts, codec) if config.compacts or codec is not None else None


def prepare(
    records: memoryview,
    requirement: Requirement,
    *,
    max_message_bytes: int,
    allow_transactional: bool,
    topic_id: UUID = NO_TOPIC_ID,
    room: DecompressionRoom | None = None,
    writers: Mapping[int, AvroSchema] = MappingProxyType({}),
) -> memoryview:
    """Return the batches of one append as they are to be stored, in memory of their own unless they
    are unchanged. Raises the KafkaError that their producer is to get; UnknownWritersError for
    records of Avro in schemas that are not among `writers`. Runs on any thread.
    """
    room = room or DecompressionRoom()
    schema = requirement.schema
    batches = validate_for_append(
        records,
        max_message_bytes=max_message_bytes,
        allow_transactional=allow_transactional,
        allow_typed=schema is not None,
    )
    if schema is None:
        parts = _recompressed(records, batches, requirement, room)
    else:
        columns = _Columns(
            schema, requirement.foreign_format, topic_id, _COLUMN_CODECS[requirement.codec], writers
        )
        parts = _typed(records, batches, columns, max_message_bytes, room)
    if all(isinstance(part, memoryview) for part in parts):
        return records
    return memoryview(parts[0] if len(parts) == 1 else bytearray().join(parts))


def check_typed(
    records: memoryview,
    batches: list[tuple[int, BatchHeader]],
    *,
    schema: TopicSchema,
    topic_id: UUID,
) -> None:
    """Raise the error of the first batch that does not fit a typed topic, by their directories."""
    for position, header in batches:
        if not is_typed(header):
            raise InvalidRecordError(
                "a batch of records for a typed topic was not converted to columns"
            )
        batch = records[position : position + header.size_in_bytes]
        check_typed_batch(header, batch, schema=schema, topic_id=topic_id)


class _Columns(NamedTuple):
    """The columns to be made of records, and the schemas to read these by."""

    schema: TopicSchema
    foreign_format: ForeignFormat
    topic_id: UUID
    codec: Codec
    writers: Mapping[int, AvroSchema]


def _typed(
    records: memoryview,
    batches: list[tuple[int, BatchHeader]],
    columns: _Columns,
    max_message_bytes: int,
    room: DecompressionRoom,
) -> list[BytesLike]:
    """Return each batch as a typed one: with the same number of rows, so that offsets and sequences
    stay as their producer counts them, and therefore never in two."""
    plain = [_plain_or_typed(records, position, header, room) for position, header in batches]
    parts: list[BytesLike] = []
    for (_, header), batch in zip(batches, plain, strict=True):
        if is_typed(header):
            check_typed_batch(header, batch, schema=columns.schema, topic_id=columns.topic_id)
            parts.append(batch)
            continue
        made = _columns_of(batch, columns)
        if made is None:
            # Of all batches at once, so that an append asks for schemas once.
            raise UnknownWritersError(_writers_of(plain))
        typed = made
        if len(typed) > max_message_bytes:
            raise RecordTooLargeError(
                f"a record batch of {header.size_in_bytes} bytes has {len(typed)} as columns, more"
                f" than max.message.bytes = {max_message_bytes}: send smaller batches or raise the"
                " setting"
            )
        room.take(len(typed))
        parts.append(typed)
    return parts


def _plain_or_typed(
    records: memoryview, position: int, header: BatchHeader, room: DecompressionRoom
) -> memoryview:
    """Return a batch without compression; its CRC is that of the compressed one."""
    batch = records[position : position + header.size_in_bytes]
    if is_typed(header) or header.compression == Codec.NONE:
        return batch
    return uncompressed(header, _section(header, batch, room))


def _writers_of(batches: list[memoryview]) -> frozenset[int]:
    """The ids of the schemas in which the records are written."""
    from storage_engine.protocol.typed.avro_columns import schema_ids

    ids: set[int] = set()
    for batch in batches:
        header = read_header(batch)
        if not is_typed(header):
            ids |= _blaming_the_producer(schema_ids, batch, header)
    if len(ids) > MOST_WRITERS:
        raise InvalidRecordError(
            f"the records of one request are of {len(ids)} schemas, more than {MOST_WRITERS}: send "
            "them in several requests"
        )
    return frozenset(ids)


def _columns_of(batch: memoryview, columns: _Columns) -> bytearray | None:
    """None for records of Avro in schemas that are not known."""
    # The imports are here: they load Arrow, which a broker without such producers saves.
    schema, form, topic_id, codec, writers = columns
    header = read_header(batch)
    if form is ForeignFormat.AVRO:
        from storage_engine.protocol.typed.avro_columns import (
            UnknownSchemaIdsError,
            typed_from_avro,
        )

        try:
            return _blaming_the_producer(
                typed_from_avro, batch, header, schema, topic_id, codec, writers
            )
        except UnknownSchemaIdsError:
            return None
    from storage_engine.protocol.typed.json_columns import typed_from_json

    return _blaming_the_producer(typed_from_json, batch, header, schema, topic_id, codec)


def _blaming_the_producer(
    convert: Callable[Args, Made], *args: Args.args, **named: Args.kwargs
) -> Made:
    try:
        return convert(*args, **named)
    except CorruptRecordError as error:
        # Its CRC is right: the producer would send it again for ever.
        raise InvalidRecordError(f"a record batch is damaged: {error}") from None
    except UnknownSchemaVersionError as error:
        # What every client answers by sending again.
        raise KafkaError(str(error), ErrorCode.NOT_ENOUGH_REPLICAS) from None


def _recompressed(
    records: memoryview,
    batches: list[tuple[int, BatchHeader]],
    requirement: Requirement,
    room: DecompressionRoom,
) -> list[BytesLike]:
    """Return each batch with the codec that is demanded; InvalidRecordError for a record without
    the key that it must have."""
    parts: list[BytesLike] = []
    for position, header in batches:
        batch = records[position : position + header.size_in_bytes]
        codec = requirement.codec
        if codec is not None and header.compression == codec:
            codec = None
        if codec is None and not requirement.keys:
            parts.append(batch)
            continue
        section = _section(header, batch, room)
        if requirement.keys:
            check_batch_keys(header, batch, section)
        parts.append(batch if codec is None else recompressed(header, section, codec))
    return parts


def _section(header: BatchHeader, batch: memoryview, room: DecompressionRoom) -> BytesLike:
    try:
        section = decompress(header.compression, batch[HEADER_BYTES:], max_bytes=room.left)
    except DecompressedTooLargeError:
        raise room.exceeded() from None
    except CorruptRecordError as error:
        raise InvalidRecordError(f"a record batch can't be decompressed: {error}") from None
    room.take(len(section))
    return section


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """The limits for the distance between records' timestamps and the broker's clock, in one topic;
    NO_TIME_LIMIT where there is none. Only the header of a batch is checked, so that the cost does
    not depend on its records.

    The header has the largest timestamp, which decides exactly whether a batch is too far ahead. It
    has no smallest timestamp; that of the first record (the base timestamp) stands for it, so that
    a batch in which only a later record is too old is accepted. A record without a timestamp (-1)
    is always accepted.
    """

    before_max_ms: int
    after_max_ms: int

    @property
    def are_set(self) -> bool:
        """Return True when any batch may have to be refused."""
        return min(self.before_max_ms, self.after_max_ms) < NO_TIME_LIMIT

    def check(self, header: BatchHeader, now_ms: int) -> None:
        """Raise InvalidTimestampError for a batch outside the limits."""
        newest_ms = header.max_timestamp
        if newest_ms - now_ms > self.after_max_ms:
            raise InvalidTimestampError(
                f"a record's timestamp {newest_ms} is {newest_ms - now_ms} ms ahead of the broker's"
                f" clock, message.timestamp.after.max.ms={self.after_max_ms}: send milliseconds"
                " since 1970"
            )
        oldest_ms = min(
            (ms for ms in (header.base_timestamp, newest_ms) if ms >= 0), default=now_ms
        )
        if now_ms - oldest_ms > self.before_max_ms:
            raise InvalidTimestampError(
                f"a record's timestamp {oldest_ms} is {now_ms - oldest_ms} ms behind the broker's"
                f" clock, message.timestamp.before.max.ms={self.before_max_ms}"
            )


class RollRule:
    """The rule for beginning a new segment. It is applied before an append, to the active segment
    as it would be afterwards."""

    __slots__ = ("_age_max_ms", "segment_bytes")

    def __init__(self, config: LogConfig, name: str) -> None:
        """`name` spreads the jitter: logs that were created at the same time shall not all roll at
        the same time.
        """
        self.segment_bytes = min(config.segment_bytes, MAX_SEGMENT_BYTES)
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        spread_ms = crc32(name.encode()) * jitter_ms >> 32
        self._age_max_ms = config.segment_ms - spread_ms

    def demands_roll(
        self, segment: LogSegment, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Return True when `size` more bytes up to `last_offset` must go to a new segment."""
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if segment.size == 0:
            return False
        return (
            segment.size + size > self.segment_bytes
            or segment.indexes_full
            or self.is_too_old(segment, max_timestamp, now_ms)
        )

    def is_too_old(self, segment: LogSegment, max_timestamp: int, now_ms: int) -> bool:
        """Return True when the segment is too old. Its age counts from its first batch's timestamp,
        or in the broker's time when that can't be right.
        """
        first = segment.first_timestamp
        if first is None:
            first = segment.time_of_first_batch()
        # A timestamp ahead of the broker's clock (often in microseconds) is of no use either.
        if 0 <= first <= now_ms and max_timestamp >= 0:
            return max_timestamp - first > self._age_max_ms
        return now_ms - segment.created_ms > self._age_max_ms


class AppendRules:
    """The rules for a log's appends. Immutable, since logs with equal settings share an object."""

    def __init__(self, config: LogConfig, name: str) -> None:
        """`name`: see `RollRule`."""
        self.max_message_bytes = config.max_message_bytes
        self.stamps_append_time = config.stamps_append_time
        self.time_limits = TimeLimits(
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
        )
        self.compacts = config.compacts
        """True when every record must have a key."""
        self.requirement: Requirement | None = requirement_of(config)
        """The requirement for producers' batches; None: any valid batch is appended as it is."""
        self.roll_rule = RollRule(config, name)


def append_rules_of(folder: LogFolder) -> AppendRules:
    """Return the rules of that log: they are its own where its name or its schema matters."""
    config = folder.config
    if config.segment_jitter_ms or config.schema is not None:
        return AppendRules(config, str(folder.path))
    return _shared_rules(config)


@lru_cache(64)  # Of the topics that are opened one after the other.
def _shared_rules(config: LogConfig) -> AppendRules:
    return AppendRules(config, "")


class AppendResult(NamedTuple):
    """The offsets of the appended batches; for a duplicate, those of its first append."""

    base_offset: int
    last_offset: int
    next_offset: int
    """The log's end after this append."""

    log_append_time_ms: int
    """-1 unless `message.timestamp.type` is LogAppendTime."""

    duplicate: bool
    size: int
    """The number of bytes written."""


AppendOutcome = AppendResult | KafkaError
"""The result or the error of one append."""
