"""The types of a `.proto` file, as its descriptor has them.

Needs the extra `registry`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from storage_engine.core.schemas.errors import InvalidSchemaError

Label: TypeAlias = Literal["optional", "repeated", "required"]

MAX_TYPES = 20_000
"""The most messages and enums of a file and those that it imports."""

_LABELS: dict[int, Label] = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional",
    FieldDescriptorProto.LABEL_REPEATED: "repeated",
    FieldDescriptorProto.LABEL_REQUIRED: "required",
}


@dataclass(frozen=True, slots=True)
class ProtoField:
    """A field; `type_name` is a scalar's name, or a full name behind a dot."""

    name: str
    number: int
    label: Label
    type_name: str
    is_group: bool
    oneof: str | None
    """None also for the hidden one of an `optional` field."""


@dataclass(frozen=True, slots=True, eq=False)
class ProtoEnum:
    """An enum."""

    name: str
    package: str
    full_name: str
    numbers: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class ProtoMessage:
    """A message; the entry of a map is one, too."""

    name: str
    package: str
    full_name: str
    fields: tuple[ProtoField, ...]
    messages: "tuple[ProtoMessage, ...]"
    enums: tuple[ProtoEnum, ...]
    is_map_entry: bool

    @property
    def local_name(self) -> str:
        """The full name without the package."""
        return self.full_name.removeprefix(f".{self.package}" if self.package else "")[1:]


@dataclass(frozen=True, slots=True, eq=False)
class ProtoFile:
    """A file with the types of all that it imports, by full name."""

    package: str
    messages: tuple[ProtoMessage, ...]
    types: Mapping[str, ProtoMessage | ProtoEnum]
    not_understood: frozenset[str]
    """Parts that are not compared: extensions, and all of an edition."""


def read_file(file: FileDescriptorProto, imported: Iterable[FileDescriptorProto]) -> ProtoFile:
    """Return the types of a file whose references have been checked."""
    messages = tuple(_message(each, file.package, _prefix(file)) for each in file.message_type)
    types: dict[str, ProtoMessage | ProtoEnum] = {}
    for each in _types(file, messages):
        types[each.full_name] = each
    for other in imported:
        inner = tuple(_message(each, other.package, _prefix(other)) for each in other.message_type)
        for each in _types(other, inner):
            types[each.full_name] = each
        if len(types) > MAX_TYPES:
            raise InvalidSchemaError(f"the Protobuf schema has more than {MAX_TYPES:,} types")
    return ProtoFile(file.package, messages, types, frozenset(_not_understood(file)))


def _prefix(file: FileDescriptorProto) -> str:
    return f".{file.package}" if file.package else ""


def _types(
    file: FileDescriptorProto, messages: tuple[ProtoMessage, ...]
) -> Iterator[ProtoMessage | ProtoEnum]:
    yield from (_enum(each, file.package, _prefix(file)) for each in file.enum_type)
    waiting = [*messages]
    while waiting:
        message = waiting.pop()
        yield message
        yield from message.enums
        waiting.extend(message.messages)


def _message(message: DescriptorProto, package: str, prefix: str) -> ProtoMessage:
    full = f"{prefix}.{message.name}"
    oneofs = [each.name for each in message.oneof_decl]
    return ProtoMessage(
        name=message.name,
        package=package,
        full_name=full,
        fields=tuple(_field(each, oneofs) for each in message.field),
        messages=tuple(_message(each, package, full) for each in message.nested_type),
        enums=tuple(_enum(each, package, full) for each in message.enum_type),
        is_map_entry=message.options.map_entry,
    )


def _field(field: FieldDescriptorProto, oneofs: list[str]) -> ProtoField:
    in_oneof = field.HasField("oneof_index") and not field.proto3_optional
    return ProtoField(
        name=field.name,
        number=field.number,
        label=_LABELS[field.label],
        type_name=field.type_name or scalar_name(field),
        is_group=field.type == FieldDescriptorProto.TYPE_GROUP,
        oneof=oneofs[field.oneof_index] if in_oneof else None,
    )


def scalar_name(field: FieldDescriptorProto) -> str:
    """Return the word of the language, such as `int32`."""
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _enum(enum: EnumDescriptorProto, package: str, prefix: str) -> ProtoEnum:
    numbers = frozenset(each.number for each in enum.value)
    return ProtoEnum(enum.name, package, f"{prefix}.{enum.name}", numbers)


def _not_understood(file: FileDescriptorProto) -> Iterator[str]:
    if file.syntax == "editions":
        yield file.SerializeToString(deterministic=True).hex()
    waiting: list[FileDescriptorProto | DescriptorProto] = [file]
    while waiting:
        found = waiting.pop()
        yield from (each.SerializeToString(deterministic=True).hex() for each in found.extension)
        if isinstance(found, DescriptorProto):
            waiting.extend(found.nested_type)
            yield from (f"{found.name} {each.start} {each.end}" for each in found.extension_range)
        else:
            waiting.extend(found.message_type)
