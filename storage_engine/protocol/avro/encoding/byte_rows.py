"""Rows of bytes that are put together of parts, for all rows at once.

    NumberPart        numbers that numpy writes: a varint or a float for each row, or for some
    pa.BinaryArray    bytes that Arrow copies: texts, and whole values that were encoded before

Rule: no Python per row. Neighbouring pieces are written into one buffer, and one kernel of Arrow
joins what is left, so a record of twenty fields costs a few passes over its rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.protocol.records.arrow_binary import (
    LARGEST_ARRAY_BYTES,
    as_column,
    binary_array,
    join,
)
from storage_engine.protocol.records.varints import (
    Bytes,
    Ints,
    Mask,
    VarintColumn,
    constant_column,
    write_column,
    zigzag_column,
)

Floats: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]


class TooManyBytesError(ValueError):
    """The rows together have more bytes than an Arrow array can hold."""


@dataclass(frozen=True, slots=True)
class NumberPart:
    """A number of each row. `rows`: the rows that have one, ascending; None: all."""

    values: VarintColumn | Floats
    rows: Ints | None = None

    def add_sizes(self, widths: Ints) -> None:
        """Adds the bytes of each row to `widths`."""
        if self.rows is None:
            widths += self._sizes
        else:
            widths[self.rows] += self._sizes

    def write(self, target: Bytes, positions: Ints) -> None:
        """Writes each row's number at its position, and moves the position behind it."""
        at = positions if self.rows is None else positions[self.rows]
        if isinstance(self.values, VarintColumn):
            write_column(target, at, self.values)
        elif len(at):
            kind = self.values.dtype
            # Each byte of the target begins a number: they overlap, and need no alignment.
            places = len(target) - kind.itemsize + 1
            numbers: Floats = np.ndarray((places,), kind, target.data, strides=(1,))
            numbers[at] = self.values
        self.add_sizes(positions)

    @property
    def _sizes(self) -> Ints | int:
        if isinstance(self.values, VarintColumn):
            return self.values.sizes
        return self.values.dtype.itemsize


Part: TypeAlias = NumberPart | pa.Array
"""A part of each row: a `NumberPart`, or a pa.BinaryArray without nulls."""


def numbers(values: Ints, rows: Ints | None = None) -> NumberPart:
    """A zigzag varint of each row, or of each of `rows`."""
    return NumberPart(zigzag_column(values), rows)


def same_number(value: int, rows: Ints | None = None) -> NumberPart:
    """The same varint in each row, or in each of `rows`."""
    return NumberPart(constant_column(value), rows)


def small_bytes(values: npt.NDArray[np.bool_]) -> NumberPart:
    """One byte of each row, 0 or 1."""
    return NumberPart(VarintColumn(values.astype(np.uint64), 1))


def joined_rows(parts: Sequence[Part], count: int) -> pa.Array:
    """The parts of each row behind one another, as a pa.BinaryArray of `count` rows."""
    if not count:
        return binary_array(np.zeros(1, np.int32), pa.py_buffer(b""))
    columns: list[pa.Array] = []
    run: list[NumberPart] = []
    for part in parts:
        if isinstance(part, NumberPart):
            run.append(part)
            continue
        if run:
            columns.append(_written(run, count))
            run = []
        columns.append(part)
    if run or not columns:
        columns.append(_written(run, count))
    if len(columns) == 1:
        return columns[0]
    _check_size(sum(_total(each) for each in columns))
    return join(*columns)


def spread(binary: pa.Array, rows: Ints, count: int) -> pa.Array:
    """`count` rows, of which those of `rows` have the bytes of `binary`, and the others none. The
    bytes are not copied."""
    values = as_column(binary, "a value")
    lengths = np.zeros(count, np.int64)
    lengths[rows] = values.lengths
    return _over(values.data, int(values.offsets[0]), lengths)


def with_nulls(binary: pa.Array, valid: Mask) -> pa.Array:
    """A row for each of `valid`: those of `binary` where it is true, and nulls elsewhere. The bytes
    are not copied."""
    _, offsets, data = spread(binary, np.flatnonzero(valid), len(valid)).buffers()
    packed = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(valid), [packed, offsets, data])


def per_list(binary: pa.Array, offsets: npt.NDArray[np.int32]) -> pa.Array:
    """The bytes of all elements of each list as one row. `offsets`: where each list begins among
    the elements, and the last one's end. The bytes are not copied."""
    if not len(binary):
        return binary_array(np.zeros(len(offsets), np.int32), pa.py_buffer(b""))
    values = as_column(binary, "a value")
    ends = values.offsets[offsets]
    return _over(values.data, int(ends[0]), np.diff(ends).astype(np.int64))


def without_nulls(array: pa.Array) -> pa.Array:
    """A pa.BinaryArray of the same bytes, in which nulls are empty. It is not copied where nulls
    hide no bytes."""
    values = as_column(array, "a value")
    return values.array(0, len(array))


def lengths_of(binary: pa.Array) -> Ints:
    """The number of bytes of each row of a pa.BinaryArray without nulls."""
    return as_column(binary, "a value").lengths


def _over(data: pa.Buffer, start: int, lengths: Ints) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return binary_array(offsets, data.slice(start, int(offsets[-1])))


def _written(pieces: Iterable[NumberPart], count: int) -> pa.Array:
    widths = np.zeros(count, np.int64)
    pieces = tuple(pieces)
    for each in pieces:
        each.add_sizes(widths)
    ends = np.cumsum(widths)
    _check_size(int(ends[-1]))
    target = np.empty(int(ends[-1]), np.uint8)
    positions = ends - widths
    for each in pieces:
        each.write(target, positions)
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = ends
    return binary_array(offsets, pa.py_buffer(target))


def _total(array: pa.Array) -> int:
    values = as_column(array, "a value")
    return int(values.offsets[-1]) - int(values.offsets[0])


def _check_size(size: int) -> None:
    if size > LARGEST_ARRAY_BYTES:
        raise TooManyBytesError(
            f"the rows are {size:,} bytes as Avro, and {LARGEST_ARRAY_BYTES:,} can be encoded at a "
            "time: pass fewer rows"
        )
