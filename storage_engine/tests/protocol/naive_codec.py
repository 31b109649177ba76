"""The record format written down as plainly as possible: the reference for tests of the real codec.

It is slow and trusting on purpose.
"""

import struct
from dataclasses import dataclass, field

from crc32c import crc32c

from storage_engine.protocol.records.compression import compress, decompress
from storage_engine.protocol.records.record_batch import Codec

HEADER = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True)
class NaiveRecord:
    """One record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def varint(value: int) -> bytes:
    encoded = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while encoded > 0x7F:
        out.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    out.append(encoded)
    return bytes(out)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    encoded = shift = 0
    while True:
        byte = data[position]
        position += 1
        encoded |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (encoded // 2 if encoded % 2 == 0 else -(encoded + 1) // 2), position


def nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: NaiveRecord, base_offset: int, base_timestamp: int) -> bytes:
    body = b"\x00" + varint(record.timestamp_ms - base_timestamp)
    body += varint(record.offset - base_offset) + nullable(record.key) + nullable(record.value)
    body += varint(len(record.headers))
    for key, value in record.headers:
        body += nullable(key.encode()) + nullable(value)
    return varint(len(body)) + body


def encode_batch(
    records: list[NaiveRecord],
    *,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    base_offset: int | None = None,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
    base_timestamp: int | None = None,
) -> bytes:
    """A batch of `records`, which may have gaps between their offsets."""
    first = records[0].offset if base_offset is None else base_offset
    last = records[-1].offset if last_offset is None else last_offset
    base = records[0].timestamp_ms if base_timestamp is None else base_timestamp
    if max_timestamp is None:
        max_timestamp = max(record.timestamp_ms for record in records)
    plain = b"".join(encode_record(record, first, base) for record in records)
    return wrap(
        bytes(compress(codec, plain)),
        count=len(records),
        attributes=attributes | codec,
        base_offset=first,
        last_offset_delta=last - first,
        base_timestamp=base,
        max_timestamp=max_timestamp,
    )


def wrap(
    body: bytes,
    *,
    count: int,
    attributes: int = 0,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
) -> bytes:
    """`body` behind a header with a right CRC, whatever it is."""
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    rest = struct.pack(
        ">hiqqqhii", attributes, delta, base_timestamp, max_timestamp, -1, -1, -1, count
    )
    rest += body
    return struct.pack(">qiibI", base_offset, 9 + len(rest), 0, 2, crc32c(rest)) + rest


def decode_batch(data: bytes) -> list[NaiveRecord]:
    """The records of one whole batch."""
    header = HEADER.unpack_from(data)
    base_offset, attributes, base_timestamp = header[0], header[5], header[7]
    max_timestamp, count = header[8], header[12]
    assert header[4] == crc32c(data[21:])
    body = bytes(decompress(attributes & 7, data[61:], max_bytes=1 << 30))
    position = 0
    records = []
    for _ in range(count):
        length, position = read_varint(body, position)
        end = position + length
        timestamp, position = read_varint(body, position + 1)
        offset, position = read_varint(body, position)
        key, position = _read_nullable(body, position)
        value, position = _read_nullable(body, position)
        header_count, position = read_varint(body, position)
        headers = []
        for _ in range(header_count):
            name, position = _read_nullable(body, position)
            content, position = _read_nullable(body, position)
            assert name is not None
            headers.append((name.decode(), content))
        assert position == end
        time = max_timestamp if attributes & 8 else base_timestamp + timestamp
        records.append(NaiveRecord(base_offset + offset, time, key, value, headers))
    assert position == len(body)
    return records


def _read_nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    return data[position : position + length], position + length
