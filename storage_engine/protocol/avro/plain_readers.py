"""Readers of what has no parts: numbers, texts, enums."""

import numpy as np
import pyarrow as pa

from storage_engine.protocol.avro.arrays import bits, plain_array, taken, texts
from storage_engine.protocol.avro.one_value import Steps, number_at, text_end
from storage_engine.protocol.avro.record_bytes import Rows
from storage_engine.protocol.avro.value_reader import ValueReader
from storage_engine.protocol.records.varints import Ints, Mask

_LONG_BYTES = 8
_SYMBOL_LENGTH = 16
"""So many characters of an enum's symbol count for one value more."""


class NullReader(ValueReader):
    """Reads nulls, which have no bytes."""

    kind = pa.null()
    least = 0
    size = 0

    def skip(self, rows: Rows, places: Ints) -> Ints:
        return places

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        return pa.nulls(len(rows)), places


class BooleanReader(ValueReader):
    """Reads a byte that is 0 or 1."""

    kind = pa.bool_()
    size = 1

    def skip(self, rows: Rows, places: Ints) -> Ints:
        return places + 1

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        found = rows.bytes_at(places)
        rows.mark(found > 1)
        buffers = [bits(valid), bits(found == 1)]
        return pa.Array.from_buffers(self.kind, len(rows), buffers), places + 1


class FloatReader(ValueReader):
    """Reads floats and doubles."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._bytes: int = kind.byte_width
        self.size = self.least = self._bytes

    def skip(self, rows: Rows, places: Ints) -> Ints:
        return places + self._bytes

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        words = rows.source.words(places, self._bytes)
        return plain_array(self.kind, words, valid), places + self._bytes


class IntegerReader(ValueReader):
    """Reads ints and longs. `factor` turns them into the unit of `kind`."""

    varints = 1

    def __init__(self, kind: pa.DataType, *, factor: int = 1) -> None:
        self.kind = kind
        self._factor = factor
        self._type = np.dtype(f"i{kind.byte_width}")
        limits = np.iinfo(self._type)
        self._least, self._most = -(-limits.min // factor), limits.max // factor
        self._has_limits = factor != 1 or kind.byte_width < _LONG_BYTES

    def skip(self, rows: Rows, places: Ints) -> Ints:
        return rows.varints(places)[1]

    def step(self, body: bytes, at: int, steps: Steps) -> int:
        return number_at(body, at)[1]

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        numbers, after = rows.varints(places)
        if (
            self._has_limits
            and len(numbers)
            and (numbers.min() < self._least or numbers.max() > self._most)
        ):
            wrong = (numbers < self._least) | (numbers > self._most)
            rows.mark(wrong)
            numbers[wrong] = 0
        if self._factor != 1:
            numbers *= self._factor
        return plain_array(self.kind, numbers.astype(self._type, copy=False), valid), after


class TextReader(ValueReader):
    """Reads strings and bytes."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._is_text = pa.types.is_string(kind)

    def skip(self, rows: Rows, places: Ints) -> Ints:
        return rows.lengths(places)[2]

    def step(self, body: bytes, at: int, steps: Steps) -> int:
        return text_end(body, at)

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        _, starts, after = rows.lengths(places)
        offsets, data = rows.gather(starts, after)
        array = pa.Array.from_buffers(self.kind, len(rows), [bits(valid), offsets, data])
        if self._is_text:
            _check_utf8(rows, starts, after, array)
        return array, after


def _check_utf8(rows: Rows, starts: Ints, ends: Ints, array: pa.Array) -> None:
    found = np.frombuffer(array.buffers()[2], np.uint8)
    if not len(found) or found.max() < 0x80:
        return
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        data = rows.source.bytes.data
        ranges = zip(starts.tolist(), ends.tolist(), strict=True)
        rows.mark(np.array([not _is_utf8(data[start:end]) for start, end in ranges]))


def _is_utf8(data: memoryview) -> bool:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


class FixedReader(ValueReader):
    """Reads a number of bytes without their length."""

    kind = pa.binary()

    def __init__(self, size: int) -> None:
        self.size = self.least = self._bytes = size

    def skip(self, rows: Rows, places: Ints) -> Ints:
        return places + self._bytes

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        lengths, starts = fixed_lengths(rows, places, self._bytes)
        buffers = [bits(valid), *rows.gather(starts, starts + lengths)]
        # Those behind the end of their record stay there, and so are found.
        return pa.Array.from_buffers(self.kind, len(rows), buffers), places + self._bytes


def fixed_lengths(rows: Rows, places: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the lengths of fixed values and their places: rows whose record has not so many bytes
    left have a value of no bytes, at the zeros."""
    short = places > rows.ends - size
    if np.count_nonzero(short):
        return np.where(short, 0, size), rows.lost(places, short)
    return np.full(len(rows), size, np.int64), places


class EnumReader(ValueReader):
    """Reads the symbols of an enum as strings."""

    kind = pa.string()
    varints = 1

    def __init__(self, symbols: tuple[str, ...]) -> None:
        self._symbols = texts(symbols)
        # The one byte of a symbol may become a long text.
        self.values = 1 + max(map(len, symbols)) // _SYMBOL_LENGTH

    def skip(self, rows: Rows, places: Ints) -> Ints:
        return rows.varints(places)[1]

    def step(self, body: bytes, at: int, steps: Steps) -> int:
        return number_at(body, at)[1]

    def read(self, rows: Rows, places: Ints, valid: Mask | None) -> tuple[pa.Array, Ints]:
        numbers, after = rows.varints(places)
        wrong = (numbers < 0) | (numbers >= len(self._symbols))
        if np.count_nonzero(wrong):
            rows.mark(wrong)
            numbers[wrong] = 0
        return taken(self._symbols, numbers, valid), after
