"""Checks the CRCs of many projected batches together: what `projection.check_seal` does for one, in
a third of the time a batch.

The CRC of joined bytes is the sum (exclusive or) of the CRCs of the parts, each shifted over all
bytes behind it. So all columns of all batches are shifted at once, byte by byte of those numbers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from storage_engine.protocol.records.record_batch import BatchHeader
from storage_engine.protocol.typed.crc_join import shift_table
from storage_engine.protocol.typed.directory import Outline
from storage_engine.protocol.typed.projection import check_seal

LEAST = 4
"""So many batches are worth it."""

_PLACES = 4
_DIGITS = 256
_BYTES = np.arange(4, dtype=np.int64)


class Seals:
    """The seals of some batches, to be checked."""

    def __init__(self) -> None:
        self._batches: list[tuple[BatchHeader, memoryview, Outline, Mapping[int, memoryview]]] = []
        self.sound = 0
        """The batches from the first on that `check` has found to be good."""

    def __len__(self) -> int:
        return len(self._batches)

    def add(
        self,
        header: BatchHeader,
        fields: memoryview,
        outline: Outline,
        blocks: Mapping[int, memoryview],
    ) -> None:
        """The parameters are those of `check_seal`."""
        self._batches.append((header, fields, outline, blocks))

    def check(self) -> None:
        """CorruptRecordError for the first batch whose header, directory, or columns that are there
        are not those that were sealed."""
        good = len(self._batches) >= LEAST and self._together()
        if not good:
            # It tells what is wrong.
            for batch in self._batches:
                check_seal(*batch)
                self.sound += 1

    def _together(self) -> bool:
        crcs: list[int] = []
        behind: list[int] = []
        starts: list[int] = []
        sealed: list[int] = []
        for header, fields, outline, blocks in self._batches:
            places = outline.places
            for column_id, block in blocks.items():
                if crc32c(block) != places[column_id][2]:
                    return False
            starts.append(len(crcs))
            sealed.append(header.crc)
            size = sum(place[1] for place in places.values())
            crcs.append(crc32c(outline.data, crc32c(fields)))
            behind.append(size)
            for at, stored, crc, _ in places.values():
                crcs.append(crc)
                behind.append(size - at - stored)
        shifted = _shifted(np.array(crcs, np.int64), np.array(behind, np.int64))
        joined = np.bitwise_xor.reduceat(shifted, np.array(starts))
        return bool((joined == np.array(sealed, np.int64)).all())


def _shifted(crcs: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Any:
    """Return each CRC shifted over so many bytes, below 2^31."""
    for place in range(_PLACES):
        digits = sizes >> 8 * place & 0xFF
        if not digits.any():
            continue
        known = _KNOWN[place]
        for digit in np.flatnonzero((np.bincount(digits, minlength=_DIGITS) > 0) & ~known):
            _learn(place, int(digit))
        values = crcs[:, None] >> 8 * _BYTES & 0xFF
        tables = (digits[:, None] + place * _DIGITS) * 4 + _BYTES
        crcs = np.bitwise_xor.reduce(_TABLES[tables, values], axis=1).astype(np.int64)
    return crcs


def _learn(place: int, digit: int) -> None:
    row = (place * _DIGITS + digit) * 4
    if digit:
        _TABLES[row : row + 4] = np.array(shift_table(place, digit), np.uint32)
    else:
        _TABLES[row : row + 4] = np.arange(256, dtype=np.uint32) << (8 * _BYTES[:, None]).astype(
            np.uint32
        )
    # Last: another thread may look.
    _KNOWN[place, digit] = True


# 4 MiB of address space, of which is used what sizes need.
_TABLES = np.zeros((_PLACES * _DIGITS * 4, 256), np.uint32)
_KNOWN = np.zeros((_PLACES, _DIGITS), np.bool_)
