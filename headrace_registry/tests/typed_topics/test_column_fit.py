"""What a schema under a typed topic's subject writes must fit the topic's columns."""

import json
from typing import Any

import pytest

from headrace_registry.typed_topics.column_fit import column_misfit
from storage_engine.core.schemas.languages import Schema, SchemaType, parse
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema

TYPED = {"rides": new_schema(parse_ddl("id BIGINT NOT NULL, fare DOUBLE"), ["id"])}


def misfit(fields: dict[str, Any], subject: str = "rides-value") -> str | None:
    rows = [{"name": name, "type": kind} for name, kind in fields.items()]
    text = json.dumps({"type": "record", "name": "Own", "fields": rows})
    return column_misfit(TYPED, subject, parse(Schema(SchemaType.AVRO, text), {}))


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "long", "fare": "double"},
        {"id": "int"},
        {"id": "long", "fare": ["null", "float"]},
    ],
)
def test_a_narrower_record_of_any_name_fits(fields) -> None:
    assert misfit(fields) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id": "string"}, "'id'"),
        ({"id": "long", "tip": "double"}, "'tip' is not in the topic's schema"),
        ({"id": "long", "fare": ["string", "double"]}, "'fare'"),
    ],
)
def test_what_does_not_fit_is_named_on_one_line(fields, words) -> None:
    found = misfit(fields)
    assert found is not None and words in found and "rides" in found and "\n" not in found


def test_other_subjects_take_what_they_like() -> None:
    for subject in ("rides-key", "others-value", "rides", "-value"):
        assert misfit({"x": "string"}, subject) is None


def test_other_languages_are_refused_for_a_typed_topic_alone() -> None:
    parsed = parse(Schema(SchemaType.JSON, "{}"), {})
    assert "AVRO alone" in str(column_misfit(TYPED, "rides-value", parsed))
    assert column_misfit(TYPED, "others-value", parsed) is None
