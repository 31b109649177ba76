"""Protobuf as a language of the registry.

A text is compiled by what is given for that (`ProtoCompiler`). In place of a text there may be the
descriptor of the file, in base64, as clients send that have no text.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from storage_engine.core.printable import printable
from storage_engine.core.schemas.compared import Side
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.json_text import check_text_size
from storage_engine.core.schemas.protobuf.compatibility import protobuf_incompatibilities
from storage_engine.core.schemas.protobuf.proto_text import proto_text
from storage_engine.core.schemas.protobuf.types import ProtoFile, read_file
from storage_engine.core.schemas.references import in_order
from storage_engine.core.schemas.texts import ParsedSchema, Schema, SchemaType

ProtoCompiler: TypeAlias = Callable[[str, Mapping[str, str]], bytes]
"""Takes a text and those that it may import, by the names of the imports; returns the bytes of a
`FileDescriptorSet` whose last file is that of the text, behind all that it imports. Raises
InvalidSchemaError."""

_WELL_KNOWN: Mapping[str, bytes] = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2,
        source_context_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2,
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class ParsedProtobuf(ParsedSchema):
    """A Protobuf schema that has been read."""

    text: str
    file: FileDescriptorProto
    types: ProtoFile
    imported: tuple[FileDescriptorProto, ...] = ()
    """The files that it imports, directly and through others, each behind its own."""

    @property
    def schema_type(self) -> SchemaType:
        return SchemaType.PROTOBUF

    @property
    def canonical(self) -> str:
        return proto_text(self.file) or self.text

    @property
    def normalized(self) -> str:
        return proto_text(self.file, normalize=True) or self.text

    @property
    def serialized(self) -> str:
        """The descriptor of the file in base64, as `format=serialized` answers it."""
        return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode()

    def misfits(self, writer: Self, side: Side) -> list[str]:
        return protobuf_incompatibilities(self.types, writer.types, side)

    @property
    def record_name(self) -> str | None:
        """The full name of the first message."""
        return self.types.messages[0].full_name[1:] if self.types.messages else None


def parse_protobuf_text(
    schema: Schema, resolved: Mapping[str, Schema], compile_proto: ProtoCompiler
) -> ParsedProtobuf:
    """Return the schema."""
    others = dict(_files(in_order(schema, resolved), compile_proto))
    file = _file(schema.text, others, compile_proto)
    imported = _imported(file, others)
    _check(file, imported)
    return ParsedProtobuf(schema.text, file, read_file(file, imported), tuple(imported))


def _files(
    schemas: Iterable[tuple[str, Schema]], compile_proto: ProtoCompiler
) -> dict[str, FileDescriptorProto]:
    """Return the files that others may import, by the names by which they do."""
    found: dict[str, FileDescriptorProto] = {}
    for name, schema in schemas:
        file = _file(schema.text, found, compile_proto)
        file.name = name
        found[name] = file
    return found


def _file(
    text: str, others: Mapping[str, FileDescriptorProto], compile_proto: ProtoCompiler
) -> FileDescriptorProto:
    """Return the file of a text, without a name."""
    check_text_size(text, "the Protobuf schema")
    file = _from_base64(text)
    if file is None:
        texts = {name: _importable(name, each) for name, each in others.items()}
        file = FileDescriptorSet.FromString(compile_proto(text, texts)).file[-1]
    file.ClearField("name")
    file.ClearField("source_code_info")
    return file


def _from_base64(text: str) -> FileDescriptorProto | None:
    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    if not _is_text(found):
        raise InvalidSchemaError("the Protobuf schema's descriptor has a name that is not UTF-8")
    return found if found.ByteSize() else None


def _is_text(file: FileDescriptorProto) -> bool:
    """Whether all strings are in UTF-8; the library gives bytes where they are not."""
    waiting: list[Message] = [file]
    while waiting:
        for field, value in waiting.pop().ListFields():
            for each in value if field.is_repeated else (value,):
                if isinstance(each, Message):
                    waiting.append(each)
                elif field.type == field.TYPE_STRING and not isinstance(each, str):
                    return False
    return True


def _importable(name: str, file: FileDescriptorProto) -> str:
    text = proto_text(file)
    if text is None:
        raise InvalidSchemaError(
            f"'{printable(name[:80])}' has extensions, groups or options of its own, and can't be "
            "referred to"
        )
    return text


def _imported(
    file: FileDescriptorProto, others: Mapping[str, FileDescriptorProto]
) -> list[FileDescriptorProto]:
    """Return all files that one imports, directly and through others, each behind its own."""
    found: dict[str, FileDescriptorProto] = {}

    def add(importing: FileDescriptorProto, depth: int) -> None:
        for name in importing.dependency:
            if name in found:
                continue
            if depth > 50:
                raise InvalidSchemaError("the Protobuf schema's imports are nested too deep")
            inner = others.get(name)
            if inner is None:
                if name not in _WELL_KNOWN:
                    raise InvalidSchemaError(
                        f"the Protobuf schema imports '{printable(name[:200])}', which is none of "
                        "its references: register it, and refer to it"
                    )
                inner = FileDescriptorProto.FromString(_WELL_KNOWN[name])
            add(inner, depth + 1)
            found[name] = inner

    add(file, 0)
    return [*found.values()]


def _check(file: FileDescriptorProto, imported: Iterable[FileDescriptorProto]) -> None:
    """InvalidSchemaError where a descriptor does not fit together."""
    pool = DescriptorPool()
    named = FileDescriptorProto()
    named.CopyFrom(file)
    named.name = "\n"
    try:
        for each in (*imported, named):
            pool.AddSerializedFile(each.SerializeToString())
    except (TypeError, DecodeError, UnicodeDecodeError) as error:
        raise InvalidSchemaError(
            f"the Protobuf schema's descriptor is not valid: {printable(str(error)[:200])}"
        ) from None
