"""The bytes of many records, read at one position in each of them: all varints of a column at once.

Behind the bytes of the records is an area of zeros. Zeros are a value of every type that takes no
memory: 0, false, the first symbol, a text or a list of nothing, the first branch. So a row without
a value (a branch that it did not take, a record that is damaged) is read there, and no row has to
be left out. A record's damage sends it there, too: as each record must end where its bytes do, its
row is found in the end, with no check on the way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.protocol.avro.one_value import (
    MOST_STEPS,
    NoValueError,
    Steps,
    TooManyStepsError,
)
from storage_engine.protocol.avro.value_room import ValueRoom
from storage_engine.protocol.records.arrow_binary import numbers_in
from storage_engine.protocol.records.arrow_kernels import take
from storage_engine.protocol.records.varints import SMALL_NUMBERS, Bytes, Ints, Mask, Words

_MARGIN = 32
"""Zeros before the first record, which decimals are read from, and behind the last."""
_VALUES_PER_BYTE = 32
_VALUES_EVERYWHERE = 1024
"""A record's lists may hold so many values for each of its bytes, and in any case. Values with
bytes of their own can't exceed this; nulls, each of which may stand for a wide record, can."""

_MANY_ROWS = 200
"""Passes over so many rows are bounded by the bytes of these."""
_PASS_STEPS = 60
"""A pass over few rows takes as much time as so many steps by Python."""

_LAST_7 = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
_TOP = np.uint64(0x8080_8080_8080_8080)
_ONES = np.uint64(0x0101_0101_0101_0101)
_LOWER_7, _UPPER_7 = np.uint64(0x007F_007F_007F_007F), np.uint64(0x7F00_7F00_7F00_7F00)
_LOWER_14, _UPPER_14 = np.uint64(0x0000_3FFF_0000_3FFF), np.uint64(0x3FFF_0000_3FFF_0000)
_LOWER_28 = np.uint64(0x0FFF_FFFF)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_WORD_BYTES = 8


class Bodies(NamedTuple):
    """Records of some bytes, without any framing, in their order."""

    data: Bytes
    starts: Ints
    ends: Ints
    """A record has the bytes from its start to its end, and may have a gap behind it."""

    @classmethod
    def of(cls, array: pa.BinaryArray) -> "Bodies":
        """Return the values of an array; a null has no bytes."""
        offsets = numbers_in(array.buffers()[1], np.int32, array.offset, len(array) + 1)
        places = offsets.astype(np.int64)
        data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
        return cls(data, places[:-1], places[1:])

    def __len__(self) -> int:
        return len(self.starts)

    def first(self, count: int) -> "Bodies":
        """Return so many of the first records."""
        return Bodies(self.data, self.starts[:count], self.ends[:count])

    def at(self, row: int) -> Bytes:
        return self.data[self.starts[row] : self.ends[row]]


class RecordBytes:
    """The bytes of some records, with margins."""

    def __init__(self, data: Bytes, sizes: Ints, room: ValueRoom | None = None) -> None:
        """`data` is copied; `sizes` are those of the records. `room`: for the values of all lists
        together."""
        size = len(data)
        # Arrow's memory is used again, numpy's is given back: fresh pages take time.
        self.buffer = pa.allocate_buffer(size + 4 * _MARGIN)
        self.bytes: Bytes = np.frombuffer(self.buffer, np.uint8)
        self.bytes[:_MARGIN] = 0
        self.bytes[_MARGIN : _MARGIN + size] = data
        self.bytes[_MARGIN + size :] = 0
        self.first = _MARGIN
        self.zeros = size + 2 * _MARGIN
        """The place of the zeros. No record ends there."""
        self.broken: Mask = np.zeros(len(sizes), np.bool_)
        """The records with a value that is none of its type."""
        self.too_long: set[int] = set()
        """The records that took too many steps."""
        self._values_left: Ints = _VALUES_EVERYWHERE + _VALUES_PER_BYTE * sizes
        self._steps_left: dict[int, int] = {}
        self._varint_ends: Ints | None = None
        self._room = room
        self._every: dict[int, npt.NDArray[np.void]] = {}
        """The bytes from every place on, by their number."""
        self._body: bytes | None = None
        self._every_other: pa.Array | None = None

    def words(self, places: Ints, size: int) -> npt.NDArray[np.void]:
        """Return `size` bytes (4 or 8) from each place on, which may be beyond the end."""
        every = self._every.get(size)
        if every is None:
            shape = (len(self.bytes) - size + 1,)
            every = np.ndarray(shape, f"V{size}", self.bytes.data, strides=(1,))
            self._every[size] = every
        try:
            return every[places]
        except IndexError:
            return every[np.minimum(places, len(every) - 1)]

    def every_other(self, count: int) -> pa.Array:
        """Return the numbers 1, 3, 5 and so on, so many of them."""
        if self._every_other is None or len(self._every_other) != count:
            numbers = pa.py_buffer(np.arange(1, 2 * count + 1, 2, dtype=np.int32))
            self._every_other = pa.Array.from_buffers(pa.int32(), count, [None, numbers])
        return self._every_other

    def varint_ends(self) -> Ints:
        """Return the place of each byte that is the last of a varint, if it is in one."""
        if self._varint_ends is None:
            self._varint_ends = np.flatnonzero(self.bytes < 0x80)
        return self._varint_ends

    def take_room(self, values: int) -> None:
        """Take room for values of lists; RecordTooLargeError when there is not enough."""
        if self._room is not None:
            self._room.take(values)

    def take_pass(self, rows: int) -> None:
        """Count a pass over so many rows, as the steps that it stands for; RecordTooLargeError when
        there are too many."""
        if self._room is not None and rows < _MANY_ROWS:
            self._room.take_steps(max(rows, _PASS_STEPS))

    def too_many_values(self, rows: Ints, counts: Ints) -> Mask:
        """Count values of lists; return where a record has more than it may."""
        np.subtract.at(self._values_left, rows, counts)
        return self._values_left[rows] < 0

    def stepped(self, record: int, end: int, read: Callable[[bytes, Steps], int]) -> int:
        """Return the place that `read` comes to in a record, whose end is `end`; that of the zeros
        where there is no value, or where the record takes too long."""
        if self._body is None:
            self._body = self.bytes.tobytes()
        before = self._steps_left.get(record, MOST_STEPS)
        steps = Steps(
            end=end,
            left=before,
            values=int(self._values_left[record]),
            varint_ends=self.varint_ends,
            take_room=self.take_room,
        )
        place = self.zeros
        try:
            place = read(self._body, steps)
        except TooManyStepsError:
            self.too_long.add(record)
        except (NoValueError, IndexError):
            pass
        self._steps_left[record] = steps.left
        self._values_left[record] = steps.values
        if self._room is not None:
            self._room.take_steps(before - steps.left)
        return place


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that are read together: each is a record, or a part of one."""

    source: RecordBytes
    ends: Ints
    """The place behind the record of each row."""
    records: Ints = field(repr=False)
    """The number of the record of each row."""

    def __len__(self) -> int:
        return len(self.ends)

    def some(self, rows: Ints) -> "Rows":
        """Return these rows."""
        return Rows(self.source, self.ends[rows], self.records[rows])

    def repeated(self, counts: Ints) -> "Rows":
        """Return each row as often as `counts` says."""
        return Rows(self.source, np.repeat(self.ends, counts), np.repeat(self.records, counts))

    def lost(self, places: Ints, wrong: Mask) -> Ints:
        """Return the places with the zeros in place of those of damaged rows."""
        return np.where(wrong, self.source.zeros, places)

    def mark(self, wrong: Mask) -> None:
        """Note the rows whose value is none of its type."""
        if np.count_nonzero(wrong):
            self.source.broken[self.records[wrong]] = True

    def bytes_at(self, places: Ints) -> Bytes:
        return self.source.bytes.take(places, mode="clip")

    def varints(self, places: Ints) -> tuple[Ints, Ints]:
        """Return the numbers, and the places behind them. A row with a varint of more than 64 bits
        is marked."""
        first = self.bytes_at(places)
        if not len(first) or first.max() < 0x80:
            return SMALL_NUMBERS.take(first), places + 1
        words = self.source.words(places, 8).view(np.uint64)
        stops = ~words
        stops &= _TOP
        # The bits up to the first stop. All bits are set where no byte is the last one: its eight
        # bytes are a part of the varint.
        kept = stops - _ONE
        kept ^= stops
        words &= kept
        words &= _LAST_7
        kept &= _ONES
        kept *= _ONES
        kept >>= np.uint64(56)
        sizes = kept.view(np.int64)
        most = int(sizes.max())
        _join_groups(words, most)
        if most == _WORD_BYTES and np.count_nonzero(stops) < len(stops):
            self._read_ninth(places, np.flatnonzero(stops == 0), words, sizes)
        signs = words & _ONE
        words >>= _ONE
        numbers = words.view(np.int64)
        numbers ^= -signs.view(np.int64)
        return numbers, places + sizes

    def _read_ninth(self, places: Ints, rows: Ints, words: Words, sizes: Ints) -> None:
        """Add the ninth and tenth bytes of `rows`."""
        ninth = self.bytes_at(places[rows] + 8)
        more = ninth >= 0x80
        tenth = np.where(more, self.bytes_at(places[rows] + 9), 0)
        words[rows] |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        words[rows] |= (tenth & 1).astype(np.uint64) << np.uint64(63)
        sizes[rows] = 9 + more
        self.source.broken[self.records[rows[tenth > 1]]] = True

    def lengths(self, places: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the lengths of texts, the places of their first bytes, and those behind the last
        ones. A row whose text is longer than its record is lost."""
        lengths, starts = self.varints(places)
        # Of lengths that are not true, sums may be beyond 64 bits.
        left = self.ends - starts
        if len(lengths) and (lengths.min() < 0 or np.count_nonzero(lengths > left)):
            wrong = lengths > np.maximum(left, 0)
            wrong |= lengths < 0
            lengths, starts = np.where(wrong, 0, lengths), self.lost(starts, wrong)
        return lengths, starts, starts + lengths

    def gather(self, starts: Ints, stops: Ints) -> tuple[pa.Buffer, pa.Buffer]:
        """Return the buffers of an array of the bytes in these ranges: offsets and data."""
        count = len(starts)
        # The texts and the gaps between them are the rows of one array; every other one is taken.
        # It begins at 0, as Arrow estimates the size of the result by all rows.
        bounds = np.empty(2 * count + 2, np.int32)
        bounds[0] = 0
        bounds[1:-1:2] = starts
        bounds[2:-1:2] = stops
        bounds[-1] = len(self.source.bytes)
        every = pa.Array.from_buffers(
            pa.binary(), 2 * count + 1, [None, pa.py_buffer(bounds), self.source.buffer]
        )
        _, offsets, data = take(every, self.source.every_other(count)).buffers()
        return offsets, data


def _join_groups(words: Words, most: int) -> None:
    """Join the lower seven bits of each byte, of so many at most."""
    upper = words & _UPPER_7
    words &= _LOWER_7
    upper >>= _ONE
    words |= upper
    if most <= 2:
        return
    np.bitwise_and(words, _UPPER_14, out=upper)
    words &= _LOWER_14
    upper >>= _TWO
    words |= upper
    if most <= 4:
        return
    np.right_shift(words, np.uint64(32), out=upper)
    words &= _LOWER_28
    upper <<= np.uint64(28)
    words |= upper
