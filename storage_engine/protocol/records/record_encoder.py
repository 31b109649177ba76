"""Encodes rows of Arrow arrays as record batches, for all rows at once.

Python runs per batch and per column, never per record. All varints of a batch are written by numpy;
keys, values and headers are joined with them by one Arrow kernel, with room for the batch header in
front, so that payload bytes are copied once.

    record            bytes   meaning
    length            varint  bytes that follow
    attributes        1       0
    timestamp delta   varlong milliseconds after the batch's base_timestamp
    offset delta      varint  row number within the batch
    key length        varint  -1: null
    key
    value length      varint  -1: null
    value
    header count      varint
    headers                   see record_headers.py

Source: the record format of the Kafka protocol; R-LOG6, R-LOG7.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ParamSpec

import numpy as np
import pyarrow as pa

from storage_engine.core.errors import InvalidRecordError, RecordTooLargeError
from storage_engine.protocol.records.arrow_binary import (
    BinaryValues,
    as_column,
    binary_scalar,
    join,
    one_array,
    varint_rows,
    writable_bytes,
)
from storage_engine.protocol.records.arrow_kernels import milliseconds
from storage_engine.protocol.records.compression import codec_named, compress
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    advance_sequence,
    seal,
)
from storage_engine.protocol.records.record_headers import HeaderColumn
from storage_engine.protocol.records.uniform_records import UniformColumn, UniformRows
from storage_engine.protocol.records.varints import (
    VARINT_BYTES,
    Ints,
    VarintColumn,
    constant_column,
    varint_size,
    zigzag_column,
)

Arguments = ParamSpec("Arguments")

DEFAULT_BATCH_BYTES = 1 << 20
GROUP_BYTES = 1 << 20
"""Small batches are encoded together, up to this many bytes: a pass costs some 80 microseconds."""

LEAST_UNIFORM_ROWS = 16
"""The least rows of a batch for the uniform path: many batches of a few rows are encoded together
instead."""
LARGEST_UNIFORM_PAYLOAD = 4 << 10
"""The largest payload of a row for the uniform path: larger ones cost no more on the general path,
which does not write their places twice."""

LARGEST_BATCH_BYTES = 0x7FFF_FFFF - (1 << 20)
"""The largest batch: its length is an int32, and so are Arrow's offsets; some room is left for its
varints."""

_ATTRIBUTES_BYTES = 1
_NO_HEADERS_BYTES = 1

_ATTRIBUTES = constant_column(0)
_NULL = constant_column(-1)
_NO_HEADERS = binary_scalar(b"\x00")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """A sealed record batch; base offset and leader epoch are 0 until the leader sets them."""

    data: memoryview
    """The bytes of the batch, writable."""
    record_count: int

    def __len__(self) -> int:
        return len(self.data)


def iter_encoded(
    values: pa.Array | pa.ChunkedArray,
    keys: pa.Array | pa.ChunkedArray | None = None,
    headers: pa.Array | None = None,
    timestamps_ms: pa.Array | None = None,
    *,
    compression: str = "none",
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    now_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> Iterator[EncodedBatch]:
    """Yield the rows as batches of at most `batch_bytes` before compression, with at least one
    record each, one at a time, so that the first can be sent while the next is made.

    Columns are Arrow arrays, chunked arrays or None, of equal length: keys and values binary or
    string, headers as HEADERS_TYPE, timestamps int64 milliseconds or Arrow timestamps. A null
    timestamp is `now_ms` (default: the wall clock). `base_sequence` goes on from batch to batch.
    """
    codec = codec_named(compression)
    rows = _rows(values, keys, headers, timestamps_ms, now_ms)
    transactional_bit = TRANSACTIONAL_BIT if transactional else 0
    sequence = base_sequence
    for start, stop, plain in _plain_batches(rows, batch_bytes):
        count = stop - start
        data, used = _compressed(codec, plain)
        header = BatchHeader(
            base_offset=0,
            length=len(data) - LENGTH_END,
            partition_leader_epoch=0,
            magic=MAGIC,
            crc=0,
            attributes=used | transactional_bit,
            last_offset_delta=count - 1,
            base_timestamp=_timestamp_at(rows.timestamps, start),
            max_timestamp=_largest_timestamp(rows.timestamps, start, stop),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            records_count=count,
        )
        seal(data, 0, header)
        yield EncodedBatch(data=data, record_count=count)
        if sequence >= 0:
            sequence = advance_sequence(sequence, count)


def _listed(
    encode: Callable[Arguments, Iterator[EncodedBatch]],
) -> Callable[Arguments, list[EncodedBatch]]:
    def encode_all(*arguments: Arguments.args, **named: Arguments.kwargs) -> list[EncodedBatch]:
        return list(encode(*arguments, **named))

    return encode_all


encode_batches = _listed(iter_encoded)
"""`iter_encoded` with all batches in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The columns of the input, taken apart."""

    values: BinaryValues
    keys: BinaryValues | None
    headers: HeaderColumn | None
    timestamps: Ints | int

    def __len__(self) -> int:
        return len(self.values.lengths)


def _rows(
    values: pa.Array | pa.ChunkedArray,
    keys: pa.Array | pa.ChunkedArray | None,
    headers: pa.Array | None,
    timestamps_ms: pa.Array | None,
    now_ms: int | None,
) -> _Rows:
    for name, column in (("keys", keys), ("headers", headers), ("timestamps_ms", timestamps_ms)):
        if column is not None and len(column) != len(values):
            raise InvalidRecordError(
                f"{name} has {len(column)} rows, values has {len(values)}: they must be as long"
            )
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    key_column = None if keys is None else as_column(keys, "the key column")
    return _Rows(
        values=as_column(values, "the value column"),
        keys=None if key_column is None or key_column.all_null else key_column,
        headers=None if headers is None else HeaderColumn.of(one_array(headers)),
        timestamps=now if timestamps_ms is None else _timestamps(one_array(timestamps_ms), now),
    )


def _timestamps(array: pa.Array, now_ms: int) -> Ints | int:
    if pa.types.is_null(array.type):
        return now_ms
    if pa.types.is_timestamp(array.type):
        array = milliseconds(array)
    elif not pa.types.is_integer(array.type):
        raise InvalidRecordError(
            f"the timestamp column has type {array.type}: make it a timestamp or int64 milliseconds"
        )
    array = array.cast(pa.int64())
    if array.null_count:
        import pyarrow.compute as pc

        array = pc.fill_null(array, now_ms)
    numbers: Ints = array.to_numpy()
    return numbers


def _timestamp_at(timestamps: Ints | int, row: int) -> int:
    return timestamps if isinstance(timestamps, int) else int(timestamps[row])


def _largest_timestamp(timestamps: Ints | int, start: int, stop: int) -> int:
    return timestamps if isinstance(timestamps, int) else int(timestamps[start:stop].max())


def _plain_batches(rows: _Rows, batch_bytes: int) -> Iterator[tuple[int, int, memoryview]]:
    """Yield the bounds of each batch's rows, and the batch, uncompressed, with a blank header."""
    if not len(rows):
        return
    uniform = _uniform(rows)
    if uniform is not None:
        payload = uniform.payload_bytes
        size = payload + _bound_without_payload(rows, payload, batch_bytes)
        step = max(1, (batch_bytes - HEADER_BYTES) // size)
        if payload <= LARGEST_UNIFORM_PAYLOAD and step >= min(LEAST_UNIFORM_ROWS, len(rows)):
            for start in range(0, len(rows), step):
                stop = min(start + step, len(rows))
                yield start, stop, uniform.encode(start, stop)
            return
    for bounds in _groups(rows, batch_bytes):
        for (start, stop), plain in zip(pairwise(bounds), _encode(rows, bounds), strict=True):
            yield start, stop, plain


def _uniform(rows: _Rows) -> UniformRows | None:
    """Return the rows if they differ in their bytes alone."""
    if rows.headers is not None or _spread(rows.timestamps):
        return None
    values = UniformColumn.of(rows.values, LARGEST_UNIFORM_PAYLOAD)
    keys = None if values is None else UniformColumn.of(rows.keys, LARGEST_UNIFORM_PAYLOAD)
    return None if values is None or keys is None else UniformRows(keys, values)


def _plan(ends: Ints, batch_bytes: int) -> Iterator[int]:
    """Yield the first row of each batch but the first, and the end of the rows. `ends` are the
    bounds of the records' sizes, summed up."""
    count = len(ends)
    room = min(batch_bytes, LARGEST_BATCH_BYTES) - HEADER_BYTES
    row = 0
    done = 0
    while row < count:
        start = row
        row = max(start + 1, int(np.searchsorted(ends, done + room, side="right")))
        size = int(ends[row - 1]) - done
        if size > LARGEST_BATCH_BYTES:
            raise RecordTooLargeError(
                f"row {start} has a record of about {size} bytes, at most {LARGEST_BATCH_BYTES}"
                " are possible"
            )
        done += size
        yield row


def _groups(rows: _Rows, batch_bytes: int) -> Iterator[list[int]]:
    """Yield the bounds of batches to encode in one pass: batch i has the rows [bounds[i], bounds[i
    + 1])."""
    ends = np.cumsum(_size_bounds(rows, batch_bytes))
    bounds = [0]
    for bound in _plan(ends, batch_bytes):
        begun = int(ends[bounds[0] - 1]) if bounds[0] else 0
        if len(bounds) > 1 and int(ends[bound - 1]) - begun > GROUP_BYTES:
            yield bounds
            bounds = [bounds[-1]]
        bounds.append(bound)
    yield bounds


def _size_bounds(rows: _Rows, batch_bytes: int) -> Ints:
    """Return the most bytes of each record: its payload is exact, its varints are as wide as they
    can get."""
    payload = np.maximum(rows.values.lengths, 0)
    if rows.keys is not None:
        payload = payload + np.maximum(rows.keys.lengths, 0)
    if rows.headers is not None:
        payload = payload + rows.headers.size_bounds()
    return payload + _bound_without_payload(rows, int(payload.max()), batch_bytes)


def _bound_without_payload(rows: _Rows, largest_payload: int, batch_bytes: int) -> int:
    return (
        _ATTRIBUTES_BYTES
        + _NO_HEADERS_BYTES
        + 3 * varint_size(largest_payload + 4 * VARINT_BYTES)
        + varint_size(_spread(rows.timestamps))
        + varint_size(min(len(rows), batch_bytes))
    )


def _spread(timestamps: Ints | int) -> int:
    if isinstance(timestamps, int):
        return 0
    return int(timestamps.max()) - int(timestamps.min())


def _encode(rows: _Rows, bounds: list[int]) -> Iterator[memoryview]:
    """Yield the batches of rows within `bounds`, uncompressed, with blank headers."""
    start, stop = bounds[0], bounds[-1]
    firsts = np.array(bounds[:-1], np.int64) - start
    within = np.arange(stop - start)
    if len(firsts) > 1:
        within -= np.repeat(firsts, np.diff(bounds))
    joined = _encode_records(rows, start, stop, within)
    data, ends = writable_bytes(joined)
    for position, end in pairwise([*ends[firsts].tolist(), int(ends[-1])]):
        yield data[position:end]


def _compressed(codec: Codec, plain: memoryview) -> tuple[memoryview, Codec]:
    """Return the batch and its codec: NONE where `codec` would make it larger, so that batches keep
    to their size whatever is in them."""
    if codec is Codec.NONE:
        return plain, codec
    records = compress(codec, plain[HEADER_BYTES:])
    if len(records) >= len(plain) - HEADER_BYTES:
        return plain, Codec.NONE
    batch = bytearray(HEADER_BYTES)
    batch += records
    return memoryview(batch), codec


def _encode_records(rows: _Rows, start: int, stop: int, within: Ints) -> pa.Array:
    """Encode the records of rows [start, stop), of which row i is number within[i] of its batch;
    before the first of each batch there is room for the batch's header."""
    timestamp = _timestamp_deltas(rows.timestamps, start, stop, within)
    rooms = np.where(within == 0, HEADER_BYTES, 0)
    return _joined_records(rows, start, stop, timestamp, zigzag_column(within), rooms)


def encode_in_place(
    values: pa.Array,
    keys: pa.Array | None,
    headers: pa.Array | None,
    timestamp_deltas: Ints,
    offset_deltas: Ints,
) -> memoryview:
    """Return all rows, at least one, as the records of one uncompressed batch, with these deltas,
    and room for the header in front. The columns are as those of encode_batches."""
    rows = _rows(values, keys, headers, None, 0)
    rooms = np.zeros(len(rows), np.int64)
    rooms[0] = HEADER_BYTES
    timestamp, offset = zigzag_column(timestamp_deltas), zigzag_column(offset_deltas)
    return writable_bytes(_joined_records(rows, 0, len(rows), timestamp, offset, rooms))[0]


def _joined_records(
    rows: _Rows,
    start: int,
    stop: int,
    timestamp: VarintColumn,
    offset: VarintColumn,
    rooms: Ints,
) -> pa.Array:
    """Encode the records of rows [start, stop); rooms[i] bytes are left before row i."""
    count = stop - start
    values, keys = rows.values, rows.keys
    value_lengths = values.lengths[start:stop]
    value_length = zigzag_column(value_lengths)
    size: Ints = np.maximum(value_lengths, 0) + _ATTRIBUTES_BYTES
    for column in (timestamp, offset, value_length):
        size += column.sizes
    if keys is None:
        key_length = _NULL
    else:
        key_lengths = keys.lengths[start:stop]
        key_length = zigzag_column(key_lengths)
        size += np.maximum(key_lengths, 0)
    size += key_length.sizes
    if rows.headers is None:
        tail: tuple[pa.Array | pa.Scalar, ...] = (_NO_HEADERS,)
        size += _NO_HEADERS_BYTES
    else:
        header_sizes, tail = rows.headers.encode(start, stop)
        size += header_sizes
    front = (zigzag_column(size), _ATTRIBUTES, timestamp, offset, key_length)
    value_array = values.array(start, stop)
    if keys is None:
        return join(varint_rows(*front, value_length, rooms=rooms), value_array, *tail)
    prefix = varint_rows(*front, rooms=rooms)
    middle = varint_rows(value_length, rooms=np.zeros(count, np.int64))
    return join(prefix, keys.array(start, stop), middle, value_array, *tail)


def _timestamp_deltas(timestamps: Ints | int, start: int, stop: int, within: Ints) -> VarintColumn:
    if isinstance(timestamps, int):
        return constant_column(0)
    first_rows = np.arange(start, stop) - within
    return zigzag_column(timestamps[start:stop] - timestamps[first_rows])
