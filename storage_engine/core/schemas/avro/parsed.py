"""Avro as a language of the registry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from storage_engine.core.schemas.avro.canonical import canonical_text
from storage_engine.core.schemas.avro.compatibility import avro_incompatibilities
from storage_engine.core.schemas.avro.parse import parse_avro_schema
from storage_engine.core.schemas.avro.schema import AvroSchema, NamedType, Record
from storage_engine.core.schemas.compared import Side
from storage_engine.core.schemas.references import in_order
from storage_engine.core.schemas.texts import ParsedSchema, Schema, SchemaType


@dataclass(frozen=True, slots=True)
class ParsedAvro(ParsedSchema):
    """An Avro schema that has been read."""

    tree: AvroSchema

    @property
    def schema_type(self) -> SchemaType:
        return SchemaType.AVRO

    @property
    def canonical(self) -> str:
        return canonical_text(self.tree)

    @property
    def normalized(self) -> str:
        return canonical_text(self.tree, normalize=True)

    def misfits(self, writer: Self, side: Side) -> list[str]:
        return avro_incompatibilities(self.tree, writer.tree, side)

    @property
    def record_name(self) -> str | None:
        return self.tree.root.full_name if isinstance(self.tree.root, Record) else None


def parse_avro_text(schema: Schema, resolved: Mapping[str, Schema], *, new: bool) -> ParsedAvro:
    """Return the schema; types of those that it refers to are known by their full names."""
    names: Mapping[str, NamedType] = {}
    for _, each in in_order(schema, resolved):
        names = parse_avro_schema(each.text, names, new=False).names
    return ParsedAvro(parse_avro_schema(schema.text, names, new=new))
