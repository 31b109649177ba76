"""A coordinator's records as record batches, and back. A batch is appended as a whole or not at
all.

The records of one step are one batch, unless that would be larger than the log allows. Then it is
cut, but never before a record that is tied to the one before it: a failover finds both or neither.

A tombstone is a null value. The formats of keys and values are those of each kind of coordinator:
`transaction_records`, `group_records`. Source: KIP-98.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.control_record import varint
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    BytesLike,
    iter_headers,
    seal,
)
from storage_engine.protocol.records.record_decoder import iter_decoded
from storage_engine.protocol.records.record_encoder import LARGEST_BATCH_BYTES, encode_batches
from storage_engine.protocol.state.state_fields import StateFields

KeyT = TypeVar("KeyT")
RecordT = TypeVar("RecordT")

RawEntry = tuple[bytes, bytes | None]
"""A key and its value; None: a tombstone."""

FEW = 16
"""Up to this number entries are cheaper one by one than as columns."""

ENTRY_BYTES = 32
"""The most bytes of an entry in a batch besides its key and value."""

_SAME_TIME = b"\0\0"
"""The start of a record: no attributes, and no difference to the base timestamp."""
_NULL = b"\x01"
_NO_HEADERS = b"\0"


def encode_raw(entries: Iterable[RawEntry], *, now_ms: int) -> memoryview:
    """Encode at least one entry as one batch; writable."""
    keys, values = zip(*entries, strict=True)
    if len(keys) <= FEW:
        return _encode_few(keys, values, now_ms)
    (batch,) = encode_batches(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        now_ms=now_ms,
        batch_bytes=LARGEST_BATCH_BYTES,
    )
    return batch.data


def encode_records(
    encode_key: Callable[[KeyT], bytes],
    encode_record: Callable[[RecordT], bytes],
    entries: Iterable[tuple[KeyT, RecordT | None]],
    *,
    now_ms: int,
    part_bytes: int,
    tied: Container[int] = (),
) -> list[tuple[int, memoryview]]:
    """Like `encode_parts`; None stands for a tombstone."""
    raw = (
        (encode_key(key), None if record is None else encode_record(record))
        for key, record in entries
    )
    return encode_parts(raw, now_ms=now_ms, part_bytes=part_bytes, tied=tied)


def encode_parts(
    entries: Iterable[RawEntry], *, now_ms: int, part_bytes: int, tied: Container[int] = ()
) -> list[tuple[int, memoryview]]:
    """Encode as `encode_raw` does, in batches of about `part_bytes` at most, in order, each with
    the number of its entries. A larger entry, or run of entries that are `tied` to the ones before
    them, has a batch of its own; `tied` are places among the entries."""
    parts: list[tuple[int, memoryview]] = []
    part: list[RawEntry] = []
    size = 0
    for run in _runs(entries, tied):
        run_bytes = sum(len(key) + len(value or b"") + ENTRY_BYTES for key, value in run)
        if part and size + run_bytes > part_bytes:
            parts.append((len(part), encode_raw(part, now_ms=now_ms)))
            part, size = [], 0
        part += run
        size += run_bytes
    if part:
        parts.append((len(part), encode_raw(part, now_ms=now_ms)))
    return parts


def _runs(entries: Iterable[RawEntry], tied: Container[int]) -> Iterator[list[RawEntry]]:
    """Yield the entries in runs that may not be cut."""
    run: list[RawEntry] = []
    for place, entry in enumerate(entries):
        if run and place not in tied:
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def _encode_few(keys: Sequence[bytes], values: Sequence[bytes | None], now_ms: int) -> memoryview:
    """Return the same bytes as the general way."""
    data = bytearray(HEADER_BYTES)
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        record = bytearray(_SAME_TIME)
        record += varint(number)
        record += varint(len(key))
        record += key
        if value is None:
            record += _NULL
        else:
            record += varint(len(value))
            record += value
        record += _NO_HEADERS
        data += varint(len(record))
        data += record
    header = BatchHeader(
        base_offset=0,
        length=len(data) - LENGTH_END,
        partition_leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=len(keys) - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=len(keys),
    )
    seal(data, 0, header)
    return memoryview(data)


def read_records(
    batches: BytesLike,
    fields: StateFields[KeyT],
    decode_record: Callable[[KeyT, bytes], RecordT],
    troubles: list[str],
) -> Iterator[tuple[int, KeyT, RecordT | UnreadableRecord | None]]:
    """Yield offset, key and record of each entry, None for a tombstone. Keys of later versions, and
    damaged ones, are left out; the reasons of those are appended to `troubles`."""
    for offset, raw_key, raw in readable(batches, fields.log, troubles):
        try:
            key = fields.decode_key(raw_key)
        except CorruptRecordError as failure:
            troubles.append(f"the record at offset {offset} counts for nothing: {failure}")
            continue
        if key is None:
            continue
        try:
            yield offset, key, None if raw is None else decode_record(key, raw)
        except CorruptRecordError as failure:
            yield offset, key, UnreadableRecord(str(failure))


def readable(
    batches: BytesLike, log: str, troubles: list[str]
) -> list[tuple[int, bytes, bytes | None]]:
    """Return what `iter_raw` yields, without the batches that can't be decoded; the reasons are
    appended to `troubles`."""
    try:
        return list(iter_raw(batches, log))
    except CorruptRecordError:
        pass
    view = memoryview(batches)
    found: list[tuple[int, bytes, bytes | None]] = []
    for position, header in iter_headers(view):
        try:
            found += list(iter_raw(view[position : position + header.size_in_bytes], log))
        except CorruptRecordError as failure:
            troubles.append(
                f"the batch at offset {header.base_offset} counts for nothing: {failure}"
            )
    return found


def iter_raw(batches: BytesLike, log: str) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield offset, key and value of each record in whole batches of a log, which `log` names.

    CorruptRecordError for batches that can't be decoded.
    """
    for records in iter_decoded([memoryview(batches)]):
        for key, value, offset in zip(
            records.keys.to_pylist(),
            records.values.to_pylist(),
            records.offsets.to_pylist(),
            strict=True,
        ):
            if key is None:
                raise CorruptRecordError(f"the record at offset {offset} of the {log} has no key")
            yield offset, key, value
