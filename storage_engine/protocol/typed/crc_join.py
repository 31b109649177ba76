"""The CRC-32C of bytes in several parts, from the CRCs of the parts.

A projected answer leaves out columns, but has the CRCs of all of them, the header, and the
directory. Joined they must give the CRC of the stored batch. So a reader knows that header and
directory are those that the producer sealed, though it does not have all that the batch's CRC
covers. To read the left-out columns instead would cost the broker what projection saves.

A CRC is a remainder in GF(2)[x]; n more bytes multiply it by x^(8n), which is linear in its bits.
For each byte of a size there is a table with the products of each byte of a remainder.
"""

from array import array
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from crc32c import crc32c

_BITS = 32
_FEW_BYTES = 4096
"""The size up to which a part is joined by a CRC over zeros, in half the time of a table."""

ShiftTable = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]


def joined_crc(parts: Iterable[tuple[int, int]], crc: int = 0) -> int:
    """Return the CRC of all parts, each given by its CRC and its size in bytes, below 2^31, behind
    bytes that have the CRC `crc`."""
    joined = crc
    for each, size in parts:
        if size <= _FEW_BYTES:
            # The CRC behind so many zeros, but for what it would be there without any CRC before.
            zeros, alone = _zeros(size)
            joined = crc32c(zeros, joined) ^ alone ^ each
            continue
        for a, b, c, d in _shift_tables(size):
            joined = (
                a[joined & 0xFF] ^ b[joined >> 8 & 0xFF] ^ c[joined >> 16 & 0xFF] ^ d[joined >> 24]
            )
        joined ^= each
    return joined


@lru_cache(maxsize=1024)
def _zeros(size: int) -> tuple[bytes, int]:
    """Return so many zeros, and their CRC."""
    zeros = bytes(size)
    return zeros, crc32c(zeros)


@lru_cache(maxsize=1024)
def _shift_tables(size: int) -> list[ShiftTable]:
    """Return the tables that shift a remainder over so many bytes, one after the other. Columns of
    one width, which are most, have one size in a batch."""
    digits = size.to_bytes(4, "little")
    return [_shift_table(place, digit) for place, digit in enumerate(digits) if digit]


@cache
def _shift_table(place: int, digit: int) -> ShiftTable:
    """Return the table that shifts a remainder over digit * 256^place bytes. There are at most 1020
    of 4 KiB, made when they are first used, in a tenth of a millisecond."""
    columns = [1 << bit for bit in range(_BITS)]
    for bit in range(8):
        if digit >> bit & 1:
            columns = _product(_power(8 * place + bit), columns)
    return (
        _products(columns[0:8]),
        _products(columns[8:16]),
        _products(columns[16:24]),
        _products(columns[24:32]),
    )


@cache
def _power(bit: int) -> list[int]:
    """Return each single bit of a remainder, shifted over 2^bit bytes."""
    if bit:
        half = _power(bit - 1)
        return _product(half, half)
    return [crc32c(b"\0", 1 << bit) ^ crc32c(b"\0") for bit in range(_BITS)]


def _product(matrix: list[int], columns: list[int]) -> list[int]:
    """Apply the matrix, given by its columns, to each of the columns."""
    found = []
    for column in columns:
        value = 0
        bit = 0
        while column:
            if column & 1:
                value ^= matrix[bit]
            column >>= 1
            bit += 1
        found.append(value)
    return found


def _products(columns: list[int]) -> Sequence[int]:
    """Return the sums of every choice of eight columns."""
    found = [0]
    for column in columns:
        found += [each ^ column for each in found]
    return array("I", found)
