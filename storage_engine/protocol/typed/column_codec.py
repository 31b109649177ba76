"""A column's bytes: how its values become a block that is stored, and come back.

    encoding      block, before compression
    PLAIN         one Arrow IPC message with the values
    DICTIONARY    4 bytes the size of the first message (big endian), a message with the different
                  values, a message with the place of each row's value among them (int32)

What is read is not trusted: sizes are compared before anything is allocated, and each array is
validated in full.
"""

import struct
from typing import Any, NamedTuple

import pyarrow as pa
from crc32c import crc32c

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.arrow_kernels import kernel, take
from storage_engine.protocol.records.record_batch import BytesLike, Codec
from storage_engine.protocol.typed.arrays.ipc_message import (
    MessageKind,
    message_kind,
    read_message,
    write_message,
)
from storage_engine.protocol.typed.arrays.plain_numbers import number_width
from storage_engine.protocol.typed.directory import (
    CODEC_LZ4,
    CODEC_NONE,
    CODEC_ZSTD,
    DICTIONARY,
    PLAIN,
    ColumnEntry,
)

CODECS = {Codec.NONE: CODEC_NONE, Codec.LZ4: CODEC_LZ4, Codec.ZSTD: CODEC_ZSTD}
_NAMES = {CODEC_LZ4: "lz4", CODEC_ZSTD: "zstd"}

_SIZE = struct.Struct(">i")
_PLACES = message_kind(pa.int32())
"""Of a dictionary's values, one a row."""


class StoredColumn(NamedTuple):
    """A column as it is stored."""

    parts: tuple[Any, ...]
    """Its bytes; they may lie in the array that was stored."""
    raw_bytes: int
    codec: int
    encoding: int

    def entry(
        self, column_id: int, null_count: int, flags: int, minimum: bytes, maximum: bytes
    ) -> ColumnEntry:
        """Return the directory's entry; its place is set when the directory is made."""
        crc = size = 0
        for part in self.parts:
            crc = crc32c(part, crc)
            size += len(part)
        return ColumnEntry(
            column_id,
            0,
            size,
            self.raw_bytes,
            crc,
            null_count,
            self.codec,
            self.encoding,
            flags,
            minimum,
            maximum,
        )


def store_column(array: pa.Array, codec: int) -> StoredColumn:
    """Return the array as it is stored; a pa.DictionaryArray with the encoding DICTIONARY."""
    parts: tuple[Any, ...]
    if pa.types.is_dictionary(array.type):
        values = write_message(array.dictionary)
        parts = (_SIZE.pack(len(values)), values, write_message(array.indices))
        encoding = DICTIONARY
    else:
        parts, encoding = (write_message(array),), PLAIN
    raw_bytes = sum(map(len, parts))
    if codec != CODEC_NONE:
        raw = parts[0] if len(parts) == 1 else b"".join(parts)
        compressed = pa.Codec(_NAMES[codec]).compress(raw)
        if compressed.size < raw_bytes:
            return StoredColumn((compressed,), raw_bytes, codec, encoding)
    return StoredColumn(parts, raw_bytes, CODEC_NONE, encoding)


class ColumnKind:
    """What is to be known of a column's type to load many of its blocks."""

    __slots__ = ("is_decimal", "message", "width")

    def __init__(self, kind: pa.DataType) -> None:
        """`kind`: a pa.DataType."""
        self.message = message_kind(kind)
        self.width = number_width(kind)
        self.is_decimal: bool = pa.types.is_decimal(kind)

    @property
    def kind(self) -> pa.DataType:
        """Return the pa.DataType."""
        return self.message.kind


def load_column(
    block: BytesLike,
    entry: ColumnEntry,
    kind: Any,
    rows: int,
    *,
    max_bytes: int,
    in_place: bool = False,
) -> pa.Array:
    """Return the array of type `kind` (or its MessageKind) that is stored in `block`, in memory of
    its own, or with `in_place` perhaps in that of the block; CorruptRecordError when it is anything
    else than `rows` valid values, or a dictionary stands for more than `max_bytes`. The CRC and the
    entry's sizes are checked by the caller."""
    raw = _decompressed(block, entry, in_place)
    try:
        if entry.encoding == PLAIN:
            array = read_message(raw, kind)
            array.validate(full=True)
        else:
            known = kind if type(kind) is MessageKind else message_kind(kind)
            array = _load_dictionary(raw, known, max_bytes)
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


def _load_dictionary(raw: pa.Buffer, kind: MessageKind, max_bytes: int) -> pa.Array:
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
    """A few values that are long and stand for many rows must not fill the memory."""
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
