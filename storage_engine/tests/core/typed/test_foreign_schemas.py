"""Columns from Avro, JSON Schema and Spark's JSON, and the decision which of them a text is."""

import json

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.ddl import render_ddl
from storage_engine.core.typed.schema_text import parse_schema, parse_spark_json
from storage_engine.core.typed.topic_schema import new_schema


def ddl(text):
    return render_ddl(parse_schema(text if isinstance(text, str) else json.dumps(text)), exact=True)


def record(*fields, name="R"):
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name, kind):
    return {"name": name, "type": kind}


AVRO = record(
    field("id", "long"),
    field("at", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    field("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    field("day", {"type": "int", "logicalType": "date"}),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    field("kind", {"type": "enum", "name": "K", "symbols": ["A"]}),
    field("hash", {"type": "fixed", "name": "F", "size": 16}),
    field("tags", {"type": "array", "items": "string"}),
    field("more", {"type": "map", "values": ["null", "int"]}),
    field("who", record(field("name", ["string", "null"]), name="W")),
    field("other", ["null", "W"]),
    field("f", "float"),
    field("odd", {"type": "string", "logicalType": "unheard-of"}),
)


def test_an_avro_record_becomes_columns():
    assert ddl(AVRO) == (
        "id BIGINT NOT NULL, at TIMESTAMP, local TIMESTAMP_NTZ NOT NULL, day DATE NOT NULL, "
        "price DECIMAL(9,2) NOT NULL, kind STRING NOT NULL, hash BINARY NOT NULL, "
        "tags ARRAY<STRING NOT NULL> NOT NULL, more MAP<STRING, INT> NOT NULL, "
        "who STRUCT<name: STRING> NOT NULL, other STRUCT<name: STRING>, f FLOAT NOT NULL, "
        "odd STRING NOT NULL"
    )


def avro(name, *fields, **more):
    return {**record(*fields, name=name), **more}


NUMBER, TEXT = field("n", "long"), field("s", "string")


@pytest.mark.parametrize(
    ("schema", "last"),
    [
        # A short name is of the namespace around it, whatever was defined last.
        (
            avro(
                "Event", field("a", avro("Ref", NUMBER)),
                field("b", avro("Ref", TEXT, namespace="other")), field("c", "Ref"),
                namespace="mine",
            ),
            "STRUCT<n: BIGINT NOT NULL>",
        ),
        # Within a definition of another namespace it is of that one.
        (
            avro(
                "Event", field("a", avro("Ref", NUMBER)),
                field("b", avro("Inner", field("x", avro("Ref", TEXT)), field("y", "Ref"),
                                namespace="other")),
                namespace="mine",
            ),
            "STRUCT<x: STRUCT<s: STRING NOT NULL> NOT NULL, y: STRUCT<s: STRING NOT NULL> "
            "NOT NULL>",
        ),
        # A definition inherits the namespace, also of a dotted name, and through lists and maps.
        (
            avro(
                "shop.Order",
                field("a", ["null", {"type": "array", "items": avro("Item", NUMBER)}]),
                field("b", avro("Meta", field("m", {"type": "map", "values": "shop.Item"}),
                                namespace="common")),
            ),
            "STRUCT<m: MAP<STRING, STRUCT<n: BIGINT NOT NULL> NOT NULL> NOT NULL>",
        ),
        # A dotted name leaves the attribute 'namespace' out of account.
        (
            avro("a.R", field("a", avro("I", NUMBER)), field("c", "a.I"), namespace="b"),
            "STRUCT<n: BIGINT NOT NULL>",
        ),
        # No namespace, told by an empty one or a dot in front, is not that around it.
        (
            avro(
                "R", field("a", avro("I", NUMBER, namespace="")), field("b", avro("I", TEXT)),
                field("c", ".I"), namespace="mine",
            ),
            "STRUCT<n: BIGINT NOT NULL>",
        ),
        (
            avro(
                "R", field("a", {"type": "enum", "name": "I", "symbols": ["x"]}),
                field("b", {"type": "fixed", "name": "I", "size": 2, "namespace": "other"}),
                field("c", "mine.I"), namespace="mine",
            ),
            "STRING",
        ),
    ],
)  # fmt: skip
def test_an_avro_name_means_what_is_defined_in_its_namespace(schema, last):
    assert ddl(schema).endswith(f" {last} NOT NULL")


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


SPARK = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "price", "type": "decimal(9,2)", "nullable": True, "metadata": {}},
        {"name": "gap", "type": "interval day to second", "nullable": True, "metadata": {}},
        {
            "name": "tags",
            "type": {"type": "array", "elementType": "string", "containsNull": False},
            "nullable": True,
            "metadata": {},
        },
        {
            "name": "who",
            "type": {
                "type": "struct",
                "fields": [{"name": "n", "type": "timestamp_ntz", "nullable": True}],
            },
            "nullable": True,
        },
    ],
}


def test_sparks_json_becomes_columns():
    assert ddl(SPARK) == (
        "id BIGINT NOT NULL, price DECIMAL(9,2), gap INTERVAL DAY TO SECOND, "
        "tags ARRAY<STRING NOT NULL>, who STRUCT<n: TIMESTAMP_NTZ>"
    )


def test_a_text_that_begins_with_a_mark_of_its_encoding_is_read():
    assert ddl("\ufeffid INT") == "id INT"
    assert ddl("\ufeff" + json.dumps(SPARK)).startswith("id BIGINT")


def nested_record(depth):
    inner = "int"
    for level in range(depth):
        inner = record(field("f", inner), name=f"R{level}")
    return inner


def doubling_records(count):
    """Each has two of the one before: as many fields as no memory holds, in a short text."""
    fields = [field("f0", record(field("x", "int"), name="R0"))]
    for level in range(1, count):
        twice = [field("a", f"R{level - 1}"), field("b", f"R{level - 1}")]
        fields.append(field(f"f{level}", record(*twice, name=f"R{level}")))
    return record(*fields)


LOOP = {"type": "object", "properties": {"a": {"$ref": "#"}}}
CIRCLE = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/a"}},
    "$defs": {"a": {"$ref": "#/$defs/a"}},
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (record(field("a", ["int", "string"])), "'a' is a union of 2 types beside null"),
        (record(field("a", "Foo")), "'a' has the type 'Foo', which is not defined before it"),
        (record(field("a", record(field("b", "R"), name="S"))), "contains its own record 'R'"),
        (
            avro("R", field("a", avro("I", NUMBER, namespace="other")), field("b", "I")),
            "'b' has the type 'I', which is not defined before it",
        ),
        (
            avro("R", field("a", avro("I", NUMBER)), field("b", avro("I", TEXT))),
            "'b' defines 'I' a second time",
        ),
        (record(field("a", {"type": "long", "logicalType": "timestamp-nanos"})), "timestamp-nanos"),
        (record(field("a", {"type": "bytes", "logicalType": "decimal"})), "the precision of 'a'"),
        (record(field("a", "int"), field("A", "int")), "the field 'A' stands twice"),
        (record(), "a STRUCT without fields"),
        ({"type": "record", "name": "R"}, "'fields' of the Avro schema must be a JSON list"),
        (nested_record(40), "nested more than 16 deep"),
        (doubling_records(14), "more than 2,000 columns"),
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
        ({"type": "struct", "fields": [{"name": "a", "type": "void"}]}, "field 'a': the type"),
        ({"type": "struct", "fields": [{"name": "a", "type": {"type": "udt"}}]}, "no column can"),
        ([1], "neither an Avro record, nor a JSON Schema"),
        ({"type": "enum"}, "neither an Avro record, nor a JSON Schema"),
        ("  ", "the schema is empty"),
        ("{" * 50, "the schema is no JSON"),
        ("[" * 200_000, "the schema is nested too deep"),
    ],
)  # fmt: skip
def test_what_can_not_be_columns_is_refused_in_one_line(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_schema(text if isinstance(text, str) else json.dumps(text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_the_columns_of_any_form_are_is_a_schema():
    for text in (AVRO, JSON_SCHEMA, SPARK):
        assert new_schema(parse_schema(json.dumps(text)), ["id"]).latest.columns
    assert parse_spark_json(json.dumps(SPARK)) == parse_schema(json.dumps(SPARK))
