"""Rows that differ in their bytes alone, as batches: keys of one length, values of one length, one
timestamp, no headers.

Its one rule: the bytes are those that `record_encoder` writes for any rows. Where nothing but the
offset delta varies, records whose deltas are as wide are as long: a span of them is a matrix, whose
columns are filled with items of a fixed size.

    span   offset deltas    a row of the matrix
    0      0 to 63          length, 0, 0, delta of 1 byte, key length, key, value length, value, 0
    1      64 to 8191       the same with a delta of 2 bytes
    ...

Source: the record format of the Kafka protocol (drawn in record_encoder.py).
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage_engine.protocol.arrow_binary import NULL_LENGTH, BinaryColumn
from storage_engine.protocol.batch_memory import BatchMemory
from storage_engine.protocol.record_batch import HEADER_BYTES
from storage_engine.protocol.varints import VARINT_BYTES, Bytes, varint_bytes, varint_size

_NOTHING_AND_NO_LATER = b"\x00\x00"
"""Attributes, and the timestamp delta."""
_NO_HEADERS = b"\x00"

_MEMORY = BatchMemory()

_DELTA_BOUNDS = [0, *(1 << (7 * width - 1) for width in range(1, VARINT_BYTES + 1))]
"""From entry i to before the next one an offset delta takes i + 1 bytes."""


class UniformColumn(NamedTuple):
    """Keys or values of one length."""

    length: int
    """NULL_LENGTH: all are null."""
    payload: Bytes
    """Of all rows, one behind the other."""

    @classmethod
    def of(cls, column: BinaryColumn | None) -> "UniformColumn | None":
        """None where lengths differ; a null is not as long as what is empty. No column is one of
        nulls; a column has a row at least."""
        if column is None:
            return _ALL_NULL
        length = int(column.lengths[0])
        if (column.lengths != length).any():
            return None
        if length <= 0:
            return cls(length, _ALL_NULL.payload)
        # Arrow's rows lie one behind the other.
        payload = np.frombuffer(column.data, np.uint8)
        return cls(length, payload[int(column.offsets[0]) : int(column.offsets[-1])])

    @property
    def size(self) -> int:
        """Bytes of payload in a row."""
        return max(0, self.length)


_ALL_NULL = UniformColumn(NULL_LENGTH, np.empty(0, np.uint8))


class UniformRows(NamedTuple):
    """All rows of a call."""

    keys: UniformColumn
    values: UniformColumn

    @property
    def payload_bytes(self) -> int:
        """Of each row."""
        return self.keys.size + self.values.size

    def encode(self, start: int, stop: int) -> memoryview:
        """One batch of the rows [start, stop), its header still blank. Writable."""
        spans = list(_spans(stop - start))
        sizes = [(last - first) * self._record_bytes(width) for first, last, width in spans]
        batch = _MEMORY.take(HEADER_BYTES + sum(sizes))
        batch[:HEADER_BYTES] = 0
        at = HEADER_BYTES
        for (first, last, width), size in zip(spans, sizes, strict=True):
            records = batch[at : at + size].reshape(last - first, -1)
            self._fill(records, start + first, first, width)
            at += size
        return batch.data

    def _record_bytes(self, width: int) -> int:
        body = self._body_bytes(width)
        return varint_size(body) + body

    def _body_bytes(self, width: int) -> int:
        """A record behind its length, where offset deltas have `width` bytes."""
        keys, values = self.keys, self.values
        lengths = varint_size(keys.length) + varint_size(values.length)
        fixed = len(_NOTHING_AND_NO_LATER) + len(_NO_HEADERS)
        return fixed + width + lengths + self.payload_bytes

    def _fill(self, records: Bytes, row: int, delta: int, width: int) -> None:
        """`records` are those of the rows from `row` on, with offset deltas from `delta` on."""
        keys, values = self.keys, self.values
        front = varint_bytes(self._body_bytes(width)) + _NOTHING_AND_NO_LATER
        delta_at = len(front)
        front += bytes(width) + varint_bytes(keys.length)
        middle = bytes(keys.size) + varint_bytes(values.length)
        blank = front + middle + bytes(values.size) + _NO_HEADERS
        _items(records, 0, len(blank))[:] = np.frombuffer(blank, (np.void, len(blank)))
        _items(records, delta_at, width)[:] = _deltas(delta, len(records), width)
        for column, at in ((keys, len(front)), (values, len(front) + len(middle))):
            if column.size:
                payload = column.payload[row * column.size : (row + len(records)) * column.size]
                _items(records, at, column.size)[:] = payload.view((np.void, column.size))


def _spans(count: int) -> Iterator[tuple[int, int, int]]:
    """First, last (exclusive) and width of the offset deltas below `count`, by width."""
    for width, (first, last) in enumerate(pairwise(_DELTA_BOUNDS), 1):
        if first < count:
            yield first, min(last, count), width


def _deltas(first: int, count: int, width: int) -> npt.NDArray[np.void]:
    """`count` varints of `width` bytes each, from that of `first` on."""
    if width > len(_COMMON_DELTAS):
        return _written_deltas(first, count, width)
    return _COMMON_DELTAS[width - 1][:count]


def _written_deltas(first: int, count: int, width: int) -> npt.NDArray[np.void]:
    # Zigzag doubles what is not negative; all bytes but the last say that another follows.
    encoded = np.arange(first, first + count) << 1
    written = np.empty((count, width), np.uint8)
    for index in range(width):
        more = 0x80 if index < width - 1 else 0
        written[:, index] = (encoded >> (7 * index)) & 0x7F | more
    return _items(written, 0, width)


def _items(records: Bytes, at: int, size: int) -> npt.NDArray[np.void]:
    """Of each record `size` bytes from `at` on, as one item: copied many times faster than bytes
    are."""
    items: npt.NDArray[np.void] = records[:, at : at + size].view((np.void, size))[:, 0]
    return items


_COMMON_DELTAS = tuple(
    _written_deltas(first, last - first, width)
    for width, (first, last) in enumerate(pairwise(_DELTA_BOUNDS[:3]), 1)
)
"""All of one byte and all of two, which most batches do with."""
