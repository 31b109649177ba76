"""Rows that differ in their bytes alone, as batches: keys of one length, values of one length, one
timestamp, no headers.

The bytes are those that `record_encoder` writes for any rows. Where nothing but the offset delta
varies, records whose deltas are as wide are as long: a span of them is a matrix, whose columns are
filled with items of a fixed size.

    span   offset deltas    a row of the matrix
    0      0 to 63          length, 0, 0, delta of 1 byte, key length, key, value length, value, 0
    1      64 to 8191       the same with a delta of 2 bytes
    ...

Source: the record format of the Kafka protocol (drawn in record_encoder.py).
"""

import functools
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage_engine.protocol.records.arrow_binary import NULL_LENGTH, BinaryValues
from storage_engine.protocol.records.control_record import varint
from storage_engine.protocol.records.record_batch import HEADER_BYTES
from storage_engine.protocol.records.varints import VARINT_BYTES, Bytes, varint_size

_NOTHING_AND_NO_LATER = b"\x00\x00"
"""The attributes, and the timestamp delta."""
_NO_HEADERS = b"\x00"

_KEPT_BLANK_BYTES = 1 << 20
"""The largest blank that is kept, as a table's batches need the same ones again. Larger ones are
made each time."""

_DELTA_BOUNDS = [0, *(1 << (7 * width - 1) for width in range(1, VARINT_BYTES + 1))]
"""From entry i to before the next one an offset delta takes i + 1 bytes."""

Items = npt.NDArray[np.void]


class UniformColumn(NamedTuple):
    """Keys or values of one length."""

    length: int
    """The length of each; NULL_LENGTH when all are null."""
    payload: Items
    """The bytes of each row."""

    @classmethod
    def of(cls, column: BinaryValues | None, most: int) -> "UniformColumn | None":
        """Return None where lengths differ, or are above `most`; a null has not the same length as
        an empty value. No column counts as one of nulls; a column has at least one row."""
        if column is None:
            return _ALL_NULL
        length = int(column.lengths[0])
        if length > most or (column.lengths != length).any():
            return None
        if length <= 0:
            return cls(length, _ALL_NULL.payload)
        # Arrow's rows lie one behind the other.
        payload = np.frombuffer(column.data, np.uint8)
        payload = payload[int(column.offsets[0]) : int(column.offsets[-1])]
        return cls(length, payload.view((np.void, length)))


_ALL_NULL = UniformColumn(NULL_LENGTH, np.empty(0, (np.void, 1)))


class _Span(NamedTuple):
    """Records of a batch whose offset deltas have the same width."""

    first: int
    end: int
    width: int
    body: int
    """The bytes of a record without its length varint."""
    stride: int
    """The bytes of a record with its length varint."""
    key_at: int
    value_at: int


class UniformRows(NamedTuple):
    """All rows of a call."""

    keys: UniformColumn
    values: UniformColumn

    @property
    def payload_bytes(self) -> int:
        """The key and value bytes of each row."""
        return max(0, self.keys.length) + max(0, self.values.length)

    def encode(self, start: int, stop: int) -> memoryview:
        """Return one batch of the rows [start, stop), writable, with a blank header."""
        (key_length, keys), (value_length, values) = self
        count = stop - start
        blank = _blank(key_length, value_length, count)
        batch = np.empty(HEADER_BYTES + len(blank), np.uint8)
        batch[:HEADER_BYTES] = 0
        batch[HEADER_BYTES:] = blank
        at = HEADER_BYTES
        for span in _spans(key_length, value_length):
            if span.first >= count:
                break
            rows = min(count, span.end) - span.first
            end = at + rows * span.stride
            records = batch[at:end].reshape(rows, span.stride)
            row = start + span.first
            if key_length > 0:
                _items(records, span.key_at, key_length)[:] = keys[row : row + rows]
            if value_length > 0:
                _items(records, span.value_at, value_length)[:] = values[row : row + rows]
            at = end
        return batch.data


@functools.lru_cache(maxsize=256)
def _spans(key_length: int, value_length: int) -> tuple[_Span, ...]:
    found: list[_Span] = []
    lengths = varint_size(key_length) + varint_size(value_length)
    payload = max(0, key_length) + max(0, value_length)
    for width, (first, end) in enumerate(pairwise(_DELTA_BOUNDS), 1):
        body = len(_NOTHING_AND_NO_LATER) + width + lengths + payload + len(_NO_HEADERS)
        stride = varint_size(body) + body
        value_at = stride - len(_NO_HEADERS) - max(0, value_length)
        key_at = value_at - varint_size(value_length) - max(0, key_length)
        found.append(_Span(first, end, width, body, stride, key_at, value_at))
    return tuple(found)


def _blank(key_length: int, value_length: int, count: int) -> Bytes:
    """Return `count` records without their payload. Not to be written to."""
    spans = _spans(key_length, value_length)
    size = sum(max(0, min(count, span.end) - span.first) * span.stride for span in spans)
    if size > _KEPT_BLANK_BYTES:
        return _written_blank(key_length, value_length, count)
    # Fewer records have the same bytes at their beginning as more.
    return _kept_blank(key_length, value_length, 1 << (count - 1).bit_length())[:size]


def _written_blank(key_length: int, value_length: int, count: int) -> Bytes:
    parts: list[Bytes] = []
    for span in _spans(key_length, value_length):
        if span.first < count:
            rows = min(count, span.end) - span.first
            front = varint(span.body) + _NOTHING_AND_NO_LATER
            row = front + bytes(span.width) + varint(key_length)
            row += bytes(max(0, key_length)) + varint(value_length)
            row += bytes(max(0, value_length)) + _NO_HEADERS
            records = np.empty((rows, len(row)), np.uint8)
            _items(records, 0, len(row))[:] = np.frombuffer(row, (np.void, len(row)))
            deltas = _deltas(span.first, rows, span.width)
            _items(records, len(front), span.width)[:] = deltas
            parts.append(records.reshape(-1))
    return np.concatenate(parts)


_kept_blank = functools.lru_cache(maxsize=4)(_written_blank)


def _deltas(first: int, count: int, width: int) -> Items:
    """Return `count` varints of `width` bytes each, beginning with that of `first`."""
    # Zigzag doubles what is not negative; all bytes but the last say that another follows.
    encoded = np.arange(first, first + count) << 1
    written = np.empty((count, width), np.uint8)
    for index in range(width):
        more = 0x80 if index < width - 1 else 0
        written[:, index] = (encoded >> (7 * index)) & 0x7F | more
    return _items(written, 0, width)


def _items(records: Bytes, at: int, size: int) -> Items:
    """Return `size` bytes of each record from `at` on, as one item, which is copied many times
    faster than bytes."""
    items: Items = records[:, at : at + size].view((np.void, size))[:, 0]
    return items
