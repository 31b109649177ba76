"""Readers of arrays and maps: blocks of items, each behind its count, up to a block of none.

An item begins where the one before it ends. Where all items have one size, or are varints, all
places are known at once; others are found in rounds, the n-th item of all rows in each, and in the
rows with the longest lists by doubling: from every byte of the record it is computed where an item
would end that began there, then where two would, four, and so on. Items with lists in them, which
can't be computed so from any byte, are read one by one there.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from storage_engine.protocol.avro.arrays import bits
from storage_engine.protocol.avro.record_bytes import Rows
from storage_engine.protocol.avro.value_reader import ValueReader
from storage_engine.protocol.records.varints import Ints, Mask

_ROUNDS = 32
_FEW_ROWS = 40
"""From that round on, and with less rows than that, a round costs more than doubling does."""
_WALKED_VALUES = 16
"""An item that is read by Python takes as much time as so many others."""
_MOST = 1 << 40
"""More items than there can be, few enough to be computed with."""


ItemWalk: TypeAlias = Callable[[bytes, int], Iterator[int]]
"""Yields the place behind each item in the bytes, from a place on, up to one that is damaged."""


class ListReader(ValueReader):
    """Reads arrays as lists; with entries (structs of key and value) as items, maps."""

    has_lists = True

    def __init__(self, kind: pa.DataType, item: ValueReader, walk: ItemWalk) -> None:
        """`walk` finds the places of items one by one, where `item` has lists."""
        self.kind = kind
        self._walk = walk
        self._item = item
        self._counts_values = item.values > item.least

    def skip(self, rows: Rows, places: Ints) -> Ints:
        return self._find(rows, places)[1]

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
            head = self._head(rows, places)
            going = np.flatnonzero(head.counts)
            if blocks and len(going):
                wrong = np.zeros(len(rows), np.bool_)
                wrong[going] = rows.source.too_many_blocks(rows.records[going])
                head = head.without(rows, wrong)
                going = np.flatnonzero(head.counts)
            if len(going) < len(which):
                after[which] = head.starts
                which, rows, head = which[going], rows.some(going), head.some(going)
            if not len(which):
                break
            starts, places = _item_places(self._item, self._walk, rows, head)
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
    """The n-th blocks of the rows that have so many."""

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


def _item_places(item: ValueReader, walk: ItemWalk, rows: Rows, head: _Head) -> tuple[Ints, Ints]:
    """Return the places of all items, row by row, and the place behind the last of each row. Each
    row has an item."""
    counts, starts = head.counts, head.starts
    firsts = np.cumsum(counts) - counts
    if item.size is None and item.varints is None:
        return _in_rounds(item, walk, rows, head, firsts)
    numbers = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
    if item.size is not None:
        return np.repeat(starts, counts) + numbers * item.size, starts + counts * item.size
    varints = item.varints or 0
    stops = rows.source.varint_ends()
    behind = np.searchsorted(stops, starts) - 1
    last = len(stops) - 1
    places = stops[np.minimum(np.repeat(behind, counts) + numbers * varints, last)] + 1
    places[firsts] = starts
    return places, stops[np.minimum(behind + counts * varints, last)] + 1


def _in_rounds(
    item: ValueReader, walk: ItemWalk, rows: Rows, head: _Head, firsts: Ints
) -> tuple[Ints, Ints]:
    places = np.empty(int(head.counts.sum()), np.int64)
    after = np.empty(len(rows), np.int64)
    which, counts, at = np.arange(len(rows)), head.counts, head.starts
    number = 0
    while len(which):
        places[firsts[which] + number] = at
        at = item.skip(rows, at)
        number += 1
        more = counts > number
        if not more.all():
            after[which] = at
            going = np.flatnonzero(more)
            which, counts, at, rows = which[going], counts[going], at[going], rows.some(going)
        if number >= _ROUNDS and len(which) < _FEW_ROWS:
            break
    for row, count, start, end in zip(
        which.tolist(), (counts - number).tolist(), at.tolist(), rows.ends.tolist(), strict=True
    ):
        if item.has_lists:
            found = _one_by_one(walk, rows, count, start, end)
        else:
            found = _by_doubling(item, rows, count, start, end)
        first = int(firsts[row]) + number
        places[first : first + count] = found[:-1]
        after[row] = found[-1]
    return places, after


def _one_by_one(walk: ItemWalk, rows: Rows, count: int, start: int, end: int) -> Ints:
    """Return the places of `count` items from `start` on, and the one behind them."""
    rows.source.take_room(count * _WALKED_VALUES)
    found = np.full(count + 1, rows.source.zeros)
    found[0] = start
    body = rows.source.bytes[start:end].tobytes() if start < end else b""
    behind = np.fromiter(islice(walk(body, 0), count), np.int64)
    found[1 : 1 + len(behind)] = behind + start
    return found


def _by_doubling(item: ValueReader, rows: Rows, count: int, start: int, end: int) -> Ints:
    """Return the places of `count` items from `start` on, and the one behind them."""
    found = np.full(count + 1, rows.source.zeros)
    if start >= end:
        return found
    source = rows.source
    # A row for each byte, and one for whatever is behind the record.
    candidates = np.arange(start, end)
    nobody = np.full(len(candidates), len(source.broken) - 1)
    every = Rows(source, np.full(len(candidates), end), nobody)
    beyond = end - start + 1
    jumps = np.full(beyond + 1, beyond)
    jumps[: beyond - 1] = np.minimum(item.skip(every, candidates) - start, beyond)
    steps = np.zeros(count + 1, np.int64)
    have = 1
    while have <= count:
        more = min(have, count + 1 - have)
        steps[have : have + more] = jumps[steps[:more]]
        have += more
        jumps = jumps[jumps]
    inside = steps < beyond
    found[inside] = steps[inside] + start
    return found
