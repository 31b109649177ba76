"""Reads and writes messages along the fields of their dataclasses (see `fields`).

What a peer sends is read with the bounds of `wire.Reader`: each length and count is compared with
the bytes left, and all arrays of a message share its number of items. A class has one codec for
each version, made on first use; neighbours of fixed size are read and written at once. Source:
KIP-482; KIP-893 for structs that may be null.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis.fields import WIRE, AnyKind, Kind, Value, Wire
from storage_engine.protocol.apis.registry import APIS
from storage_engine.protocol.apis.spec import ApiSpec, Buffer, Encode, Req, Resp
from storage_engine.protocol.apis.wire import (
    FLOAT64,
    INT16,
    INT32,
    OfTopic,
    Reader,
    Writer,
    coded,
    count,
    group_by_topic,
)

Record = TypeVar("Record")

_layouts: dict[type, dict[str, Field[Any]]] = {}
"""The wire fields of classes that don't declare them by their defaults."""


def lay_out(record_class: type, **wire_fields: Any) -> None:
    """Declare the wire form of a class: its fields in their order."""
    _layouts[record_class] = wire_fields


def read_struct(record_class: type[Record], version: int, reader: Reader) -> Record:
    return _codec(record_class, version, reader.flexible).read(reader)


def write_struct(writer: Writer, version: int, record: Record) -> None:
    _codec(type(record), version, writer.flexible).write(writer, record)


def api(
    key: int, request: type[Req], response: type[Resp], *, is_lenient: bool = False
) -> ApiSpec[Req, Resp]:
    """Return the spec of an API in the registry's table, by the classes of its messages.
    `is_lenient`: a client is known to send bytes too many with its requests."""
    first_flexible = APIS[key].first_flexible_version
    return coded(
        key,
        reader_of(request),
        encoder_of(request, first_flexible),
        reader_of(response),
        encoder_of(response, first_flexible),
        is_lenient=is_lenient,
    )


def reader_of(message_class: type[Req]) -> Callable[[Reader, int], Req]:
    return lambda reader, version: _codec(message_class, version, reader.flexible).read(reader)


def encoder_of(message_class: type[Req], first_flexible: int | None) -> Encode[Req]:
    def encode(version: int, message: Req) -> list[Buffer]:
        writer = Writer(flexible=first_flexible is not None and version >= first_flexible)
        _codec(message_class, version, writer.flexible).write(writer, message)
        return [writer.data]

    return encode


_codecs: dict[tuple[type, int, bool], "_StructCodec[Any]"] = {}


def _codec(struct_class: type[Record], version: int, flexible: bool) -> "_StructCodec[Record]":
    key = struct_class, version, flexible
    codec = _codecs.get(key)
    if codec is None:
        codec = _codecs[key] = _StructCodec(struct_class, version, flexible)
    return codec


_NO_TAGGED_FIELDS = b"\x00"
_NOT_ONE_BYTE = -1


class _StructCodec(Generic[Record]):
    """Reads and writes one class in one version."""

    def __init__(self, struct_class: type[Record], version: int, flexible: bool) -> None:
        self._make = struct_class
        layout = _layouts.get(struct_class)
        own = fields(struct_class) if is_dataclass(struct_class) else ()
        named = layout or {each.name: each for each in own}
        # What the version does not have of a class that may have no defaults.
        self._absent = {
            name: each.default
            for name, each in named.items()
            if layout and not each.metadata[WIRE].first <= version <= each.metadata[WIRE].last
        }
        self._reads: list[tuple[str, tuple[str, ...] | None, int, Callable[[Reader], Any]]] = []
        """A field's name, or the names of a run of fields of fixed size, whose values are a tuple;
        the byte that says that it is null, if one byte does; and what reads a value."""
        self._writes: list[tuple[attrgetter[Any], bytes, Callable[[Writer, Any], None]]] = []
        """The getter of a field or of a run, the bytes of null, and the writer of a value."""
        self._tagged: dict[int, tuple[str, Field[Any], AnyKind]] = {}
        self.least_bytes = 1 if flexible else 0
        run: list[tuple[str, AnyKind]] = []
        for name, each in named.items():
            wire: Wire = each.metadata[WIRE]
            if not wire.first <= version <= wire.last:
                continue
            kind = _kind_of(wire, version, flexible)
            if wire.tag is not None:
                self._tagged[wire.tag] = name, each, kind
                continue
            self.least_bytes += kind.least_bytes
            if run and not (kind.packed and run[-1][1].packed):
                self._add(run)
                run = []
            run.append((name, kind))
        if run:
            self._add(run)

    def _add(self, run: list[tuple[str, AnyKind]]) -> None:
        names = tuple(name for name, _ in run)
        kind = run[0][1]
        if len(run) > 1:
            kind = _packed("".join(kind.packed for _, kind in run))
        null = kind.null[0] if len(kind.null) == 1 else _NOT_ONE_BYTE
        self._reads.append((names[0], names if len(run) > 1 else None, null, kind.read))
        self._writes.append((attrgetter(*names), kind.null, kind.write))

    def read(self, reader: Reader, **known: str) -> Record:
        """`known`: what the wire has elsewhere."""
        values = {**self._absent, **known}
        data = reader.data
        for name, names, null, read in self._reads:
            # Here and not in a function: most fields that may be null are.
            if null >= 0 and data[reader.position] == null:
                reader.position += 1
                values[name] = None
            elif names is None:
                values[name] = read(reader)
            else:
                values.update(zip(names, read(reader), strict=True))
        if reader.flexible:
            # Here and not in a function: nearly all have none.
            if data[reader.position] == 0:
                reader.position += 1
            else:
                self._read_tagged(reader, values)
        return self._make(**values)

    def _read_tagged(self, reader: Reader, values: dict[str, Any]) -> None:
        for tag, data in reader.tags().items():
            if tag in self._tagged:
                name, _, kind = self._tagged[tag]
                tagged = reader.within(data)
                values[name] = kind.read(tagged)
                tagged.finish()
                reader.items_left = tagged.items_left

    def write(self, writer: Writer, message: Record) -> None:
        for get, null, write in self._writes:
            value = get(message)
            if value is None and null:
                writer.data += null
            else:
                write(writer, value)
        if self._tagged:
            writer.tags(self._tags(message))
        elif writer.flexible:
            writer.data += _NO_TAGGED_FIELDS

    def _tags(self, message: Record) -> list[tuple[int, bytes]]:
        tags = []
        for tag, (name, each, kind) in sorted(self._tagged.items()):
            value = getattr(message, name)
            default = each.default
            if default is MISSING and each.default_factory is not MISSING:
                default = each.default_factory()
            if value != default:
                tagged = Writer(flexible=True)
                kind.write(tagged, value)
                tags.append((tag, bytes(tagged.data)))
        return tags


def _packed(formats: str) -> Kind[tuple[float, ...]]:
    """A run of values of fixed size."""
    packed = struct.Struct(">" + formats)

    def read(reader: Reader) -> tuple[float, ...]:
        position = reader.position
        reader.position = position + packed.size
        return packed.unpack_from(reader.data, position)

    def write(writer: Writer, values: tuple[float, ...]) -> None:
        writer.data += packed.pack(*values)

    return Kind(read, write, packed.size)


def _kind_of(wire: Wire, version: int, flexible: bool) -> AnyKind:
    nullable = version >= wire.null_from
    if isinstance(wire.kind, Kind):
        return wire.kind
    if isinstance(wire.kind, str):
        kind = _PRIMITIVES.get(wire.kind) or _sized(wire.kind, nullable, flexible)
    else:
        if wire.is_by_topic:
            return _rows_by_topic(_codec(wire.kind, version, flexible), flexible)
        kind = struct_kind(wire.kind, version, flexible)
        if nullable and not wire.is_array:
            return _nullable_struct(kind)
    return _array(kind, nullable, flexible) if wire.is_array else kind


def struct_kind(struct_class: type[Record], version: int, flexible: bool) -> Kind[Record]:
    """Return how a struct is read and written."""
    codec = _codec(struct_class, version, flexible)
    return Kind(codec.read, codec.write, codec.least_bytes)


def _sized(kind: str, nullable: bool, flexible: bool) -> AnyKind:
    null = b"" if not nullable else b"\x00" if flexible else b"\xff\xff"
    if kind == "string":
        read = Reader.nullable_string if nullable else Reader.string
        return Kind(read, _write_string, 1 if flexible else 2, null=null)
    if kind == "name":
        if nullable:
            write = Writer.nullable_string
            return Kind(Reader.nullable_name, write, 1 if flexible else 2, null=null)
        return Kind(Reader.name, _write_name, 1 if flexible else 2)
    assert kind == "bytes"
    return Kind(_read_bytes, _write_bytes, 1 if flexible else 4)


def _array(kind: Kind[Value], nullable: bool, flexible: bool) -> AnyKind:
    if kind.packed == "i" and not nullable:
        return Kind(Reader.int32s, Writer.int32s, 1 if flexible else 4)
    read_item, write_item, item_bytes = kind.read, kind.write, kind.least_bytes
    null = b"" if not nullable else b"\x00" if flexible else b"\xff\xff\xff\xff"

    def read(reader: Reader) -> list[Value] | None:
        count = reader.count(item_bytes, -1 if nullable else 0)
        return None if count < 0 else [read_item(reader) for _ in range(count)]

    def write(writer: Writer, items: Sequence[Value] | None) -> None:
        if items is None:
            writer.count(-1)
            return
        writer.count(len(items))
        for item in items:
            write_item(writer, item)

    return Kind(read, write, 1 if flexible else 4, null=null)


def _rows_by_topic(row: _StructCodec[OfTopic], flexible: bool) -> Kind[Sequence[OfTopic]]:
    def read(reader: Reader) -> list[OfTopic]:
        rows = []
        for _ in range(reader.count(3 if flexible else 6)):
            topic = reader.name()
            count = reader.count(row.least_bytes)
            rows += [row.read(reader, topic=topic) for _ in range(count)]
            reader.tags()
        return rows

    def write(writer: Writer, rows: Sequence[OfTopic]) -> None:
        groups = group_by_topic(rows)
        writer.count(len(groups))
        for topic, of_topic in groups:
            writer.string(topic)
            writer.count(len(of_topic))
            for each in of_topic:
                row.write(writer, each)
            writer.tags()

    return Kind(read, write, 1 if flexible else 4)


def _nullable_struct(kind: Kind[Value]) -> Kind[Value | None]:
    """A struct behind a marker byte: -1 for null, 1 for a value (KIP-893)."""

    def read(reader: Reader) -> Value | None:
        marker = reader.int8()
        if marker not in (-1, 1):
            raise InvalidRequestError(f"a nullable struct starts with {marker}, not with -1 or 1")
        return None if marker == -1 else kind.read(reader)

    def write(writer: Writer, value: Value | None) -> None:
        writer.int8(-1 if value is None else 1)
        if value is not None:
            kind.write(writer, value)

    return Kind(read, write, 1, null=b"\xff")


def _write_name(writer: Writer, value: str | None) -> None:
    writer.string(value or "")


def _write_string(writer: Writer, value: str | None) -> None:
    _write_bytes_of(writer, None if value is None else value.encode(), INT16)


def _write_bytes(writer: Writer, value: bytes | None) -> None:
    _write_bytes_of(writer, value, INT32)


def _write_bytes_of(writer: Writer, value: bytes | None, length: struct.Struct) -> None:
    if value is None:
        writer.data += b"\x00" if writer.flexible else length.pack(-1)
    else:
        data, size = writer.data, len(value)
        data += count(size, flexible=True) if writer.flexible else length.pack(size)
        data += value


def _read_bytes(reader: Reader) -> bytes:
    """Return a copy, not a slice: these values are small, and outlive the frame."""
    data = reader.records()
    if data is None:
        raise InvalidRequestError("bytes are null where none may be")
    return bytes(data)


def _write_float64(writer: Writer, value: float) -> None:
    writer.data += FLOAT64.pack(value)


_PRIMITIVES: dict[str, AnyKind] = {
    "bool": Kind(Reader.boolean, Writer.boolean, 1, "?"),
    "int8": Kind(Reader.int8, Writer.int8, 1, "b"),
    "int16": Kind(Reader.int16, Writer.int16, 2, "h"),
    "int32": Kind(Reader.int32, Writer.int32, 4, "i"),
    "int64": Kind(Reader.int64, Writer.int64, 8, "q"),
    "float64": Kind(Reader.float64, _write_float64, 8, "d"),
    "uuid": Kind(Reader.uuid, Writer.uuid, 16),
}
