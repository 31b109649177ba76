"""Reads decimals: unscaled numbers of two's complement, highest byte first, in bytes or fixed."""

import numpy as np
import pyarrow as pa

from storage_engine.protocol.avro.arrays import bits
from storage_engine.protocol.avro.one_value import Steps, text_end
from storage_engine.protocol.avro.plain_readers import fixed_lengths
from storage_engine.protocol.avro.record_bytes import Rows
from storage_engine.protocol.avro.value_reader import ValueReader
from storage_engine.protocol.records.varints import Ints, Mask, Words

_WORD = 8
_NUMBER = 16
_WORD_DIGITS = 18
"""Each number of eight bytes has one digit more at most."""

_UNUSED_BITS: Ints = np.array([63, *range(56, -1, -8)], np.int64)
"""The bits of a word before a number of so many bytes."""


class DecimalReader(ValueReader):
    """Reads decimals; `size` is that of a fixed type, None for bytes."""

    def __init__(self, kind: pa.Decimal128Type, size: int | None) -> None:
        self.kind = kind
        self.size = self._bytes = size
        if size is not None:
            self.least = size
        self._bound = divmod(10**kind.precision, 1 << 64)
        self._is_narrow: bool = kind.precision <= _WORD_DIGITS

    def skip(self, rows: Rows, places: Ints) -> Ints:
        if self._bytes is not None:
            return places + self._bytes
        return rows.lengths(places)[2]

    def step(self, body: bytes, at: int, steps: Steps) -> int:
        return text_end(body, at) if self._bytes is None else at + self._bytes

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        if self._bytes is None:
            lengths, starts, ends = rows.lengths(places)
            after = ends
        else:
            lengths, starts = fixed_lengths(rows, places, self._bytes)
            ends, after = starts + lengths, places + self._bytes
        halves = np.empty((len(rows), 2), np.int64)
        lower = halves[:, 0]
        lower[:] = _signed(rows, ends, lengths)
        halves[:, 1] = lower >> 63
        if not len(rows) or lengths.max() <= _WORD:
            if self._is_narrow and len(rows):
                too_large = lower >= self._bound[1]
                too_large |= lower <= -self._bound[1]
                rows.mark(too_large)
        else:
            long = np.flatnonzero(lengths > _WORD)
            some = rows.some(long)
            halves[long, 1] = _signed(some, ends[long] - _WORD, lengths[long] - _WORD)
            _check_sign_bytes(some, starts[long], lengths[long], halves[long, 1])
            rows.mark(self._too_large(halves))
        buffers = [bits(valid), pa.py_buffer(halves)]
        return pa.Array.from_buffers(self.kind, len(rows), buffers), after

    def _too_large(self, halves: Ints) -> Mask:
        """Return where a number has more digits than the type."""
        negative = halves[:, 1] < 0
        words: Words = halves.view(np.uint64)
        lower, upper = words[:, 0], words[:, 1]
        if negative.any():
            carry = negative & (lower == 0)
            flipped = np.where(negative, ~np.uint64(0), np.uint64(0))
            lower = (lower ^ flipped) + negative.astype(np.uint64)
            upper = (upper ^ flipped) + carry.astype(np.uint64)
        most_upper, most_lower = self._bound
        same = (upper == np.uint64(most_upper)) & (lower >= np.uint64(most_lower))
        found: Mask = (upper > np.uint64(most_upper)) | same
        return found


def _signed(rows: Rows, ends: Ints, lengths: Ints) -> Ints:
    """Return the numbers of the last eight bytes before each end, or of so many as there are."""
    words = rows.source.words(ends - _WORD, _WORD).view(">i8").astype(np.int64)
    unused = _UNUSED_BITS.take(lengths, mode="clip")
    words <<= unused
    words >>= unused
    # A shift by all 64 bits has no defined result.
    words[lengths == 0] = 0
    return words


def _check_sign_bytes(rows: Rows, starts: Ints, lengths: Ints, upper: Ints) -> None:
    """Mark the rows in which more than sixteen bytes are needed."""
    wrong = np.zeros(len(rows), np.bool_)
    for row in np.flatnonzero(lengths > _NUMBER).tolist():
        first = int(starts[row])
        more = rows.source.bytes[first : first + int(lengths[row]) - _NUMBER]
        wrong[row] = (more != (0xFF if upper[row] < 0 else 0)).any()
    rows.mark(wrong)
