"""Parts of columns, of one batch each, and how they are joined into the column of a piece.

A part may lie in the bytes that came off the wire; what is joined has memory of its own, so that
few rows never hold a whole answer in memory.
"""

from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from storage_engine.protocol.records.varints import Ints, Mask
from storage_engine.protocol.typed.arrays.plain_numbers import PlainNumbers, joined_numbers

Part: TypeAlias = "pa.Array | PlainNumbers | None"
"""Some rows of one column; None stands for nulls."""


def part_of(part: Part, start: int, stop: int) -> Part:
    """Return the rows [start, stop) of a part: of a pa.Array, PlainNumbers, or of None, which
    stands for nulls."""
    if part is None:
        return None
    if isinstance(part, PlainNumbers):
        return part.part(start, stop)
    return part.slice(start, stop - start)


def joined(parts: list[Part], counts: list[int], kind: pa.DataType) -> pa.Array:
    """Return the parts, which have so many rows each, as one array of that type."""
    numbers = [part for part in parts if isinstance(part, PlainNumbers)]
    if numbers and len(numbers) == len(parts):
        return joined_numbers(numbers, kind)
    if all(part is None for part in parts):
        return pa.nulls(sum(counts), kind)
    arrays = [_as_array(part, count, kind) for part, count in zip(parts, counts, strict=True)]
    # It copies a single one, too.
    return pa.concat_arrays(arrays)


def _as_array(part: pa.Array | None, count: int, kind: pa.DataType) -> pa.Array:
    if part is None:
        return pa.nulls(count, kind)
    return part.in_place(kind) if isinstance(part, PlainNumbers) else part


def joined_offsets(parts: list[range | Ints]) -> range | Ints:
    """Return the offsets of all rows: a range where each part goes on where the one before ends."""
    if not parts:
        return range(0)
    ranges = [part for part in parts if isinstance(part, range)]
    if len(ranges) == len(parts) and all(a.stop == b.start for a, b in pairwise(ranges)):
        return range(ranges[0].start, ranges[-1].stop)
    return np.concatenate([as_ints(part) for part in parts])


def as_ints(offsets: range | Ints) -> Ints:
    """Return offsets as a numpy column."""
    if isinstance(offsets, range):
        return np.arange(offsets.start, offsets.stop, dtype=np.int64)
    return offsets


def joined_times(parts: list[tuple[Ints | int, int]]) -> Ints:
    """Return the times of all rows; a part has one for each row, or one for so many rows."""
    columns = [
        np.full(count, times, np.int64) if isinstance(times, int) else times
        for times, count in parts
    ]
    if len(columns) == 1:
        return columns[0]
    return np.concatenate(columns) if columns else np.zeros(0, np.int64)


def joined_masks(parts: list[Mask | None], counts: list[int]) -> Mask | None:
    """Return numpy columns of truths as one; None stands for False in all rows, also in the
    answer."""
    if all(mask is None for mask in parts):
        return None
    return np.concatenate(
        [
            np.zeros(count, np.bool_) if mask is None else mask
            for mask, count in zip(parts, counts, strict=True)
        ]
    )
