"""Records that no leader may take, with the code that their producer must get, and some odd ones
that are fine. Made by hand, with a right CRC unless that is what is wrong.
"""

import struct
import zlib

import numpy as np
import pyarrow as pa
import zstandard
from crc32c import crc32c
from hypothesis import strategies as st

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.records.record_batch import HEADER_BYTES, Codec
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.protocol.naive_codec import NaiveRecord, encode_record, varint

MAX_MESSAGE_BYTES = 100_000
"""`max.message.bytes` of the logs that these are sent to."""

BOMB_BYTES = 1 << 30

INT32_MAX = 0x7FFFFFFF
INT32_MIN = -0x80000000
INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)


def records(count: int, *, key: bytes | None = b"key", size: int = 5) -> bytes:
    """The records of a batch, not compressed."""
    return b"".join(
        encode_record(NaiveRecord(number, 1000, key, b"v" * size), 0, 1000)
        for number in range(count)
    )


def batch(
    body: bytes | None = None,
    *,
    count: int = 3,
    last_offset_delta: int | None = None,
    length_off_by: int = 0,
    length: int | None = None,
    crc_xor: int = 0,
    magic: int = 2,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = 0,
    base_timestamp: int = 1000,
    max_timestamp: int = 1000,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch of three records with keys, but for what is asked for."""
    body = records(3) if body is None else body
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    rest = struct.pack(">hiqqqhi", attributes, delta, base_timestamp, max_timestamp, *producer)
    rest += struct.pack(">i", count) + body
    if length is None:
        length = 9 + len(rest) + length_off_by
    crc = crc32c(rest) ^ crc_xor
    return struct.pack(">qiibI", base_offset, length, leader_epoch, magic, crc) + rest


def message_set(magic: int) -> bytes:
    """Two messages as clients before Kafka 0.11 wrote them."""
    messages = b""
    for number in range(2):
        fields = struct.pack(">bb", magic, 0)
        if magic == 1:
            fields += struct.pack(">q", 1000 + number)
        fields += struct.pack(">i", 3) + b"key" + struct.pack(">i", 5) + b"value"
        message = struct.pack(">I", zlib.crc32(fields)) + fields
        messages += struct.pack(">qi", number, len(message)) + message
    return messages


GOOD = batch()

REFUSED: dict[str, tuple[bytes, ErrorCode]] = {
    "a wrong CRC": (batch(crc_xor=1), ErrorCode.CORRUPT_MESSAGE),
    "a length that is one too short": (batch(length_off_by=-1), ErrorCode.CORRUPT_MESSAGE),
    "a length that is one too long": (batch(length_off_by=1), ErrorCode.CORRUPT_MESSAGE),
    "a length of zero": (batch(length=0), ErrorCode.CORRUPT_MESSAGE),
    "a length below the header's": (batch(length=48), ErrorCode.CORRUPT_MESSAGE),
    "a length of -1": (batch(length=-1), ErrorCode.CORRUPT_MESSAGE),
    "the least length": (batch(length=INT32_MIN), ErrorCode.CORRUPT_MESSAGE),
    "the largest length": (batch(length=INT32_MAX), ErrorCode.CORRUPT_MESSAGE),
    "no records": (batch(b"", count=0), ErrorCode.INVALID_RECORD),
    "no records by the count": (
        batch(count=0, last_offset_delta=2),
        ErrorCode.INVALID_RECORD,
    ),
    "minus one records": (batch(count=-1), ErrorCode.INVALID_RECORD),
    "the least count": (
        batch(count=INT32_MIN, last_offset_delta=INT32_MAX),
        ErrorCode.INVALID_RECORD,
    ),
    "a count above the last offset delta": (
        batch(count=4, last_offset_delta=2),
        ErrorCode.INVALID_RECORD,
    ),
    "a last offset delta above the count": (
        batch(count=3, last_offset_delta=INT32_MAX),
        ErrorCode.INVALID_RECORD,
    ),
    "a negative last offset delta": (
        batch(count=3, last_offset_delta=-3),
        ErrorCode.INVALID_RECORD,
    ),
    "messages of magic 0": (message_set(0), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "messages of magic 1": (message_set(1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "magic 3": (batch(magic=3), ErrorCode.CORRUPT_MESSAGE),
    "magic -1": (batch(magic=-1), ErrorCode.CORRUPT_MESSAGE),
    "codec 5": (batch(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (batch(attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "the leader's timestamp type": (batch(attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
    "a control batch": (batch(attributes=0x20), ErrorCode.INVALID_RECORD),
    "a control batch of a transaction": (
        batch(attributes=0x30, producer=(7, 0, 0)),
        ErrorCode.INVALID_RECORD,
    ),
    "a compaction's delete horizon": (batch(attributes=0x40), ErrorCode.INVALID_RECORD),
    "reserved attribute 7": (batch(attributes=0x80), ErrorCode.INVALID_RECORD),
    "reserved attribute 15": (batch(attributes=-0x8000), ErrorCode.INVALID_RECORD),
    "a transaction without a producer": (batch(attributes=0x10), ErrorCode.INVALID_RECORD),
    "a transaction that nobody began": (
        batch(attributes=0x10, producer=(7, 0, 0)),
        ErrorCode.INVALID_TXN_STATE,
    ),
    "a producer without an epoch": (batch(producer=(7, -1, 0)), ErrorCode.INVALID_RECORD),
    "a producer without a sequence": (batch(producer=(7, 0, -1)), ErrorCode.INVALID_RECORD),
    "a producer with the least sequence": (
        batch(producer=(7, 0, INT32_MIN)),
        ErrorCode.INVALID_RECORD,
    ),
    "no bytes": (b"", ErrorCode.INVALID_RECORD),
    "a few bytes": (GOOD[:16], ErrorCode.CORRUPT_MESSAGE),
    "a header that is cut off": (GOOD[: HEADER_BYTES - 1], ErrorCode.CORRUPT_MESSAGE),
    "records that are cut off": (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
    "a few bytes behind a batch": (GOOD + b"garbage", ErrorCode.CORRUPT_MESSAGE),
    "a lot of bytes behind a batch": (GOOD + b"\xff" * 200, ErrorCode.CORRUPT_MESSAGE),
    "zeros behind a batch": (GOOD + bytes(200), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "a bad batch behind a good one": (GOOD + batch(crc_xor=1), ErrorCode.CORRUPT_MESSAGE),
    "more than max.message.bytes": (
        batch(records(1, size=MAX_MESSAGE_BYTES), count=1),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
}
"""By every topic."""

REFUSED_BY_PLAIN_TOPICS: dict[str, tuple[bytes, ErrorCode]] = {
    "a new producer that does not begin at 0": (
        batch(producer=(7, 0, 9)),
        ErrorCode.NOT_ENOUGH_REPLICAS,
    ),
}
"""A compacted one may have forgotten the producer."""

NULL_RECORDS = ErrorCode.INVALID_RECORD
"""The error for a request with null in place of a partition's records."""

ODD_BUT_FINE: dict[str, bytes] = {
    "several batches": GOOD + batch(count=1, body=records(1)) + GOOD,
    "a base offset and an epoch of its own": batch(base_offset=INT64_MAX, leader_epoch=INT32_MAX),
    "a negative base offset": batch(base_offset=INT64_MIN, leader_epoch=INT32_MIN),
    "the least timestamps": batch(base_timestamp=INT64_MIN, max_timestamp=INT64_MIN),
    "the largest timestamps": batch(base_timestamp=INT64_MAX, max_timestamp=INT64_MAX),
    "a maximum before the base": batch(base_timestamp=INT64_MAX, max_timestamp=INT64_MIN),
    "a negative producer id": batch(producer=(INT64_MIN, -1, -1)),
    "an epoch without a producer": batch(producer=(-1, 5, 5)),
}


def compressed(plain: bytes) -> bytes:
    return bytes(zstandard.compress(plain, 3))


def bomb(size: int = BOMB_BYTES) -> bytes:
    """A record with a value of `size` zeros, packed into some KiB."""
    head = b"\x00" + varint(0) + varint(0) + varint(3) + b"key" + varint(size)
    head = varint(len(head) + size + 1) + head
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    packed = packer.compress(head)
    zeros = bytes(1 << 20)
    for _ in range(size >> 20):
        packed += packer.compress(zeros)
    return bytes(packed + packer.compress(b"\x00") + packer.flush())


def crowd(count: int) -> bytes:
    """`count` of the least records there are but for a key, as they come in a batch."""
    nothing = pa.array([b""]).take(pa.array(np.zeros(count, np.int32)))
    (encoded,) = encode_batches(nothing, nothing, now_ms=0, batch_bytes=1 << 30)
    return bytes(encoded.data[HEADER_BYTES:])


def headers(count: int) -> bytes:
    """A record with so many headers of two bytes each."""
    body = b"\x00\x00\x00" + varint(1) + b"k" + varint(0) + varint(count) + b"\x00\x01" * count
    return varint(len(body)) + body


def refused_by_compacted_topics() -> dict[str, tuple[bytes, ErrorCode]]:
    """Batches that only a topic whose records are looked at can refuse; codes as above."""
    zstd = int(Codec.ZSTD)
    three = compressed(records(3))
    bodies: dict[str, bytes] = {
        "garbage for records": batch(b"garbage garbage"),
        "garbage for a zstd frame": batch(b"garbage garbage", attributes=zstd),
        "half a zstd frame": batch(three[: len(three) // 2], attributes=zstd),
        "zstd said to be gzip": batch(three, attributes=int(Codec.GZIP)),
        "zstd said to be snappy": batch(three, attributes=int(Codec.SNAPPY)),
        "zstd said to be lz4": batch(three, attributes=int(Codec.LZ4)),
        "fewer records than the count": batch(records(2)),
        "more records than the count": batch(records(4)),
        "fewer compressed records than the count": batch(compressed(records(2)), attributes=zstd),
        "more compressed records than the count": batch(compressed(records(4)), attributes=zstd),
        "the largest count": batch(three, count=INT32_MAX, attributes=zstd),
        "no key": batch(records(3, key=None)),
        "no key, compressed": batch(compressed(records(3, key=None)), attributes=zstd),
    }
    return {name: (data, ErrorCode.INVALID_RECORD) for name, data in bodies.items()}


mutations = st.lists(
    st.tuples(
        st.sampled_from(["byte", "cut", "insert", "double"]),
        st.integers(0, 10_000),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes, changes: list[tuple[str, int, int]]) -> bytearray:
    result = bytearray(data)
    for kind, place, byte in changes:
        at = place % max(1, len(result))
        match kind:
            case "byte" if result:
                result[at] = byte
            case "cut":
                del result[at:]
            case "insert":
                result[at:at] = bytes([byte])
            case "double":
                result += result[at:]
    return result
