"""Arrays of Arrow as IPC messages, which hold one record batch of one column and nothing else.

Arrow's own compression of buffers is refused before Arrow reads a message, since nothing would
bound what a buffer claims to become. So are messages with dictionaries or metadata.

    message         bytes  meaning (little endian)
    continuation    4      FF FF FF FF
    metadata_bytes  4
    metadata               a flatbuffer: Message, in it a RecordBatch
    body                   the buffers

Source: https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format, and the
tables of Message.fbs.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from storage_engine.core.errors import CorruptRecordError

_CONTINUATION = 0xFFFF_FFFF
_HEAD = struct.Struct("<II")
HEAD_BYTES = _HEAD.size
_TABLE = struct.Struct("<i")
_REFERENCE = struct.Struct("<I")
_SLOT = struct.Struct("<H")
_INT64 = struct.Struct("<q")

_RECORD_BATCH = 3
"""The number of a RecordBatch among the kinds of messages."""
_MESSAGE_KIND, _MESSAGE_CONTENT, _MESSAGE_BODY_BYTES, _MESSAGE_METADATA = 1, 2, 3, 4
_BATCH_ROWS, _BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION, _BATCH_VARIADIC = 0, 1, 2, 3, 4
_MOST_METADATA_BYTES = 1 << 20
"""The most bytes of metadata that are read; a type with 2,000 nested parts has some 100 KB."""


class ColumnKind:
    """The facts of a type for reading many of its messages. Finding them takes as long as reading
    one message: a type's hash is that of its text."""

    __slots__ = ("buffers", "is_decimal", "kind", "nodes", "schema", "width")

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.schema = pa.schema([pa.field("column", kind)])
        self.nodes, self.buffers = _expected_parts(kind)
        self.is_decimal: bool = pa.types.is_decimal(kind)
        self.width = number_width(kind)

    def body_bytes(self, metadata: bytes) -> int:
        """Return the size of the body; CorruptRecordError when the metadata are not those of a
        plain record batch with a column of this type."""
        body, nodes, buffers = _parts_of(metadata)
        if nodes != self.nodes or buffers != self.buffers:
            raise _damaged(f"its {nodes} arrays and {buffers} buffers are not those of {self.kind}")
        return body


@lru_cache(maxsize=1024)
def column_kind(kind: pa.DataType) -> ColumnKind:
    """Return the type's ColumnKind."""
    return ColumnKind(kind)


def number_width(kind: pa.DataType) -> int:
    """Return the width of the type's numbers in bytes; 0 when it has others."""
    is_number = pa.types.is_primitive(kind) and not pa.types.is_boolean(kind)
    return kind.bit_width // 8 if is_number or pa.types.is_decimal(kind) else 0


def write_message(array: pa.Array) -> pa.Buffer:
    """Return the array as an IPC message."""
    if array.type.num_fields:
        # A copy of these rows alone: of texts in empty lists Arrow writes all offsets of the table
        # that the rows were cut from.
        array = pa.concat_arrays([array])
    return pa.RecordBatch.from_arrays([array], schema=column_kind(array.type).schema).serialize()


def read_message(data: pa.Buffer, kind: ColumnKind) -> pa.Array:
    """Return the array of this kind in a pa.Buffer, not copied and not validated;
    CorruptRecordError when the message is another one."""
    view = memoryview(data)
    if len(view) < HEAD_BYTES:
        raise _damaged("it is cut off")
    continuation, metadata_bytes = _HEAD.unpack_from(view)
    body_at = HEAD_BYTES + metadata_bytes
    if continuation != _CONTINUATION or not metadata_bytes <= _MOST_METADATA_BYTES:
        raise _damaged(f"its metadata have {metadata_bytes} bytes")
    body_bytes = kind.body_bytes(bytes(view[HEAD_BYTES:body_at]))
    if body_bytes != len(view) - body_at:
        raise _damaged(f"its body has not the {len(view) - body_at} bytes that are there")
    try:
        return pa.ipc.read_record_batch(data, kind.schema).column(0)
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        text = " ".join(str(error).split())
        raise _damaged(f"Arrow says: {text:.200}") from None


@lru_cache(maxsize=512)
def _parts_of(metadata: bytes) -> tuple[int, int, int]:
    """Return the size of the message's body, and how many arrays and buffers it has, from metadata
    that are those of a plain record batch. Batches of one size have the same metadata over and
    over."""
    try:
        message = _table_at(metadata, 0)
        kind = _slot(metadata, message, _MESSAGE_KIND)
        content = _slot(metadata, message, _MESSAGE_CONTENT)
        body = _slot(metadata, message, _MESSAGE_BODY_BYTES)
        if not kind or metadata[kind] != _RECORD_BATCH or not content:
            raise _damaged("it is no record batch")
        if _slot(metadata, message, _MESSAGE_METADATA):
            raise _damaged("it has metadata of its own")
        batch = _table_at(metadata, content)
        if _slot(metadata, batch, _BATCH_COMPRESSION):
            raise _damaged("its buffers are compressed by Arrow")
        if _slot(metadata, batch, _BATCH_VARIADIC):
            raise _damaged("it has buffers of views")
        body_bytes = int(_INT64.unpack_from(metadata, body)[0]) if body else 0
        nodes = _vector_length(metadata, _slot(metadata, batch, _BATCH_NODES))
        return body_bytes, nodes, _vector_length(metadata, _slot(metadata, batch, _BATCH_BUFFERS))
    except (struct.error, IndexError):
        raise _damaged("its metadata are cut off") from None


def _expected_parts(kind: pa.DataType) -> tuple[int, int]:
    """Return how many arrays and buffers an array of this type has, nested ones included."""
    nodes, buffers = 1, kind.num_buffers
    for n in range(kind.num_fields):
        inner_nodes, inner_buffers = _expected_parts(kind.field(n).type)
        nodes, buffers = nodes + inner_nodes, buffers + inner_buffers
    return nodes, buffers


class MessagePlaces(NamedTuple):
    """The places in a message's metadata of the numbers that differ between messages of one type,
    of 8 bytes each."""

    body: int
    rows: int
    nodes: int
    """Two numbers for each array: values, nulls."""
    buffers: int
    """Two numbers for each buffer: place, bytes."""


def split_sample(message: bytes) -> tuple[bytes, MessagePlaces]:
    """Return the metadata of a message that this process wrote, of one row or more, and the places
    in it."""
    (metadata_bytes,) = _REFERENCE.unpack_from(message, HEAD_BYTES - _REFERENCE.size)
    metadata = message[HEAD_BYTES : HEAD_BYTES + metadata_bytes]
    content = _table_at(metadata, 0)
    batch = _table_at(metadata, _slot(metadata, content, _MESSAGE_CONTENT))
    vectors = (
        _table_at(metadata, _slot(metadata, batch, number)) + _REFERENCE.size
        for number in (_BATCH_NODES, _BATCH_BUFFERS)
    )
    body = _slot(metadata, content, _MESSAGE_BODY_BYTES)
    return metadata, MessagePlaces(body, _slot(metadata, batch, _BATCH_ROWS), *vectors)


def _vector_length(metadata: bytes, field: int) -> int:
    """Return the length of the vector to which a field leads."""
    if not field:
        return 0
    return int(_REFERENCE.unpack_from(metadata, _table_at(metadata, field))[0])


def _table_at(metadata: bytes, reference: int) -> int:
    """Return the position of the table to which the reference at a position leads."""
    return reference + int(_REFERENCE.unpack_from(metadata, reference)[0])


def _slot(metadata: bytes, table: int, number: int) -> int:
    """Return the position of a table's field; 0 when it is not there."""
    layout = table - int(_TABLE.unpack_from(metadata, table)[0])
    if layout < 0:
        raise IndexError
    place = 2 * _SLOT.size + number * _SLOT.size
    if place >= _SLOT.unpack_from(metadata, layout)[0]:
        return 0
    offset = int(_SLOT.unpack_from(metadata, layout + place)[0])
    return table + offset if offset else 0


def _damaged(reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"an Arrow message is damaged: {reason}")
