"""Turns record headers into Arrow's list<struct<key: string, value: binary>> and back.

Order and repeated keys are kept as they came. A record without headers is read as a null list,
which is what Spark's Kafka connector does; null and empty lists are written alike.

    header       bytes   meaning
    key length   varint
    key                  UTF-8
    value length varint  -1: null
    value

Source: KIP-82.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from storage_engine.core.errors import InvalidRecordError
from storage_engine.protocol.records.arrow_binary import (
    NULL_LENGTH,
    BinaryValues,
    as_column,
    binary_array,
    gather,
    join,
    varint_rows,
)
from storage_engine.protocol.records.control_record import read_varint
from storage_engine.protocol.records.varints import (
    VARINT_BYTES,
    Bytes,
    DamagedVarintError,
    Ints,
    read_column,
    zigzag_column,
)

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_LEAST_HEADER_BYTES = 2
_LEAST_VECTOR_ROWS = 16
"""A step over fewer records than this costs more than reading their headers one by one."""


class DamagedHeaderError(ValueError):
    """The headers of row `index` are damaged."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderColumn:
    """The parts of a list array of headers."""

    ends: Ints
    """Row i has the headers [ends[i], ends[i + 1])."""
    keys: BinaryValues
    values: BinaryValues

    @classmethod
    def of(cls, headers: pa.Array) -> "HeaderColumn | None":
        """Return the column; None when no row has a header. InvalidRecordError for a null key or
        another type."""
        kind = headers.type
        if pa.types.is_null(kind):
            return None
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise _wrong_type(kind)
        entry_kind = kind.value_type
        if not pa.types.is_struct(entry_kind) or entry_kind.names != ["key", "value"]:
            raise _wrong_type(kind)
        import pyarrow.compute as pc

        counts = pc.fill_null(pc.list_value_length(headers), 0).cast(pa.int64()).to_numpy()
        entries = headers.flatten()
        if not len(entries):
            return None
        key_array, value_array = entries.flatten()
        if key_array.null_count:
            raise InvalidRecordError("a record header has a null key: every header needs one")
        return cls(
            ends=np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))),
            keys=as_column(key_array, "the key of the headers"),
            values=as_column(value_array, "the value of the headers"),
        )

    def size_bounds(self) -> Ints:
        """Return the most bytes that the headers of each row take."""
        payload = self.keys.lengths + np.maximum(self.values.lengths, 0) + 2 * VARINT_BYTES
        upto = np.concatenate((np.zeros(1, np.int64), np.cumsum(payload)))[self.ends]
        return np.diff(upto) + VARINT_BYTES

    def encode(self, start: int, stop: int) -> tuple[Ints, tuple[pa.Array, pa.Array | pa.Scalar]]:
        """Encode rows [start, stop): return the size of each row's headers, and their two columns,
        which are the count of the headers and their bytes."""
        first, last = int(self.ends[start]), int(self.ends[stop])
        counts = zigzag_column(np.diff(self.ends[start : stop + 1]))
        sizes = np.broadcast_to(counts.sizes, stop - start)
        count_array = varint_rows(counts, rooms=np.zeros(stop - start, np.int64))
        if first == last:
            return sizes, (count_array, pa.scalar(b"", pa.binary()))
        no_rooms = np.zeros(last - first, np.int64)
        entries = join(
            varint_rows(zigzag_column(self.keys.lengths[first:last]), rooms=no_rooms),
            self.keys.array(first, last),
            varint_rows(zigzag_column(self.values.lengths[first:last]), rooms=no_rooms),
            self.values.array(first, last),
        )
        _, offsets, data = entries.buffers()
        entry_ends = np.frombuffer(offsets, np.int32)[: last - first + 1]
        ends = entry_ends[self.ends[start : stop + 1] - first]
        return sizes + np.diff(ends), (count_array, binary_array(ends, data))


def decode_headers(
    source: Bytes, buffer: pa.Buffer, positions: Ints, stops: Ints, counts: Ints
) -> pa.Array:
    """Return the headers of each row as an array of HEADERS_TYPE.

    Row i has counts[i] headers from positions[i] to stops[i], exactly; `buffer` is the pa.Buffer of
    `source`. Raises DamagedHeaderError.
    """
    too_many = counts > (stops - positions) // _LEAST_HEADER_BYTES
    if too_many.any():
        row = int(np.argmax(too_many))
        raise DamagedHeaderError(row, f"{int(counts[row])} headers can't fit into it")
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    spans = _find_headers(source, positions, stops, counts, ends)
    keys = _as_text(gather(buffer, spans.key_starts, spans.key_lengths))
    values = gather(buffer, spans.value_starts, spans.value_lengths)
    has_none = counts == 0
    validity = pa.py_buffer(np.packbits(~has_none, bitorder="little")) if has_none.any() else None
    entries = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    return pa.Array.from_buffers(
        HEADERS_TYPE,
        len(counts),
        [validity, pa.py_buffer(ends.astype(np.int32))],
        children=[entries],
    )


class _HeaderSpans(NamedTuple):
    """The places of the parts of each header."""

    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints


def _find_headers(
    source: Bytes, positions: Ints, stops: Ints, counts: Ints, ends: Ints
) -> _HeaderSpans:
    """Find the headers in one step per header of the record with the most, each step over all
    records that have so many."""
    spans = _HeaderSpans(*(np.empty(int(ends[-1]), np.int64) for _ in range(4)))
    rows = np.flatnonzero(counts > 0)
    at = positions[rows]
    step = 0
    while len(rows) >= _LEAST_VECTOR_ROWS:
        slots = ends[rows] + step
        spans.key_starts[slots], spans.key_lengths[slots], at = _read_parts(
            source, rows, at, stops[rows], least_length=0
        )
        spans.value_starts[slots], spans.value_lengths[slots], at = _read_parts(
            source, rows, at, stops[rows], least_length=NULL_LENGTH
        )
        step += 1
        done = counts[rows] == step
        over = done & (at != stops[rows])
        if over.any():
            raise DamagedHeaderError(int(rows[np.argmax(over)]), _BYTES_LEFT)
        rows, at = rows[~done], at[~done]
    view = source.data
    for row, position in zip(rows.tolist(), at.tolist(), strict=True):
        rest = range(int(ends[row]) + step, int(ends[row + 1]))
        _walk(view, row, position, int(stops[row]), rest, spans)
    return spans


def _read_parts(
    source: Bytes, rows: Ints, positions: Ints, stops: Ints, *, least_length: int
) -> tuple[Ints, Ints, Ints]:
    """Return start and length of the key or value at each position, and the position after it."""
    try:
        lengths, starts = read_column(source, positions, stops)
    except DamagedVarintError as error:
        raise DamagedHeaderError(int(rows[error.index]), _NO_LENGTH) from None
    bad = (lengths < least_length) | (lengths > stops - starts)
    if bad.any():
        first = int(np.argmax(bad))
        raise _bad_length(int(rows[first]), int(lengths[first]))
    return starts, lengths, starts + np.maximum(lengths, 0)


def _walk(
    view: memoryview, row: int, position: int, stop: int, slots: range, spans: _HeaderSpans
) -> None:
    """Read the rest of one record's headers, one by one."""
    for slot in slots:
        for starts, lengths, least_length in (
            (spans.key_starts, spans.key_lengths, 0),
            (spans.value_starts, spans.value_lengths, NULL_LENGTH),
        ):
            read = read_varint(view, position, stop)
            if read is None:
                raise DamagedHeaderError(row, _NO_LENGTH)
            length, position = read
            if not least_length <= length <= stop - position:
                raise _bad_length(row, length)
            starts[slot] = position
            lengths[slot] = length
            position += max(length, 0)
    if position != stop:
        raise DamagedHeaderError(row, _BYTES_LEFT)


_NO_LENGTH = "the length of a header's key or value is cut off or too long"
_BYTES_LEFT = "bytes are left after its last header"


def _bad_length(row: int, length: int) -> DamagedHeaderError:
    return DamagedHeaderError(row, f"a header's key or value has the impossible length {length}")


def _as_text(keys: pa.Array) -> pa.Array:
    """Return keys as strings. Bytes that are not UTF-8 become replacement characters, as in Java's
    client."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        distinct = keys.dictionary_encode()
        texts = [key.decode("utf-8", "replace") for key in distinct.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(distinct.indices)


def _wrong_type(kind: pa.DataType) -> InvalidRecordError:
    return InvalidRecordError(f"the headers column has type {kind}: make it {HEADERS_TYPE}")
