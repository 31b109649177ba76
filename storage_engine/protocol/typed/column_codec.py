"""A column's bytes: how its values become a block that is stored, and come back.

    encoding      block, before compression
    PLAIN         one Arrow IPC message with the values
    DICTIONARY    4 bytes the size of the first message (big endian), a message with the different
                  values, a message with the place of each row's value among them (int32)

What is read is not trusted: sizes are compared before anything is allocated, and each array is
validated in full.
"""

import math
import struct
from collections.abc import Iterable
from uuid import UUID

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.comparisons import Literal
from storage_engine.protocol.records.arrow_binary import numbers_in
from storage_engine.protocol.records.arrow_kernels import kernel, take
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    BytesLike,
    Codec,
    seal,
)
from storage_engine.protocol.typed.arrays.ipc_message import (
    ColumnKind,
    column_kind,
    read_message,
    write_message,
)
from storage_engine.protocol.typed.directory import (
    CODEC_LZ4,
    CODEC_NONE,
    CODEC_ZSTD,
    DICTIONARY,
    HAS_BOUNDS,
    HAS_NAN,
    MAXIMUM_SHORTENED,
    MINIMUM_SHORTENED,
    PLAIN,
    ColumnEntry,
    encode_bound,
    encode_directory,
)

CODECS = {Codec.NONE: CODEC_NONE, Codec.LZ4: CODEC_LZ4, Codec.ZSTD: CODEC_ZSTD}
_NAMES = {CODEC_LZ4: "lz4", CODEC_ZSTD: "zstd"}

_SIZE = struct.Struct(">i")
_PLACES = column_kind(pa.int32())
"""The kind of a dictionary's indices: the place of each row's value."""

_INTEGERS: dict[int, type[np.generic]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_FLOATS: dict[int, type[np.generic]] = {32: np.float32, 64: np.float64}

Bounds = tuple[int, bytes, bytes]
_NO_BOUNDS: Bounds = (0, b"", b"")


def store_column(
    column_id: int, array: pa.Array, column_type: types.ColumnType | None, codec: int
) -> tuple[ColumnEntry, tuple[BytesLike, ...]]:
    """Return the directory's entry of a column, whose place is set when the directory is made, and
    its bytes in parts, which may lie in the array. A pa.DictionaryArray is stored with the encoding
    DICTIONARY. `column_type`: None for a column without bounds."""
    bounds = _NO_BOUNDS if column_type is None else bounds_of(array, column_type)
    parts: tuple[BytesLike, ...]
    if pa.types.is_dictionary(array.type):
        values = write_message(array.dictionary)
        parts = (_SIZE.pack(len(values)), values, write_message(array.indices))
        encoding = DICTIONARY
    else:
        parts, encoding = (write_message(array),), PLAIN
    size = raw_bytes = sum(map(len, parts))
    used = CODEC_NONE
    if codec != CODEC_NONE:
        raw = parts[0] if len(parts) == 1 else b"".join(parts)
        compressed = pa.Codec(_NAMES[codec]).compress(raw)
        if compressed.size < raw_bytes:
            parts, used, size = (compressed,), codec, compressed.size
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    nulls = array.null_count
    return ColumnEntry(column_id, 0, size, raw_bytes, crc, nulls, used, encoding, *bounds), parts


def joined_batch(
    header: BatchHeader,
    columns: Iterable[tuple[ColumnEntry, Iterable[BytesLike]]],
    *,
    topic_id: UUID,
    schema_version: int,
) -> bytearray:
    """Return the sealed batch of these columns, which have `header.records_count` values."""
    entries: list[ColumnEntry] = []
    parts: list[BytesLike] = [bytes(HEADER_BYTES), b""]
    for entry, stored in columns:
        entries.append(entry)
        parts += stored
    parts[1] = encode_directory(
        topic_id=topic_id,
        schema_version=schema_version,
        rows=header.records_count,
        entries=entries,
    )
    batch = bytearray().join(parts)
    seal(batch, 0, header._replace(length=len(batch) - LENGTH_END))
    return batch


def load_column(
    block: BytesLike,
    entry: ColumnEntry,
    kind: ColumnKind,
    rows: int,
    *,
    max_bytes: int,
    in_place: bool = False,
) -> pa.Array:
    """Return the array of that kind that is stored in `block`, in memory of its own, or with
    `in_place` perhaps in that of the block; CorruptRecordError when it is anything else than `rows`
    valid values, or a dictionary stands for more than `max_bytes`. The CRC and the entry's sizes
    are checked by the caller."""
    raw = _decompressed(block, entry, in_place)
    try:
        if entry.encoding == PLAIN:
            array = read_message(raw, kind)
            array.validate(full=True)
        else:
            array = _load_dictionary(raw, kind, max_bytes)
    except pa.ArrowException as error:
        raise _refused(entry, error) from None
    except CorruptRecordError as error:
        raise _damaged(entry, str(error)) from None
    if len(array) != rows or array.null_count != entry.null_count:
        raise _damaged(
            entry,
            f"it has {len(array)} values with {array.null_count} nulls, not {rows} with"
            f" {entry.null_count}",
        )
    return array


def _decompressed(block: BytesLike, entry: ColumnEntry, in_place: bool) -> pa.Buffer:
    """Return a pa.Buffer of the block's bytes, aligned unless `in_place`."""
    if len(block) != entry.stored_bytes:
        raise _damaged(entry, f"{len(block)} of its {entry.stored_bytes} bytes are there")
    if entry.codec == CODEC_NONE:
        return pa.py_buffer(block if in_place else bytes(block))
    try:
        raw = pa.Codec(_NAMES[entry.codec]).decompress(block, entry.raw_bytes)
    except (OSError, pa.ArrowException, ValueError) as error:
        text = " ".join(str(error).split())
        raise _damaged(entry, text) from None
    if raw.size != entry.raw_bytes:
        raise _damaged(entry, f"it decompresses to {raw.size} bytes, not {entry.raw_bytes}")
    return raw


def _load_dictionary(raw: pa.Buffer, kind: ColumnKind, max_bytes: int) -> pa.Array:
    if raw.size < _SIZE.size:
        raise CorruptRecordError("its dictionary is cut off")
    (size,) = _SIZE.unpack_from(memoryview(raw))
    if not 0 <= size <= raw.size - _SIZE.size:
        raise CorruptRecordError(f"its dictionary has {size} of {raw.size} bytes")
    if not (pa.types.is_string(kind.kind) or pa.types.is_binary(kind.kind)):
        raise CorruptRecordError(f"a dictionary of {kind.kind} is not possible")
    values = read_message(raw.slice(_SIZE.size, size), kind)
    indices = read_message(raw.slice(_SIZE.size + size), _PLACES)
    values.validate(full=True)
    indices.validate(full=True)
    if values.null_count:
        raise CorruptRecordError("its dictionary has a null")
    _check_expansion(values, indices, max_bytes)
    return take(values, indices)


def _check_expansion(values: pa.Array, indices: pa.Array, max_bytes: int) -> None:
    """CorruptRecordError where few long values, which stand for many rows, exceed `max_bytes`."""
    if not len(values) or values.nbytes * len(indices) <= max_bytes:
        # None is longer than all together.
        return
    lengths = kernel("binary_length", values)
    longest = kernel("min_max", lengths)["max"].as_py()
    if longest * len(indices) <= max_bytes:
        return
    total = kernel("sum", take(lengths, indices)).as_py() or 0
    if total > max_bytes:
        raise CorruptRecordError(
            f"its dictionary stands for {total} bytes, at most {max_bytes} are read"
        )


def _refused(entry: ColumnEntry, error: Exception) -> CorruptRecordError:
    text = " ".join(str(error).split())
    return _damaged(entry, f"Arrow says: {text:.200}")


def _damaged(entry: ColumnEntry, reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"the column {entry.column_id} is damaged: {reason}")


def bounds_of(array: pa.Array, column_type: types.ColumnType) -> Bounds:
    """Return flags, minimum and maximum of an array of this type; for a pa.DictionaryArray those of
    its values, each of which some row has."""
    if isinstance(column_type, types.ArrayColumn | types.MapColumn | types.StructColumn):
        return _NO_BOUNDS
    if pa.types.is_dictionary(array.type):
        array = array.dictionary
    flags = 0
    bounds: tuple[Literal | None, Literal | None] | None = _of_numbers(array, column_type)
    if bounds is None:
        if isinstance(column_type, types.DateColumn):
            array = array.view(pa.int32())
        elif isinstance(column_type, types.TimestampColumn | types.IntervalColumn):
            array = array.view(pa.int64())
        elif (
            isinstance(column_type, types.FloatColumn)
            and kernel("any", kernel("is_nan", array)).as_py()
        ):
            flags = HAS_NAN
        found = kernel("min_max", array)
        bounds = found["min"].as_py(), found["max"].as_py()
    least, largest = bounds
    if least is None or largest is None or (isinstance(least, float) and math.isnan(least)):
        return (flags, b"", b"")
    minimum, minimum_shortened = encode_bound(least, column_type)
    maximum, maximum_shortened = encode_bound(largest, column_type)
    flags |= HAS_BOUNDS
    if minimum_shortened:
        flags |= MINIMUM_SHORTENED
    if maximum_shortened:
        flags |= MAXIMUM_SHORTENED
    return (flags, minimum, maximum)


def _of_numbers(
    array: pa.Array, column_type: types.ColumnType
) -> tuple[int, int] | tuple[float, float] | None:
    """Return the least and the largest number by numpy, in a third of the time of Arrow's kernel,
    whose answer is an object of three; None where only that can tell."""
    if array.null_count or not len(array):
        return None
    data, start, count = array.buffers()[1], array.offset, len(array)
    match column_type:
        case (
            types.IntegerColumn()
            | types.DateColumn()
            | types.TimestampColumn()
            | types.IntervalColumn()
        ):
            numbers = numbers_in(data, _INTEGERS[array.type.bit_width], start, count)
            return int(numbers.min()), int(numbers.max())
        case types.FloatColumn():
            floats = numbers_in(data, _FLOATS[array.type.bit_width], start, count)
            least, largest = float(floats.min()), float(floats.max())
            # NaN is neither. Zero may be the one with a sign or the other.
            return (least, largest) if least and largest and least <= largest else None
        case _:
            return None
