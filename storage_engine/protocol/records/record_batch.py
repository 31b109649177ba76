"""The header of a record batch (magic 2): parse, check, patch.

Nothing here looks inside the records.

A batch on the wire and on disk (big endian):

    field                    at  bytes  meaning
    base_offset               0   8     of the first record; set by the leader, outside the CRC
    batch_length              8   4     bytes that follow this field
    partition_leader_epoch   12   4     set by the leader, outside the CRC
    magic                    16   1     2
    crc                      17   4     CRC-32C of everything from `attributes` to the end
    attributes               21   2     bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control
                                        6 delete horizon, 7 typed: columns in place of records
    last_offset_delta        23   4     offset of the last record minus base_offset
    base_timestamp           27   8     milliseconds; the records' timestamp deltas count from it
    max_timestamp            35   8     milliseconds; of every record when the type is LogAppendTime
    producer_id              43   8     -1: not idempotent
    producer_epoch           51   2
    base_sequence            53   4
    records_count            57   4
    records                  61         compressed as one block when the codec is not 0

Source: the record batch format of the Kafka protocol; R-LOG6, R-LOG12.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from storage_engine.core.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    InvalidTxnStateError,
    KafkaError,
    RecordTooLargeError,
    UnsupportedCompressionError,
    UnsupportedForMessageFormatError,
)

BytesLike = bytes | bytearray | memoryview

MAGIC = 2
HEADER_BYTES = 61
LENGTH_END = 12
"""`batch_length` counts the bytes from here on; base_offset and batch_length come before."""
MIN_BATCH_LENGTH = HEADER_BYTES - LENGTH_END

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
TYPED_BIT = 0x80
"""The records are columns, as `protocol.typed.directory` draws them; the codec is 0 then."""
_PRODUCER_BITS = CODEC_MASK | TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
"""The attribute bits that a client may set. Bit 6 (a delete horizon) is for compaction: set by a
client it would remove tombstones before their time."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
MAX_SEQUENCE = 0x7FFFFFFF
"""The largest sequence, an int32, after which a producer goes on at 0."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_MAGIC_AT = 16
_CRC_AT = 17
ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43

_BASE_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_PRODUCER = struct.Struct(">qhi")

assert _HEADER.size == HEADER_BYTES


class Codec(IntEnum):
    """The compression of a batch's records: bits 0-2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LAST_CODEC = max(Codec)


class BatchHeader(NamedTuple):
    """The 61 bytes before a batch's records, field by field."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_in_bytes(self) -> int:
        """The size of the whole batch, header included."""
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The number of the codec; a `Codec` unless the batch comes from a newer client."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return (self.attributes & TIMESTAMP_TYPE_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """True when its records are transaction markers, not data."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; NO_SEQUENCE for a batch that is not
        idempotent."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return advance_sequence(self.base_sequence, self.last_offset_delta)


def advance_sequence(sequence: int, count: int) -> int:
    """Return the sequence number `count` records later; it wraps from the largest int32 to 0."""
    return (sequence + count) & MAX_SEQUENCE


def read_header(buffer: BytesLike, position: int = 0) -> BatchHeader:
    """Return the header at `position`; neither the CRC nor the presence of all records is
    checked."""
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptRecordError(
            f"a record batch at byte {position} needs a header of {HEADER_BYTES} bytes,"
            f" only {max(0, len(buffer) - position)} are there"
        )
    # This does what BatchHeader._make does, without its check of the length, which the layout
    # settles.
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    if header[1] < MIN_BATCH_LENGTH:
        raise CorruptRecordError(
            f"the record batch at byte {position} (base offset {header.base_offset}) says"
            f" its length is {header.length}, the least possible is {MIN_BATCH_LENGTH}"
        )
    return header


def iter_headers(buffer: BytesLike) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every whole batch; a batch that is cut off at the end is left
    out."""
    position = 0
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        following = position + LENGTH_END + header.length
        if following > end:
            return
        yield position, header
        position = following


def compute_crc(buffer: BytesLike, position: int, size: int) -> int:
    """Return the CRC-32C of the part of the batch [position, position + size) that it protects."""
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : position + size])


def crc_matches(buffer: BytesLike, position: int, size: int) -> bool:
    """Return True when the CRC of the whole batch [position, position + size) is right."""
    (stored,) = _CRC.unpack_from(buffer, position + _CRC_AT)
    return bool(stored == compute_crc(buffer, position, size))


def validate_for_append(
    buffer: BytesLike,
    *,
    max_message_bytes: int,
    allow_transactional: bool = True,
    allow_typed: bool = False,
) -> list[tuple[int, BatchHeader]]:
    """Make all checks of a leader; return position and header of every batch of a producer's bytes.

    `allow_transactional` False refuses the batches of transactions. `allow_typed`: the topic has a
    schema, so that batches may be typed, whose directories are still to be checked. Raises the
    KafkaError that the producer is to get. Offsets and leader epoch are not checked, since the
    leader sets them.
    """
    end = len(buffer)
    if end == 0:
        raise InvalidRecordError("a produce request has no record batch for the partition")
    view = memoryview(buffer)
    batches: list[tuple[int, BatchHeader]] = []
    position = 0
    while position < end:
        if end - position <= _MAGIC_AT:
            raise CorruptRecordError(f"a record batch is cut off after {end - position} bytes")
        magic = view[position + _MAGIC_AT]
        if magic != MAGIC:
            raise _wrong_magic(magic)
        header = read_header(view, position)
        # This runs for each produced batch: access by name would cost a tenth of the whole check
        # each.
        _, length, _, _, crc, attributes, delta, _, _, producer_id, _, _, count = header
        size = LENGTH_END + length
        following = position + size
        if following > end:
            raise CorruptRecordError(
                f"a record batch says it has {size} bytes, only {end - position} are there"
            )
        if size > max_message_bytes:
            raise RecordTooLargeError(
                f"a record batch of {size} bytes is larger than max.message.bytes ="
                f" {max_message_bytes}: send smaller batches or raise the setting"
            )
        if crc != crc32c(view[position + ATTRIBUTES_AT : following]):
            raise CorruptRecordError(f"the CRC of a record batch of {size} bytes does not match")
        if not (0 < count == delta + 1 and 0 <= attributes <= LAST_CODEC and producer_id < 0):
            _check_fields(header, allow_typed)
            if header.is_transactional and not allow_transactional:
                raise InvalidTxnStateError(
                    "a transactional record batch came outside a transaction"
                )
        batches.append((position, header))
        position = following
    return batches


def _wrong_magic(magic: int) -> KafkaError:
    if magic < MAGIC:
        return UnsupportedForMessageFormatError(
            f"messages of magic {magic} are not stored, only record batches of magic {MAGIC}:"
            " use a client of Kafka 0.11 or later"
        )
    return CorruptRecordError(f"a record batch has magic {magic}, only {MAGIC} is known")


def _check_fields(header: BatchHeader, allow_typed: bool) -> None:
    """Check the fields of an intact batch that a producer could have set wrong."""
    count = header.records_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise InvalidRecordError(
            f"a record batch of {count} records has last offset delta {header.last_offset_delta},"
            f" it must have at least one record and the delta {count - 1}"
        )
    attributes = header.attributes
    if attributes & TYPED_BIT:
        if not allow_typed:
            raise InvalidRecordError(
                "a typed batch came for a topic without a schema: send records, or create a typed"
                " topic"
            )
        if attributes & CODEC_MASK:
            raise InvalidRecordError(
                "a typed batch is compressed as a whole: only its columns may be, each by itself"
            )
        attributes &= ~TYPED_BIT
    if attributes & ~_PRODUCER_BITS:
        raise InvalidRecordError(
            f"a record batch has attributes {attributes & 0xFFFF:#x}, a client may set the bits"
            f" {_PRODUCER_BITS:#x}"
        )
    if attributes & CODEC_MASK > LAST_CODEC:
        raise UnsupportedCompressionError(
            f"a record batch has the unknown compression codec {attributes & CODEC_MASK}"
        )
    if attributes & CONTROL_BIT:
        raise InvalidRecordError("a client can't write control batches")
    if attributes & TIMESTAMP_TYPE_BIT:
        raise KafkaError(
            "a client can't write batches of timestamp type LogAppendTime",
            ErrorCode.INVALID_TIMESTAMP,
        )
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise InvalidRecordError(
                f"a record batch of producer id {header.producer_id} has epoch"
                f" {header.producer_epoch} and sequence {header.base_sequence}, both must be >= 0"
            )
    elif attributes & TRANSACTIONAL_BIT:
        raise InvalidRecordError("a transactional record batch has no producer id")


def write_header(buffer: bytearray | memoryview, header: BatchHeader) -> None:
    """Write `header` as it is, its CRC too."""
    _HEADER.pack_into(buffer, 0, *header)


def seal(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Write `header` with the right CRC in front of records that are already in place."""
    _HEADER.pack_into(buffer, position, *header)
    _write_crc(buffer, position, header.size_in_bytes)


def empty_batch(*, base_offset: int, next_offset: int, leader_epoch: int) -> bytearray:
    """Return a batch without records that stands for the offsets [base_offset, next_offset), as
    compaction leaves one where it removed all of them.
    """
    buffer = bytearray(HEADER_BYTES)
    header = BatchHeader(
        base_offset=base_offset,
        length=HEADER_BYTES - LENGTH_END,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=next_offset - 1 - base_offset,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=0,
    )
    seal(buffer, 0, header)
    return buffer


def patch(
    buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int
) -> None:
    """Set the fields that the leader assigns; both lie outside the CRC."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + LENGTH_END, leader_epoch)


def patch_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Give every record of the batch the time of the append, and the batch a new CRC."""
    header = read_header(buffer, position)
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_AT, header.attributes | TIMESTAMP_TYPE_BIT)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    _write_crc(buffer, position, header.size_in_bytes)


def patch_producer(
    buffer: bytearray | memoryview,
    position: int,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool = False,
) -> None:
    """Set the batch's producer and a new CRC; with `transactional` as part of the producer's
    transaction."""
    header = read_header(buffer, position)
    if transactional:
        _ATTRIBUTES.pack_into(
            buffer, position + ATTRIBUTES_AT, header.attributes | TRANSACTIONAL_BIT
        )
    _PRODUCER.pack_into(buffer, position + _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _write_crc(buffer, position, header.size_in_bytes)


def _write_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    _CRC.pack_into(buffer, position + _CRC_AT, compute_crc(buffer, position, size))
