"""The CRC-32C of bytes in several parts, from the CRCs of the parts.

A projected answer leaves out columns, but has the CRCs of all of them, the header, and the
directory. Joined they must give the CRC of the stored batch. So a reader knows that header and
directory are those that the producer sealed, though it does not have all that the batch's CRC
covers. To read the left-out columns instead would cost the broker what projection saves.

A CRC is a remainder in GF(2)[x]: n more bytes multiply it by x^(8n). The tables have the products
of each byte of a remainder and x^(8n) for each power of two n.
"""

from collections.abc import Iterable
from functools import cache

_POLYNOMIAL = 0x82F63B78
"""CRC-32C's, its bits in reverse order."""

_SIZE_BITS = 31
"""Sizes are below 2^31."""

ShiftTable = tuple[list[int], list[int], list[int], list[int]]


@cache
def shift_tables() -> list[ShiftTable]:
    """Return for each bit of a size the table that shifts a CRC over so many bytes. They take some
    20 ms to make."""
    tables = [_table_of_columns([_one_byte_on(1 << bit) for bit in range(32)])]
    while len(tables) < _SIZE_BITS:
        last = tables[-1]
        # Twice the shift: the shift of the shift.
        tables.append(
            _table_of_columns([_look_up(last, _look_up(last, 1 << b)) for b in range(32)])
        )
    return tables


def joined_crc(parts: Iterable[tuple[int, int]]) -> int:
    """Return the CRC of all parts, each given by its CRC and its size in bytes."""
    tables = shift_tables()
    joined = 0
    for crc, size in parts:
        bit = 0
        while size:
            if size & 1:
                a, b, c, d = tables[bit]
                joined = (
                    a[joined & 0xFF]
                    ^ b[joined >> 8 & 0xFF]
                    ^ c[joined >> 16 & 0xFF]
                    ^ d[joined >> 24]
                )
            size >>= 1
            bit += 1
        joined ^= crc
    return joined


def _one_byte_on(remainder: int) -> int:
    for _ in range(8):
        remainder = remainder >> 1 ^ (_POLYNOMIAL if remainder & 1 else 0)
    return remainder


def _look_up(table: ShiftTable, value: int) -> int:
    a, b, c, d = table
    return a[value & 0xFF] ^ b[value >> 8 & 0xFF] ^ c[value >> 16 & 0xFF] ^ d[value >> 24]


def _table_of_columns(columns: list[int]) -> ShiftTable:
    """`columns` are the products of the 32 single bits."""

    def products(first: int) -> list[int]:
        found = [0]
        for bit in range(first, first + 8):
            found += [each ^ columns[bit] for each in found]
        return found

    return products(0), products(8), products(16), products(24)
