"""The languages of a registry's schemas, behind one door."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from storage_engine.core.schemas.avro.parsed import parse_avro_text
from storage_engine.core.schemas.compared import Side
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.texts import ParsedSchema, Reference, Schema, SchemaType

if TYPE_CHECKING:
    from storage_engine.core.schemas.protobuf.parsed import ProtoCompiler

__all__ = [
    "InvalidSchemaError",
    "ParsedSchema",
    "Reference",
    "Schema",
    "SchemaType",
    "incompatibilities",
    "parse",
]


def parse(
    schema: Schema,
    resolved: Mapping[str, Schema],
    *,
    new: bool = True,
    compile_proto: "ProtoCompiler | None" = None,
) -> ParsedSchema:
    """Return the schema; InvalidSchemaError says in one line why it is none.

    `resolved` has what its references stand for, by their names, also those of references. Of a
    schema that is not `new`, since a registry has taken it, some mistakes are forgiven. Protobuf is
    served where it can be compiled.
    """
    match schema.schema_type:
        case SchemaType.AVRO:
            return parse_avro_text(schema, resolved, new=new)
        case SchemaType.JSON:
            return _parse_json(schema, resolved, new=new)
        case SchemaType.PROTOBUF:
            if compile_proto is None:
                raise InvalidSchemaError("schemas of type PROTOBUF are not served here")
            return _parse_protobuf(schema, resolved, compile_proto)


def incompatibilities(
    reader: ParsedSchema, writer: ParsedSchema, *, reader_is: str = "new", writer_is: str = "old"
) -> list[str]:
    """Return why a reader of the one can't read data of the other, a line for each reason in the
    form of Confluent's registry; []: it can. The lines call the two schemas `reader_is` and
    `writer_is`."""
    if reader.schema_type is not writer.schema_type:
        return ["Incompatible because of different schema type"]
    return reader.misfits(writer, Side(reader_is, writer_is))


def _parse_json(schema: Schema, resolved: Mapping[str, Schema], *, new: bool) -> ParsedSchema:
    try:
        # Where schemas are Avro, its libraries need not be there.
        from storage_engine.core.schemas.json_schema.parsed import parse_json_text
    except ModuleNotFoundError as error:
        raise InvalidSchemaError(
            f"JSON Schemas need the package {error.name}: install headrace[registry]"
        ) from None
    return parse_json_text(schema, resolved, new=new)


def _parse_protobuf(
    schema: Schema, resolved: Mapping[str, Schema], compile_proto: "ProtoCompiler"
) -> ParsedSchema:
    try:
        from storage_engine.core.schemas.protobuf.parsed import parse_protobuf_text
    except ModuleNotFoundError as error:
        raise InvalidSchemaError(
            f"Protobuf schemas need the package {error.name}: install headrace[registry]"
        ) from None
    return parse_protobuf_text(schema, resolved, compile_proto)
