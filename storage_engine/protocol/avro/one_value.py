"""Reads one value after the other by Python: the places of the items of a few long lists, for which
a pass over columns costs more than it finds.

Rule: steps are counted, and each takes a byte or more.
"""

from collections.abc import Callable

import numpy as np

from storage_engine.protocol.records.varints import Ints

MOST_STEPS = 4_000_000
"""The values of lists that are stepped over in a record, again for each list around them: half a
second to a second."""


class NoValueError(Exception):
    """There is no value: the record is damaged."""


class TooManyStepsError(NoValueError):
    """The record takes too long."""


class Steps:
    """How far a record may be read. Its bytes are given beside it, since each step uses them."""

    __slots__ = ("_varint_ends", "end", "left", "take_room", "values")

    def __init__(
        self,
        *,
        end: int,
        left: int,
        values: int,
        varint_ends: Callable[[], Ints],
        take_room: Callable[[int], None],
    ) -> None:
        """`end`: the place behind the record; `left`: steps; `values`: those that may be made;
        `varint_ends`, `take_room`: see `RecordBytes`."""
        self.end = end
        self.take_room = take_room
        self.left = left
        self.values = values
        self._varint_ends = varint_ends

    def make(self, count: int) -> None:
        """Count values that are to be made."""
        if count > self.values:
            raise NoValueError
        self.values -= count

    def behind_varints(self, at: int, count: int) -> int:
        """Return the place behind so many varints. NoValueError where there are less."""
        self.left -= 1
        ends = self._varint_ends()
        last = int(np.searchsorted(ends, at)) + count - 1
        if last >= len(ends):
            raise NoValueError
        return int(ends[last]) + 1


def number_at(body: bytes, at: int) -> tuple[int, int]:
    """Return a varint, and the place behind it."""
    byte = body[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    encoded, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 63:
            raise NoValueError
        byte = body[at]
        at += 1
        encoded |= (byte & 0x7F) << shift
        shift += 7
    if encoded >> 64:
        raise NoValueError
    return (encoded >> 1) ^ -(encoded & 1), at


def text_end(body: bytes, at: int) -> int:
    """Return the place behind a text."""
    length, at = number_at(body, at)
    if length < 0:
        raise NoValueError
    return at + length
