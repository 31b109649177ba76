"""Columns from JSON Schemas."""

import pytest

from storage_engine.tests.core.typed.foreign_schemas import ddl, refusal

JSON_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["id", "maybe"],
    "properties": {
        "id": {"type": "integer"},
        "fare": {"type": "number", "minimum": 0},
        "maybe": {"type": ["boolean", "null"]},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "raw": {"type": "string", "contentEncoding": "base64"},
        "kind": {"enum": ["a", "b", None]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "who": {"$ref": "#/$defs/person"},
        "other": {"anyOf": [{"$ref": "#/$defs/person"}, {"type": "null"}]},
    },
    "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"}}}},
}


def test_a_json_schema_becomes_columns():
    assert ddl(JSON_SCHEMA) == (
        "id BIGINT NOT NULL, fare DOUBLE, maybe BOOLEAN, day DATE, at TIMESTAMP, raw BINARY, "
        "kind STRING, tags ARRAY<STRING NOT NULL>, counts MAP<STRING, BIGINT NOT NULL>, "
        "who STRUCT<name: STRING>, other STRUCT<name: STRING>"
    )


LOOP = {"type": "object", "properties": {"a": {"$ref": "#"}}}
CIRCLE = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/a"}},
    "$defs": {"a": {"$ref": "#/$defs/a"}},
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"properties": {"a": {}}}, "'a' must have one 'type'"),
        ({"properties": {"a": {"type": ["integer", "string"]}}}, "'a' must have one 'type'"),
        ({"properties": {"a": {"allOf": []}}}, "'a' has 'allOf', which no column can keep"),
        ({"properties": {"a": {"type": "array"}}}, "'a' is an array without 'items'"),
        ({"properties": {"a": {"type": "object"}}}, "'a' is an object without 'properties'"),
        ({"properties": {"a": {"$ref": "http://x/y"}}}, "only references into the same text"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "which is not there: define it"),
        ({"properties": {}, "required": ["a"]}, "names 'a', which is no property"),
        (LOOP, "nested more than 16 deep"),
        (CIRCLE, "go in a circle"),
    ],
)  # fmt: skip
def test_a_json_schema_that_can_not_be_columns_is_refused(text, message):
    assert message in refusal(text)
