"""Columns from a text in any of the forms that users have: DDL, Avro, JSON Schema, and the JSON of
Spark's schemas, `df.schema.json()`, of which metadata is not kept.
"""

from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.avro_schema import parse_avro
from storage_engine.core.typed.bounded_json import (
    JsonObject,
    JsonValue,
    json_boolean,
    json_list,
    json_object,
    json_text,
    load_json,
)
from storage_engine.core.typed.column_types import ColumnSpec
from storage_engine.core.typed.ddl import parse_ddl, parse_type
from storage_engine.core.typed.json_schema import parse_json_schema


def parse_spark_json(text: str) -> list[types.ColumnSpec]:
    """Return the columns; ConfigError names what can't be one."""
    what = "the Spark schema"
    content = json_object(load_json(text, what), what)
    fields = _SparkReader().fields(content, what, 1)
    return [types.ColumnSpec(field.name, field.type, field.nullable) for field in fields]


class _SparkReader(types.TypeCount):
    """Walks the schema; each type is counted."""

    def fields(self, content: JsonObject, what: str, depth: int) -> list[types.StructColumnField]:
        found: list[types.StructColumnField] = []
        for item in json_list(content.get("fields"), f"'fields' of {what}"):
            field = json_object(item, f"a field of {what}")
            name = json_text(field.get("name"), f"the name of a field of {what}")
            inner = f"field '{printable(name[:200])}'"
            nullable = json_boolean(field.get("nullable", True), f"'nullable' of {inner}")
            found.append(
                types.StructColumnField(name, self._type(field.get("type"), inner, depth), nullable)
            )
        return found

    def _type(self, value: JsonValue, what: str, depth: int) -> types.ColumnType:
        self.step(depth)
        if isinstance(value, str):
            try:
                return parse_type(value)
            except ConfigError as error:
                raise ConfigError(f"{what}: {error}") from error
        content = json_object(value, f"the type of {what}")
        match content.get("type"):
            case "array":
                element = self._type(content.get("elementType"), what, depth + 1)
                return types.ArrayColumn(element, _flag(content, "containsNull", what))
            case "map":
                key = self._type(content.get("keyType"), what, depth + 1)
                inner = self._type(content.get("valueType"), what, depth + 1)
                return types.MapColumn(key, inner, _flag(content, "valueContainsNull", what))
            case "struct":
                fields = self.fields(content, what, depth + 1)
                types.check_field_names(field.name for field in fields)
                return types.StructColumn(tuple(fields))
            case _:
                raise ConfigError(
                    f"{what} has a type that no column can have: use Spark's own types"
                )


def _flag(content: JsonObject, name: str, what: str) -> bool:
    return json_boolean(content.get(name, True), f"'{name}' of {what}")


def parse_schema(text: str) -> list[ColumnSpec]:
    """Return the columns; ConfigError for a text that is in none of the forms."""
    if not text.strip():
        raise ConfigError("the schema is empty: give columns, such as 'id BIGINT NOT NULL'")
    if text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
        return parse_ddl(text.removeprefix("\ufeff"))
    text = text.lstrip("\ufeff")
    content = load_json(text, "the schema")
    kind = content.get("type") if isinstance(content, dict) else None
    if kind == "record":
        return parse_avro(text)
    if kind == "struct":
        return parse_spark_json(text)
    if isinstance(content, dict) and ("properties" in content or "$ref" in content):
        return parse_json_schema(text)
    raise ConfigError(
        "the schema is JSON, but neither an Avro record, nor a JSON Schema with 'properties', nor "
        "Spark's JSON: give one of them, or DDL"
    )
