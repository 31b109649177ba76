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
from typing import Any

import pyarrow as pa

from storage_engine.core.errors import CorruptRecordError

_CONTINUATION = 0xFFFF_FFFF
_HEAD = struct.Struct("<II")
_TABLE = struct.Struct("<i")
_REFERENCE = struct.Struct("<I")
_SLOT = struct.Struct("<H")
_INT64 = struct.Struct("<q")

_RECORD_BATCH = 3
"""The number of a RecordBatch among the kinds of messages."""
_MESSAGE_KIND, _MESSAGE_CONTENT, _MESSAGE_BODY_BYTES, _MESSAGE_METADATA = 1, 2, 3, 4
_BATCH_ROWS, _BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION, _BATCH_VARIADIC = 0, 1, 2, 3, 4
_MOST_METADATA_BYTES = 1 << 20
"""Of a type with 2,000 nested parts: some 100 KB."""


class MessageKind:
    """What is to be known of a type to read its messages. To find that out takes as long as to read
    one: a type's hash is that of its text."""

    __slots__ = ("buffers", "kind", "nodes", "schema")

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        """A pa.DataType."""
        self.schema = _schema_of(kind)
        self.nodes, self.buffers = _expected_parts(kind)


@lru_cache(maxsize=1024)
def message_kind(kind: Any) -> MessageKind:
    """Return the type's MessageKind."""
    return MessageKind(kind)


@lru_cache(maxsize=1024)
def _schema_of(kind: Any) -> Any:
    return pa.schema([pa.field("column", kind)])


def write_message(array: Any) -> Any:
    """Return a pa.Buffer."""
    if array.type.num_fields:
        # A copy of these rows alone: of texts in empty lists Arrow writes all offsets of the table
        # that the rows were cut from.
        array = pa.concat_arrays([array])
    return pa.RecordBatch.from_arrays([array], schema=_schema_of(array.type)).serialize()


def read_message(data: Any, kind: Any) -> Any:
    """Return the array of this type (or MessageKind) in a pa.Buffer, not copied and not validated;
    CorruptRecordError when the message is another one."""
    known = kind if type(kind) is MessageKind else message_kind(kind)
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise _damaged("it is cut off")
    continuation, metadata_bytes = _HEAD.unpack_from(view)
    body_at = _HEAD.size + metadata_bytes
    if continuation != _CONTINUATION or not metadata_bytes <= _MOST_METADATA_BYTES:
        raise _damaged(f"its metadata have {metadata_bytes} bytes")
    body_bytes, nodes, buffers = _parts_of(bytes(view[_HEAD.size : body_at]))
    if body_bytes != len(view) - body_at:
        raise _damaged(f"its body has not the {len(view) - body_at} bytes that are there")
    if nodes != known.nodes or buffers != known.buffers:
        raise _damaged(f"its {nodes} arrays and {buffers} buffers are not those of {known.kind}")
    try:
        return pa.ipc.read_record_batch(data, known.schema).column(0)
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


@lru_cache(maxsize=1024)
def _expected_parts(kind: Any) -> tuple[int, int]:
    """Return how many arrays and buffers an array of this type has, nested ones included."""
    nodes, buffers = 1, kind.num_buffers
    for n in range(kind.num_fields):
        inner_nodes, inner_buffers = _expected_parts(kind.field(n).type)
        nodes, buffers = nodes + inner_nodes, buffers + inner_buffers
    return nodes, buffers


def number_places(message: bytes) -> tuple[bytes, tuple[int, int, int, int]]:
    """Return what lies before the body of a message with numbers without nulls, and the places of
    four numbers in it, of 8 bytes each: the body's bytes, the rows, the values, and their bytes."""
    (metadata_bytes,) = _REFERENCE.unpack_from(message, _HEAD.size - _REFERENCE.size)
    metadata = message[_HEAD.size : _HEAD.size + metadata_bytes]
    content = _table_at(metadata, 0)
    batch = _table_at(metadata, _slot(metadata, content, _MESSAGE_CONTENT))
    nodes = _table_at(metadata, _slot(metadata, batch, _BATCH_NODES)) + _REFERENCE.size
    buffers = _table_at(metadata, _slot(metadata, batch, _BATCH_BUFFERS)) + _REFERENCE.size
    places = (
        _slot(metadata, content, _MESSAGE_BODY_BYTES),
        _slot(metadata, batch, _BATCH_ROWS),
        nodes,
        # Behind the buffer of the nulls, and where this one begins.
        buffers + 3 * _INT64.size,
    )
    body, rows, values, size = (_HEAD.size + place for place in places)
    return message[: _HEAD.size + metadata_bytes], (body, rows, values, size)


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
