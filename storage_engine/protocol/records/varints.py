"""Columns of zigzag varints, read and written for many records at once.

Work is done per byte of the widest varint, never per record. A varint has 7 bits a byte, lowest
first, the top bit set on all bytes but the last; zigzag maps 0, -1, 1, -2 to 0, 1, 2, 3.

Source: the record format of the Kafka protocol.
"""

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from storage_engine.protocol.records.control_record import VARINT_BYTES as VARINT_BYTES
from storage_engine.protocol.records.control_record import VARLONG_BYTES as VARLONG_BYTES

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Number = TypeVar("Number", bound=np.generic)

_SEVEN = np.uint64(7)
_ONE = np.uint64(1)
_EACH_BYTE = np.arange(0x100, dtype=np.int64)
SMALL_NUMBERS: Ints = (_EACH_BYTE >> 1) ^ -(_EACH_BYTE & 1)
"""The number of each byte that is a varint by itself."""


class DamagedVarintError(ValueError):
    """The varint of row `index` runs beyond its record or has too many bytes."""

    def __init__(self, index: int) -> None:
        super().__init__(f"the varint of row {index} is damaged")
        self.index = index


class VarintColumn(NamedTuple):
    """Zigzag-encoded values (a scalar when all are the same), and the bytes that each takes (an int
    when all take the same)."""

    encoded: Words | np.uint64
    sizes: Ints | int


def constant_column(value: int) -> VarintColumn:
    """Return a column with the same value in every row."""
    return VarintColumn(np.uint64(_zigzag(value)), varint_size(value))


def zigzag_column(values: Ints) -> VarintColumn:
    """Encode `values` for `write_column`."""
    if not len(values):
        return VarintColumn(np.empty(0, np.uint64), 1)
    encoded = ((values << 1) ^ (values >> 63)).view(np.uint64)
    least, most = encoded.min(), encoded.max()
    if least == most:
        return VarintColumn(least, _size_of(int(least)))
    least_size, most_size = _size_of(int(least)), _size_of(int(most))
    if least_size == most_size:
        return VarintColumn(encoded, least_size)
    sizes = np.full(len(encoded), least_size, np.int64)
    for size in range(least_size, most_size):
        sizes += encoded >= np.uint64(1 << (7 * size))
    return VarintColumn(encoded, sizes)


def _size_of(encoded: int) -> int:
    return max(1, -(-encoded.bit_length() // 7))


def _zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63)


def varint_size(value: int) -> int:
    """Return the number of bytes that `value` takes as a zigzag varint."""
    return _size_of(_zigzag(value))


def write_column(target: Bytes, positions: Ints, column: VarintColumn) -> None:
    """Write row i of `column` at positions[i]."""
    if isinstance(column.sizes, int):
        _write_same_size(target, positions, column.encoded, column.sizes)
    else:
        assert isinstance(column.encoded, np.ndarray)
        _write_mixed_sizes(target, positions, column.encoded, column.sizes)


def _write_same_size(target: Bytes, positions: Ints, encoded: Words | np.uint64, size: int) -> None:
    for index in range(size):
        byte = (encoded >> np.uint64(7 * index)).astype(np.uint8) & np.uint8(0x7F)
        if index < size - 1:
            byte |= np.uint8(0x80)
        target[positions + index if index else positions] = byte


def _write_mixed_sizes(target: Bytes, positions: Ints, encoded: Words, sizes: Ints) -> None:
    while True:
        continued = sizes > 1
        byte = encoded.astype(np.uint8) & np.uint8(0x7F)
        byte |= continued.view(np.uint8) << np.uint8(7)
        target[positions] = byte
        rows = np.flatnonzero(continued)
        if not len(rows):
            return
        positions = positions[rows] + 1
        encoded = encoded[rows] >> _SEVEN
        sizes = sizes[rows] - 1


def read_column(
    source: Bytes, positions: Ints, stops: Ints, *, max_bytes: int = VARINT_BYTES
) -> tuple[Ints, Ints]:
    """Return the value at each of `positions` and the position after it.

    Row i must end at or before stops[i] (exclusive, within `source`), else DamagedVarintError.
    """
    _check_room(positions >= stops)
    byte = source[positions]
    continued = byte >= 0x80
    following = positions + 1
    if not np.count_nonzero(continued):
        return SMALL_NUMBERS.take(byte), following
    # Many rows have a second byte: it is read for all, and masked out where the varint has none.
    _check_room(continued & (following >= stops))
    second = source[np.minimum(following, len(source) - 1)]
    encoded = (byte & 0x7F).astype(np.uint64)
    encoded |= ((second & 0x7F) * continued).astype(np.uint64) << _SEVEN
    following += continued
    continued &= second >= 0x80
    if np.count_nonzero(continued):
        rows = np.flatnonzero(continued)
        _read_long(source, rows, stops, encoded, following, max_bytes)
    return _unzigzag(encoded), following


def _read_long(
    source: Bytes, rows: Ints, stops: Ints, encoded: Words, following: Ints, max_bytes: int
) -> None:
    """Add the third and later bytes of `rows` to `encoded` and `following`."""
    for index in range(2, max_bytes):
        at = following[rows]
        _check_room(at >= stops[rows], rows)
        byte = source[at]
        encoded[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        following[rows] = at + 1
        rows = rows[byte >= 0x80]
        if not len(rows):
            return
    raise DamagedVarintError(int(rows[0]))


def _unzigzag(encoded: Words) -> Ints:
    return (encoded >> _ONE).view(np.int64) ^ -((encoded & _ONE).view(np.int64))


def _check_room(outside: npt.NDArray[np.bool_], rows: Ints | None = None) -> None:
    if np.count_nonzero(outside):
        first = int(np.argmax(outside))
        raise DamagedVarintError(first if rows is None else int(rows[first]))
