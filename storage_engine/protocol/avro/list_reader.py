"""Readers of arrays and maps: blocks of items, each behind its count, up to a block of none.

An item begins where the one before it ends. Where all items have one size, or are varints, all
places of a block are known at once; others are found in rounds, the n-th item of all rows in each.
Where few rows have so many items or blocks, each of them is read to its end by Python, item by
item: a round would cost more. Rounds for few rows count as steps, too.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from storage_engine.protocol.avro.arrays import bits
from storage_engine.protocol.avro.one_value import (
    NoValueError,
    Steps,
    TooManyStepsError,
    number_at,
)
from storage_engine.protocol.avro.record_bytes import Rows
from storage_engine.protocol.avro.value_reader import ValueReader
from storage_engine.protocol.records.varints import Ints, Mask

_FEW_ROWS = 30
"""With less rows than that a round costs more than reading one by one does."""
_LONG_RUN = 64
"""From so many varints on it is quicker to look for the end of the last than to read them."""
_MOST = 1 << 40
"""More items than there can be, few enough to be computed with."""


class ListReader(ValueReader):
    """Reads arrays as lists; with entries (structs of key and value) as items, maps."""

    def __init__(self, kind: pa.DataType, item: ValueReader) -> None:
        self.kind = kind
        self._item = item
        self._counts_values = item.values > item.least
        self._is_even = item.size is not None or item.varints is not None

    def skip(self, rows: Rows, places: Ints) -> Ints:
        return self._find(rows, places)[1]

    def step(self, body: bytes, at: int, steps: Steps) -> int:
        return self._list(at, None, body, steps)

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        blocks, after = self._find(rows, places)
        counts, starts = _joined(blocks, len(rows))
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        items, _ = self._item.read(rows.repeated(counts), starts, None)
        buffers = [bits(valid), pa.py_buffer(offsets)]
        array = pa.Array.from_buffers(self.kind, len(rows), buffers, children=[items])
        return array, after

    def _find(self, rows: Rows, places: Ints) -> "tuple[list[_Block], Ints]":
        """Return the items of the lists block by block, and the places behind the lists."""
        blocks: list[_Block] = []
        after = places.copy()
        which = np.arange(len(rows))
        while len(which):
            if len(which) < _FEW_ROWS and (blocks or not self._is_even):
                block, after[which] = self._one_by_one(rows, which, places)
                blocks.append(block)
                break
            rows.source.take_pass(len(which))
            head = self._head(rows, places)
            going = np.flatnonzero(head.counts)
            if len(going) < len(which):
                after[which] = head.starts
                which, rows, head = which[going], rows.some(going), head.some(going)
            if not len(which):
                break
            starts, places = self._item_places(rows, head)
            wrong = (head.stops >= 0) & (places != head.stops)
            if wrong.any():
                places = rows.lost(places, wrong)
            blocks.append(_Block(which, head.counts, starts))
        return blocks, after

    def _head(self, rows: Rows, places: Ints) -> "_Head":
        """Read the heads of blocks; rows that claim more items than they can have are lost."""
        counts, starts = rows.varints(places)
        stops = np.full(len(rows), -1)
        sized = counts < 0
        if sized.any():
            sizes, after = rows.varints(np.where(sized, starts, rows.source.zeros))
            starts = np.where(sized, after, starts)
            stops = np.where(sized, starts + sizes, -1)
            counts = np.abs(counts)
        room = np.maximum(rows.ends - starts, 0)
        most = room // self._item.least if self._item.least else _MOST
        head = _Head(counts, starts, stops).without(rows, (counts > most) | (counts < 0))
        if self._counts_values and head.counts.any():
            wrong = rows.source.too_many_values(rows.records, head.counts * self._item.values)
            head = head.without(rows, wrong)
        rows.source.take_room(int(head.counts.sum()) * self._item.values)
        return head

    def _item_places(self, rows: Rows, head: "_Head") -> tuple[Ints, Ints]:
        """Return the places of all items, row by row, and the place behind the last of each row.
        Each row has an item."""
        counts, starts = head.counts, head.starts
        firsts = np.cumsum(counts) - counts
        if not self._is_even:
            return self._in_rounds(rows, head, firsts)
        numbers = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
        if self._item.size is not None:
            places = np.repeat(starts, counts) + numbers * self._item.size
            return places, starts + counts * self._item.size
        varints = self._item.varints or 0
        stops = rows.source.varint_ends()
        behind = np.searchsorted(stops, starts) - 1
        last = len(stops) - 1
        places = stops[np.minimum(np.repeat(behind, counts) + numbers * varints, last)] + 1
        places[firsts] = starts
        return places, stops[np.minimum(behind + counts * varints, last)] + 1

    def _in_rounds(self, rows: Rows, head: "_Head", firsts: Ints) -> tuple[Ints, Ints]:
        places = np.empty(int(head.counts.sum()), np.int64)
        after = np.empty(len(rows), np.int64)
        which, counts, at = np.arange(len(rows)), head.counts, head.starts
        number = 0
        while len(which) >= _FEW_ROWS:
            rows.source.take_pass(len(which))
            places[firsts[which] + number] = at
            at = self._item.skip(rows, at)
            number += 1
            more = counts > number
            if not more.all():
                after[which] = at
                going = np.flatnonzero(more)
                which, counts, at, rows = which[going], counts[going], at[going], rows.some(going)
        for row, count, at_row, end, record in zip(
            which.tolist(),
            (counts - number).tolist(),
            at.tolist(),
            rows.ends.tolist(),
            rows.records.tolist(),
            strict=True,
        ):
            found: list[int] = []
            behind = rows.source.stepped(record, end, partial(self._items, at_row, count, found))
            first = int(firsts[row]) + number
            is_lost = behind == rows.source.zeros
            places[first : first + count] = rows.source.zeros if is_lost else found
            after[row] = behind
        return places, after

    def _one_by_one(self, rows: Rows, which: Ints, places: Ints) -> "tuple[_Block, Ints]":
        """Return the items of lists, all blocks as one, and the places behind the lists."""
        counts = np.zeros(len(rows), np.int64)
        after = np.empty(len(rows), np.int64)
        starts: list[int] = []
        for row, (at, end, record) in enumerate(
            zip(places.tolist(), rows.ends.tolist(), rows.records.tolist(), strict=True)
        ):
            found: list[int] = []
            after[row] = rows.source.stepped(record, end, partial(self._list, at, found))
            if after[row] != rows.source.zeros:
                counts[row] = len(found)
                starts += found
        return _Block(which, counts, np.array(starts, np.int64)), after

    def _list(self, at: int, found: list[int] | None, body: bytes, steps: Steps) -> int:
        """Return the place behind a list; `found` gets the places of its items."""
        while True:
            count, at = number_at(body, at)
            if not count:
                return at
            stop = None
            if count < 0:
                size, at = number_at(body, at)
                count, stop = -count, at + size
            if found is not None and self._counts_values:
                steps.make(count * self._item.values)
            if found is not None and count * self._item.least <= steps.end - at:
                steps.take_room(count * self._item.values)
            at = self._items(at, count, found, body, steps)
            if at > steps.end or stop not in (None, at):
                raise NoValueError
            if steps.left < 0:
                raise TooManyStepsError

    def _items(
        self, at: int, count: int, found: list[int] | None, body: bytes, steps: Steps
    ) -> int:
        """Return the place behind the items of a block."""
        item, end = self._item, steps.end
        if count * item.least > end - at:
            raise NoValueError
        if item.size is not None:
            steps.left -= 1
            if found is not None:
                found += range(at, at + count * item.size, item.size) if item.size else [at] * count
            return at + count * item.size
        if found is None and item.varints is not None and count >= _LONG_RUN:
            return steps.behind_varints(at, count * item.varints)
        steps.left -= count
        step = item.step
        for _ in range(count):
            if found is not None:
                found.append(at)
            at = step(body, at, steps)
            if at > end:
                raise NoValueError
            if steps.left < 0:
                raise TooManyStepsError
        return at


class _Head(NamedTuple):
    """The heads of blocks, before their items."""

    counts: Ints
    starts: Ints
    stops: Ints
    """Where the blocks say that they end; -1 where they don't say it."""

    def some(self, rows: Ints) -> "_Head":
        return _Head(self.counts[rows], self.starts[rows], self.stops[rows])

    def without(self, rows: Rows, wrong: Mask) -> "_Head":
        """Return the heads without those of rows that are lost by it."""
        if not wrong.any():
            return self
        counts = np.where(wrong, 0, self.counts)
        return _Head(counts, rows.lost(self.starts, wrong), np.where(wrong, -1, self.stops))


class _Block(NamedTuple):
    """Items of some rows: their n-th blocks, or all that is left of their lists."""

    which: Ints
    counts: Ints
    starts: Ints
    """The places of the items, row by row."""


def _joined(blocks: list[_Block], count: int) -> tuple[Ints, Ints]:
    """Return the number of items of each row, and the places of all, row by row."""
    counts = np.zeros(count, np.int64)
    for block in blocks:
        counts[block.which] += block.counts
    if not blocks:
        return counts, np.zeros(0, np.int64)
    starts = np.concatenate([block.starts for block in blocks])
    if len(blocks) > 1:
        owners = np.concatenate([np.repeat(block.which, block.counts) for block in blocks])
        starts = starts[np.argsort(owners, kind="stable")]
    return counts, starts
