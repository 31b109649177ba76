"""Whether a reader with one Protobuf schema can read what a writer with another has written.

Fields are found by their numbers. Extensions, and files of an edition, must be the same in both.

Source: Confluent's documentation of the evolution of Protobuf schemas; "Updating a message type" in
the documentation of Protobuf.
"""

from collections.abc import Mapping

from storage_engine.core.printable import printable
from storage_engine.core.schemas.compared import Pairs, Side
from storage_engine.core.schemas.protobuf.types import (
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoMessage,
)

_WIRE_GROUPS = (
    ("int32", "int64", "uint32", "uint64", "bool", "enum"),
    ("sint32", "sint64"),
    ("string", "bytes"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("float",),
    ("double",),
)
"""Scalars that can be read as each other."""
_GROUP_OF: Mapping[str, int] = {
    name: index for index, group in enumerate(_WIRE_GROUPS) for name in group
}
_TEXTS = {
    "PACKAGE_CHANGED": (
        "The package at '{path}' in the {reader} schema does not match the package in the {writer} "
        "schema"
    ),
    "MESSAGE_REMOVED": (
        "The {reader} schema is missing a MESSAGE type at path '{path}' in the {writer} schema"
    ),
    "FIELD_KIND_CHANGED": (
        "The type of a field at path '{path}' in the {reader} schema does not match the {writer} "
        "schema"
    ),
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the {reader} schema does not match its "
        "kind in the {writer} schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the {reader} schema does not match its "
        "type in the {writer} schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the {reader} schema does not match its "
        "label in the {writer} schema"
    ),
    "REQUIRED_FIELD_ADDED": (
        "A required field at path '{path}' in the {reader} schema is missing in the {writer} schema"
    ),
    "REQUIRED_FIELD_REMOVED": (
        "The {reader} schema is missing a required field at path '{path}' in the {writer} schema"
    ),
    "ONEOF_FIELD_REMOVED": (
        "The {reader} schema is missing a oneof field at path '{path}' in the {writer} schema"
    ),
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the {reader} schema are outside a oneof "
        "in the {writer} schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the {reader} schema is outside an existing oneof "
        "in the {writer} schema"
    ),
    "EXTENSIONS_CHANGED": (
        "The extensions at path '{path}', or what an edition sets, in the {reader} schema do not "
        "match those in the {writer} schema"
    ),
}


def protobuf_incompatibilities(reader: ProtoFile, writer: ProtoFile, side: Side) -> list[str]:
    """Return why `reader` can't read data of `writer`, a line for each reason; []: it can."""
    pairs: Pairs[ProtoMessage] = Pairs(side)
    judge = _ProtobufJudge(reader, writer, side, pairs)
    return pairs.judge(judge.files)


class _ProtobufJudge:
    """Compares messages. A path is `#/Message/Inner/1`, with the number of a field at its end."""

    def __init__(
        self, reader: ProtoFile, writer: ProtoFile, side: Side, pairs: Pairs[ProtoMessage]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._side = side
        self._pairs = pairs

    def files(self) -> list[str]:
        found: list[str] = []
        if self._reader.package != self._writer.package:
            found += self._line("PACKAGE_CHANGED", "#/")
        if self._reader.not_understood != self._writer.not_understood:
            found += self._line("EXTENSIONS_CHANGED", "#/")
        return found + self._types(self._reader.messages, self._writer.messages, "#/")

    def _line(self, error_type: str, path: str) -> list[str]:
        side, shown = self._side, printable(path[:300])
        text = _TEXTS[error_type].format(path=shown, reader=side.reader, writer=side.writer)
        return [side.line(error_type, text)]

    def _types(
        self, reader: tuple[ProtoMessage, ...], writer: tuple[ProtoMessage, ...], path: str
    ) -> list[str]:
        found: list[str] = []
        new = {message.name: message for message in reader}
        for old in writer:
            inner = f"{path}{old.name}"
            if old.is_map_entry:
                continue
            if old.name in new:
                found += self._messages(new[old.name], old, inner)
            else:
                found += self._line("MESSAGE_REMOVED", inner)
        return found

    def _messages(self, reader: ProtoMessage, writer: ProtoMessage, path: str) -> list[str]:
        return self._pairs.compare(reader, writer, lambda: self._message(reader, writer, path))

    def _message(self, reader: ProtoMessage, writer: ProtoMessage, path: str) -> list[str]:
        new = {field.number: field for field in reader.fields}
        old = {field.number: field for field in writer.fields}
        found = self._moved_into_oneofs(reader, old, path)
        kept = {old[number].oneof for number in new.keys() & old.keys()}
        kept |= {field.oneof for field in reader.fields}
        for number, field in sorted(old.items()):
            inner = f"{path}/{number}"
            if number in new:
                found += self._field(new[number], field, inner)
            elif field.oneof is not None and field.oneof in kept:
                found += self._line("ONEOF_FIELD_REMOVED", f"{path}/{field.oneof}/{number}")
            elif field.label == "required":
                found += self._line("REQUIRED_FIELD_REMOVED", inner)
        for number, field in sorted(new.items()):
            if field.label == "required" and (number not in old or old[number].label != "required"):
                found += self._line("REQUIRED_FIELD_ADDED", f"{path}/{number}")
        return found + self._types(reader.messages, writer.messages, f"{path}/")

    def _moved_into_oneofs(
        self, reader: ProtoMessage, old: Mapping[int, ProtoField], path: str
    ) -> list[str]:
        """Fields of which the writer may have set several, and the reader takes one."""
        origins: dict[str, set[str]] = {}
        from_outside: dict[str, int] = {}
        for field in reader.fields:
            if field.oneof is None or field.number not in old:
                continue
            origin = old[field.number].oneof
            origins.setdefault(field.oneof, set()).add(
                f"field {field.number}" if origin is None else f"oneof {origin}"
            )
            from_outside[field.oneof] = from_outside.get(field.oneof, 0) + (origin is None)
        found: list[str] = []
        for oneof, groups in origins.items():
            if len(groups) > 1:
                several = from_outside[oneof] > 1
                found += self._line(
                    "MULTIPLE_FIELDS_MOVED_TO_ONEOF"
                    if several
                    else "FIELD_MOVED_TO_EXISTING_ONEOF",
                    f"{path}/{oneof}",
                )
        return found

    def _field(self, reader: ProtoField, writer: ProtoField, path: str) -> list[str]:
        new = self._reader.types.get(reader.type_name)
        old = self._writer.types.get(writer.type_name)
        if _kind(reader, new) != _kind(writer, old):
            return self._line("FIELD_KIND_CHANGED", path)
        if isinstance(new, ProtoMessage) and isinstance(old, ProtoMessage):
            return self._message_field(new, old, path)
        new_group, old_group = _wire_group(reader, new), _wire_group(writer, old)
        if new_group is None or new_group != old_group:
            return self._line("FIELD_SCALAR_KIND_CHANGED", path)
        if reader.label != writer.label and new_group != _GROUP_OF["string"]:
            return self._line("FIELD_NUMERIC_LABEL_CHANGED", path)
        return []

    def _message_field(self, new: ProtoMessage, old: ProtoMessage, path: str) -> list[str]:
        if new.is_map_entry:
            return [
                line
                for after, before in zip(new.fields, old.fields, strict=True)
                for line in self._field(after, before, path)
            ]
        if new.local_name != old.local_name:
            return self._line("FIELD_NAMED_TYPE_CHANGED", path)
        found = self._messages(new, old, f"#/{new.local_name.replace('.', '/')}")
        return [*found, *self._line("FIELD_NAMED_TYPE_CHANGED", path)] if found else []


def _kind(field: ProtoField, named: ProtoMessage | ProtoEnum | None) -> str:
    match named:
        case ProtoMessage(is_map_entry=True):
            return "map"
        case ProtoMessage():
            return "group" if field.is_group else "message"
        case _:
            return "scalar"


def _wire_group(field: ProtoField, named: ProtoMessage | ProtoEnum | None) -> int | None:
    return _GROUP_OF.get("enum" if isinstance(named, ProtoEnum) else field.type_name)
