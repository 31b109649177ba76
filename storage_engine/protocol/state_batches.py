"""A coordinator's records as record batches, and back. Its one rule: one step's records are one
batch, so that all of them are appended or none.

A tombstone is a null value. What a key and a value are is told by the records of each kind of
coordinator: `transaction_records`, `group_records`. Source: KIP-98.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.control_record import varint
from storage_engine.protocol.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    BytesLike,
    seal,
)
from storage_engine.protocol.record_decoder import iter_decoded
from storage_engine.protocol.record_encoder import LARGEST_BATCH_BYTES, encode_batches

RawEntry = tuple[bytes, bytes | None]
"""Key and value; None: a tombstone."""

FEW = 16
"""Up to so many entries are cheaper one by one than as columns."""

_SAME_TIME = b"\0\0"
"""No attributes; at the base timestamp."""
_NULL = b"\x01"
_NO_HEADERS = b"\0"


def encode_raw(entries: Iterable[RawEntry], *, now_ms: int) -> memoryview:
    """One batch; writable, at least one entry."""
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


def _encode_few(keys: Sequence[bytes], values: Sequence[bytes | None], now_ms: int) -> memoryview:
    """The same bytes."""
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


def iter_raw(batches: BytesLike, log: str) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of each record in whole batches of a log, which `log` names.

    CorruptRecordError for what can't be read.
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
