"""Which form of a schema a text has, and Spark's own."""

import json

import pytest

from storage_engine.core.typed.schema_text import parse_schema, parse_spark_json
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.tests.core.typed.foreign_schemas import ddl, refusal
from storage_engine.tests.core.typed.test_avro_schema import AVRO
from storage_engine.tests.core.typed.test_json_schema import JSON_SCHEMA

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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"type": "struct", "fields": [{"name": "a", "type": "void"}]}, "field 'a': the type"),
        ({"type": "struct", "fields": [{"name": "a", "type": {"type": "udt"}}]}, "no column can"),
        ([1], "neither an Avro record, nor a JSON Schema"),
        ({"type": "enum"}, "neither an Avro record, nor a JSON Schema"),
        ("  ", "the schema is empty"),
        ("{" * 50, "the schema is no JSON"),
    ],
)  # fmt: skip
def test_a_text_of_no_form_is_refused(text, message):
    assert message in refusal(text)


def test_what_the_columns_of_any_form_are_is_a_schema():
    for text in (AVRO, JSON_SCHEMA, SPARK):
        assert new_schema(parse_schema(json.dumps(text)), ["id"]).latest.columns
    assert parse_spark_json(json.dumps(SPARK)) == parse_schema(json.dumps(SPARK))
