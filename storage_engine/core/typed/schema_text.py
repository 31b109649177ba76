"""Columns from a text in any of the forms that users have: DDL, Avro, JSON Schema, Spark's JSON."""

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.avro_schema import parse_avro
from storage_engine.core.typed.bounded_json import load_json
from storage_engine.core.typed.column_types import ColumnSpec
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.json_schema import parse_json_schema
from storage_engine.core.typed.spark_json import parse_spark_json


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
