"""The languages of a registry's schemas, behind one door."""

from collections.abc import Mapping

from storage_engine.core.schemas.avro.compatibility import avro_incompatibilities
from storage_engine.core.schemas.avro.parsed import ParsedAvro, parse_avro_text
from storage_engine.core.schemas.compared import Side
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.texts import ParsedSchema, Reference, Schema, SchemaType

__all__ = [
    "InvalidSchemaError",
    "ParsedSchema",
    "Reference",
    "Schema",
    "SchemaType",
    "incompatibilities",
    "parse",
]


def parse(schema: Schema, resolved: Mapping[str, Schema], *, new: bool = True) -> ParsedSchema:
    """Return the schema; InvalidSchemaError says in one line why it is none.

    `resolved` has what its references stand for, by their names, also those of references. Of a
    schema that is not `new`, since a registry has taken it, some mistakes are forgiven.
    """
    match schema.schema_type:
        case SchemaType.AVRO:
            return parse_avro_text(schema, resolved, new=new)
        case other:
            raise InvalidSchemaError(f"schemas of type {other.value} are not served: use AVRO")


def incompatibilities(
    reader: ParsedSchema, writer: ParsedSchema, *, reader_is: str = "new", writer_is: str = "old"
) -> list[str]:
    """Return why a reader of the one can't read data of the other, a line for each reason in the
    form of Confluent's registry; []: it can. The lines call the two schemas `reader_is` and
    `writer_is`."""
    side = Side(reader_is, writer_is)
    match reader, writer:
        case ParsedAvro(), ParsedAvro():
            return avro_incompatibilities(reader.tree, writer.tree, side)
        case _:
            return ["Incompatible because of different schema type"]
