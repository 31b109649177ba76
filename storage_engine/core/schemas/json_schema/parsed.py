"""JSON Schema as a language of the registry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from storage_engine.core.schemas.compared import Side
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.json_schema.compatibility import json_incompatibilities
from storage_engine.core.schemas.json_schema.documents import Part, read_schema
from storage_engine.core.schemas.json_schema.shapes import Shapes, parts_inside
from storage_engine.core.schemas.json_text import compact_json, sorted_json
from storage_engine.core.schemas.references import in_order
from storage_engine.core.schemas.texts import ParsedSchema, Schema, SchemaType

MAX_PARTS = 100_000
"""The most schemas inside of one another."""


@dataclass(frozen=True, slots=True, eq=False)
class ParsedJson(ParsedSchema):
    """A JSON Schema that has been read."""

    root: Part
    others: tuple[tuple[str, str], ...]
    """The texts of the schemas that it refers to, by name."""

    @property
    def schema_type(self) -> SchemaType:
        return SchemaType.JSON

    @property
    def canonical(self) -> str:
        return compact_json(self.root.value)

    @property
    def normalized(self) -> str:
        return compact_json(sorted_json(self.root.value))

    def misfits(self, writer: Self, side: Side) -> list[str]:
        if self.others == writer.others and self.normalized == writer.normalized:
            return []
        return json_incompatibilities(self.root, writer.root, side)

    @property
    def record_name(self) -> str | None:
        title = self.root.value.get("title") if isinstance(self.root.value, dict) else None
        return title if isinstance(title, str) else None


def parse_json_text(schema: Schema, resolved: Mapping[str, Schema], *, new: bool) -> ParsedJson:
    """Return the schema. Each reference of a new one leads somewhere."""
    root = read_schema(schema, resolved, new=new)
    if new:
        _follow_references(root)
    others = tuple((name, each.text) for name, each in in_order(schema, resolved))
    return ParsedJson(root, others)


def _follow_references(root: Part) -> None:
    shapes = Shapes()
    seen: set[int] = set()
    waiting = [shapes.of(root)]
    while waiting:
        shape = waiting.pop()
        if id(shape) in seen:
            continue
        seen.add(id(shape))
        if len(seen) > MAX_PARTS:
            raise InvalidSchemaError(f"the JSON Schema has more than {MAX_PARTS:,} parts")
        waiting.extend(shapes.of(each) for each in parts_inside(shape))
