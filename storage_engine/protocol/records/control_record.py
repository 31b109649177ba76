"""Control batches: the markers that end transactions. A control batch holds exactly one record,
uncompressed, and takes one offset.

The record of a marker (big endian; lengths and deltas are zigzag varints as in every record):

    part    field              bytes  meaning
    key     version              2    0
            type                 2    0 abort, 1 commit; others end no transaction
    value   version              2    0
            coordinator_epoch    4    of the transaction coordinator that wrote it

Header: attributes have the bits 4 (transactional) and 5 (control); producer id and epoch are those
of the transaction's producer; the base sequence is -1. When compaction finds no data of the
transaction any more, the base timestamp becomes the time from which on the marker may go, and bit 6
says so (KIP-534). Source: KIP-98.
"""

import struct

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.protocol.records.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BytesLike,
    read_header,
    seal,
)

VARINT_BYTES = 5
"""The most bytes of a 32-bit varint."""
VARLONG_BYTES = 10
"""The most bytes of a 64-bit varint."""

ABORT = 0
COMMIT = 1

DELETE_HORIZON_BIT = 0x40
"""The base timestamp is the time from which on tombstones, or the marker, may go."""

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0


def encode_marker(
    producer_id: int, producer_epoch: int, marker: TransactionMarker, *, timestamp_ms: int
) -> memoryview:
    """Return a whole control batch, writable; base offset and leader epoch are for the log to
    set."""
    record = _record(
        _KEY.pack(_VERSION, COMMIT if marker.commits else ABORT),
        _VALUE.pack(_VERSION, marker.coordinator_epoch),
        timestamp_delta=0,
    )
    header = BatchHeader(
        base_offset=0,
        length=HEADER_BYTES - LENGTH_END + len(record),
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        records_count=1,
    )
    return _sealed(header, record)


def read_marker(batch: BytesLike) -> TransactionMarker | None:
    """Return the marker in a whole control batch; None for one that ends no transaction (of another
    type, or without its record). CorruptRecordError when it is no control record at all.
    """
    header = read_header(batch)
    if header.records_count == 0:
        return None
    key, value = _key_and_value(header, batch)
    if len(key) < _KEY.size:
        raise _damaged(header, f"its key has {len(key)} bytes")
    _, control_type = _KEY.unpack_from(key)
    if control_type not in (ABORT, COMMIT):
        return None
    if len(value) < _VALUE.size:
        raise _damaged(header, f"its value has {len(value)} bytes")
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return TransactionMarker(control_type == COMMIT, coordinator_epoch)


def with_delete_horizon(batch: BytesLike, horizon_ms: int) -> memoryview:
    """Return the same control batch with a delete horizon; its record keeps its timestamp."""
    header = read_header(batch)
    key, value = _key_and_value(header, batch)
    record = _record(key, value, timestamp_delta=header.max_timestamp - horizon_ms)
    header = header._replace(
        length=HEADER_BYTES - LENGTH_END + len(record),
        attributes=header.attributes | DELETE_HORIZON_BIT,
        base_timestamp=horizon_ms,
    )
    return _sealed(header, record)


def _sealed(header: BatchHeader, record: bytes) -> memoryview:
    buffer = bytearray(HEADER_BYTES) + record
    seal(buffer, 0, header)
    return memoryview(buffer)


def _record(key: bytes, value: bytes, *, timestamp_delta: int) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(0)
    body += varint(len(key)) + key + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def _key_and_value(header: BatchHeader, batch: BytesLike) -> tuple[bytes, bytes]:
    if header.records_count != 1 or header.attributes & CODEC_MASK:
        raise _damaged(header, f"{header.records_count} records, attributes {header.attributes}")
    view = memoryview(batch)[HEADER_BYTES : header.size_in_bytes]
    try:
        _, at = varint_at(view, 0)
        _, at = varint_at(view, at + 1)
        _, at = varint_at(view, at)
        key, at = _read_bytes(view, at)
        value, _ = _read_bytes(view, at)
    except ValueError:
        raise _damaged(header, "its record is cut off") from None
    return key, value


def _read_bytes(view: memoryview, at: int) -> tuple[bytes, int]:
    size, at = varint_at(view, at)
    if not 0 <= size <= len(view) - at:
        raise ValueError("it has not so many bytes")
    return bytes(view[at : at + size]), at + size


def _damaged(header: BatchHeader, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"the control batch at offset {header.base_offset} is damaged: {reason}"
    )


# --- single zigzag varints; `varints` has columns of them ---


def varint(value: int) -> bytes:
    """Return `value` as a zigzag varint."""
    encoded = (value << 1) ^ (value >> 63)
    written = bytearray()
    while encoded >= 0x80:
        written.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    written.append(encoded)
    return bytes(written)


def read_varint(
    view: memoryview, position: int, stop: int, most_bytes: int = VARINT_BYTES
) -> tuple[int, int] | None:
    """Return the value at `position` and the position after it; None when no whole varint is
    there."""
    encoded = 0
    for index in range(min(most_bytes, stop - position)):
        byte = view[position + index]
        encoded |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (encoded >> 1) ^ -(encoded & 1), position + index + 1
    return None


def varint_at(view: memoryview, position: int) -> tuple[int, int]:
    """Do the same up to the end of `view`; ValueError when none is there."""
    read = read_varint(view, position, len(view), VARLONG_BYTES)
    if read is None:
        raise ValueError("a number is cut off or too long")
    return read
