"""The one text of a Protobuf schema, by which two are the same: written from the descriptor.

Comments and the writing of names do not count. A normalized text has imports, fields, constants and
reserved numbers in order, too. What is not written here, such as options of one's own, extensions
and editions, is told by None.
"""

from collections.abc import Iterable, Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from storage_engine.core.schemas.protobuf.types import scalar_name

_MAX_RESERVED = 536_870_911
"""The highest number of a field."""


class _NotWritableError(Exception):
    """The file has what is not written here."""


def proto_text(file: FileDescriptorProto, *, normalize: bool = False) -> str | None:
    """Return the text; None where the file has what is not written here."""
    try:
        return "\n".join(_FileWriter(file, normalize=normalize).lines()) + "\n"
    except _NotWritableError:
        return None


class _FileWriter:
    def __init__(self, file: FileDescriptorProto, *, normalize: bool) -> None:
        self._file = file
        self._normalize = normalize

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax not in ("", "proto2", "proto3") or file.extension:
            raise _NotWritableError
        yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        imports = [*self._imports()]
        if imports:
            yield ""
            yield from sorted(imports) if self._normalize else imports
        options = [*_options(file.options)]
        if options:
            yield ""
            yield from (f"option {name} = {value};" for name, value in options)
        for message in file.message_type:
            yield ""
            yield from self._message(message)
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum)
        for service in file.service:
            yield ""
            yield from self._service(service)

    def _imports(self) -> Iterator[str]:
        for index, name in enumerate(self._file.dependency):
            word = (
                "public "
                if index in self._file.public_dependency
                else "weak "
                if index in self._file.weak_dependency
                else ""
            )
            yield f"import {word}{_quoted(name)};"

    def _message(self, message: DescriptorProto) -> Iterator[str]:
        if message.extension or message.extension_range:
            raise _NotWritableError
        yield f"message {message.name} {{"
        yield from _indented(self._message_lines(message))
        yield "}"

    def _message_lines(self, message: DescriptorProto) -> Iterator[str]:
        yield from (f"option {name} = {value};" for name, value in _options(message.options))
        yield from _reserved(
            [(each.start, each.end - 1) for each in message.reserved_range],
            message.reserved_name,
            normalize=self._normalize,
        )
        maps = {each.name: each for each in message.nested_type if each.options.map_entry}
        fields = [*message.field]
        if self._normalize:
            fields.sort(key=lambda field: field.number)
        written: set[int] = set()
        for field in fields:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield self._field(field, maps)
            elif field.oneof_index not in written:
                written.add(field.oneof_index)
                members = [
                    each
                    for each in fields
                    if each.HasField("oneof_index") and each.oneof_index == field.oneof_index
                ]
                oneof = message.oneof_decl[field.oneof_index]
                yield f"oneof {oneof.name} {{"
                for name, value in _options(oneof.options):
                    yield f"  option {name} = {value};"
                yield from _indented(self._field(each, maps) for each in members)
                yield "}"
        for nested in message.nested_type:
            if not nested.options.map_entry:
                yield from self._message(nested)
        for enum in message.enum_type:
            yield from self._enum(enum)

    def _field(self, field: FieldDescriptorProto, maps: dict[str, DescriptorProto]) -> str:
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            raise _NotWritableError
        entry = maps.get(field.type_name.rpartition(".")[2]) if field.type_name else None
        if entry is not None:
            key, value = (_type(each) for each in entry.field)
            kind = f"map<{key}, {value}>"
        else:
            kind = f"{self._label(field)}{_type(field)}"
        options = [f"{name} = {value}" for name, value in self._field_options(field)]
        more = f" [{', '.join(options)}]" if options else ""
        return f"{kind} {field.name} = {field.number}{more};"

    def _label(self, field: FieldDescriptorProto) -> str:
        match field.label:
            case FieldDescriptorProto.LABEL_REPEATED:
                return "repeated "
            case FieldDescriptorProto.LABEL_REQUIRED:
                return "required "
            case _:
                in_oneof = field.HasField("oneof_index") and not field.proto3_optional
                implicit = self._file.syntax == "proto3" and not field.proto3_optional
                return "" if in_oneof or implicit else "optional "

    def _field_options(self, field: FieldDescriptorProto) -> Iterator[tuple[str, str]]:
        if field.HasField("default_value"):
            yield "default", _default(field)
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            yield "json_name", _quoted(field.json_name)
        yield from _options(field.options)

    def _enum(self, enum: EnumDescriptorProto) -> Iterator[str]:
        yield f"enum {enum.name} {{"
        yield from _indented(self._enum_lines(enum))
        yield "}"

    def _enum_lines(self, enum: EnumDescriptorProto) -> Iterator[str]:
        yield from (f"option {name} = {value};" for name, value in _options(enum.options))
        yield from _reserved(
            [(each.start, each.end) for each in enum.reserved_range],
            enum.reserved_name,
            normalize=self._normalize,
        )
        values = [*enum.value]
        if self._normalize and self._file.syntax == "proto3":
            # The first one is 0 there, and the default elsewhere.
            values[1:] = sorted(values[1:], key=lambda value: (value.number, value.name))
        for value in values:
            options = [f"{name} = {text}" for name, text in _options(value.options)]
            more = f" [{', '.join(options)}]" if options else ""
            yield f"{value.name} = {value.number}{more};"

    def _service(self, service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from (f"  option {name} = {value};" for name, value in _options(service.options))
        for method in service.method:
            taken = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            given = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            head = f"  rpc {method.name} ({taken}) returns ({given})"
            options = [*_options(method.options)]
            if not options:
                yield f"{head};"
                continue
            yield f"{head} {{"
            yield from (f"    option {name} = {value};" for name, value in options)
            yield "  }"
        yield "}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or scalar_name(field)


def _reserved(
    ranges: Iterable[tuple[int, int]], names: Iterable[str], *, normalize: bool
) -> Iterator[str]:
    """Ranges include their ends."""
    ranges, names = [*ranges], [*names]
    if normalize:
        ranges.sort()
        names.sort()
    if ranges:
        shown = (
            f"{start}" if start == end else f"{start} to {'max' if end >= _MAX_RESERVED else end}"
            for start, end in ranges
        )
        yield f"reserved {', '.join(shown)};"
    if names:
        yield f"reserved {', '.join(_quoted(name) for name in names)};"


def _options(options: Message) -> Iterator[tuple[str, str]]:
    if len(UnknownFieldSet(options)):
        raise _NotWritableError
    for field, value in options.ListFields():
        if field.is_extension or field.is_repeated or field.type == field.TYPE_MESSAGE:
            raise _NotWritableError
        if field.name == "map_entry":
            continue
        if field.enum_type is not None:
            yield field.name, field.enum_type.values_by_number[value].name
        elif field.type == field.TYPE_BOOL:
            yield field.name, "true" if value else "false"
        elif field.type == field.TYPE_STRING:
            yield field.name, _quoted(value)
        else:
            yield field.name, str(value)


def _default(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        # It is escaped already.
        return f'"{field.default_value}"'
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return _quoted(field.default_value)
    return field.default_value


def _quoted(text: str) -> str:
    """Return the literal of a string, in ASCII."""
    shown = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{shown}"'


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)
