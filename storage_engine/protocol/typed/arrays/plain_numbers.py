"""Numbers without nulls in an Arrow message, found without Arrow: they lie behind a head that is
the same for all messages with as many numbers of that width, as Arrow's own writers make them.

Reading such a column costs a comparison of some 200 bytes, and its numbers are copied once, to
where those of other batches are. Any other message is left to `ipc_message.py`.
"""

import struct
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from storage_engine.protocol.typed.arrays.ipc_message import HEAD_BYTES, split_sample, write_message

_DECIMAL = pa.decimal128(38)
_INTEGERS = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
_SAMPLE_ROWS = 3
"""Numbers of the sample: neither 0, which is left out of a message, nor a place in it."""

_INT64 = struct.Struct("<q")


class PlainNumbers(NamedTuple):
    """Numbers without nulls that lie in a message."""

    view: memoryview
    """The bytes of the numbers, perhaps not aligned."""
    width: int
    """The size of a number in bytes."""

    def part(self, start: int, stop: int) -> "PlainNumbers":
        """Return the numbers [start, stop)."""
        return PlainNumbers(self.view[start * self.width : stop * self.width], self.width)

    def in_place(self, kind: pa.DataType) -> pa.Array:
        """Return them as a pa.Array of that type, not copied."""
        count = len(self.view) // self.width
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(self.view)])


def find_numbers(message: memoryview, width: int, rows: int) -> PlainNumbers | None:
    """Return the numbers of a message that has so many of them; None when it has not, or may."""
    expected, body_at, size_at = _head(width, rows)
    start = len(expected)
    if len(message) < start:
        return None
    head = bytearray(message[:start])
    # Of rows that were cut from a table Arrow writes some bytes more.
    (body_bytes,) = _INT64.unpack_from(head, body_at)
    (size,) = _INT64.unpack_from(head, size_at)
    _INT64.pack_into(head, body_at, 0)
    _INT64.pack_into(head, size_at, 0)
    wanted = rows * width
    if head != expected or body_bytes != len(message) - start or not wanted <= size <= body_bytes:
        return None
    return PlainNumbers(message[start : start + wanted], width)


def joined_numbers(parts: Iterable[PlainNumbers], kind: pa.DataType) -> pa.Array:
    """Return the numbers of all parts, of which there is one at least, as one pa.Array with memory
    of its own."""
    views = [part.view for part in parts]
    # Arrow's memory is used again, Python's and numpy's is given back: fresh pages double the time.
    buffer = pa.allocate_buffer(sum(map(len, views)))
    target, at = memoryview(buffer).cast("B"), 0
    for view in views:
        end = at + len(view)
        target[at:end] = view
        at = end
    return pa.Array.from_buffers(kind, at * 8 // kind.bit_width, [None, buffer])


@lru_cache(maxsize=256)
def _head(width: int, rows: int) -> tuple[bytes, int, int]:
    """Return what lies before the numbers of a message with so many of them, but for 0 in place of
    two numbers, and their places: how long the body is, and how many bytes the numbers take."""
    sample, (body_at, batch_rows_at, rows_at, size_at) = _sample(width)
    head = bytearray(sample)
    for place, value in ((body_at, 0), (batch_rows_at, rows), (rows_at, rows), (size_at, 0)):
        _INT64.pack_into(head, place, value)
    return bytes(head), body_at, size_at


@cache
def _sample(width: int) -> tuple[bytes, tuple[int, int, int, int]]:
    """Return the head of a message with some numbers, and where it says how long the body is, how
    many rows the batch and the column have, and how many bytes the numbers take."""
    numbers = np.zeros(_SAMPLE_ROWS * width, np.uint8)
    kind = _INTEGERS.get(width, _DECIMAL)
    array = pa.Array.from_buffers(kind, _SAMPLE_ROWS, [None, pa.py_buffer(numbers)])
    message = bytes(write_message(array))
    metadata, places = split_sample(message)
    # Behind the place and size of the buffer of nulls, and the place of this one.
    size_at = places.buffers + 3 * _INT64.size
    numbers_at = (places.body, places.rows, places.nodes, size_at)
    body, rows, values, size = (HEAD_BYTES + place for place in numbers_at)
    return message[: HEAD_BYTES + len(metadata)], (body, rows, values, size)
