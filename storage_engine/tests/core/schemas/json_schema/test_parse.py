"""What is a JSON Schema, and which two are the same."""

import json

import pytest

from storage_engine.core.schemas.languages import Schema, SchemaType, parse
from storage_engine.tests.core.schemas.given import DRAFT_2020, json_schema, json_text, refusal


def test_white_space_does_not_count_and_the_order_of_fields_when_normalized():
    one = parse(Schema(SchemaType.JSON, '{"type" : "object", "title": "é", "x": 1.0}'), {})
    assert one.canonical == '{"type":"object","title":"é","x":1.0}'
    other = json_schema({"x": 1.0, "title": "é", "type": "object"})
    assert one.canonical != other.canonical
    assert one.normalized == other.normalized == '{"title":"é","type":"object","x":1.0}'


def test_the_title_is_the_name_of_the_record():
    assert json_schema({"title": "Order"}).record_name == "Order"
    assert json_schema({"type": "string"}).record_name is None
    assert json_schema(True).record_name is None


REFERRED = {"definitions": {"A": {"$ref": "common.json#/definitions/B"}}}


@pytest.mark.parametrize(
    "content",
    [
        {"properties": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#/definitions/x"}}, "definitions": {"x": True}},
        {"properties": {"a": {"$ref": "#here"}}, "definitions": {"x": {"$id": "#here"}}},
        {"$schema": DRAFT_2020, "$ref": "#here", "$defs": {"x": {"$anchor": "here"}}},
        {"$id": "http://x/a/b.json", "$ref": "c.json", "definitions": {"c": {"$id": "c.json"}}},
        {"$ref": "http://json-schema.org/draft-07/schema#"},
    ],
)
def test_a_reference_leads_to_a_place_in_the_schema(content):
    assert json_schema(content).canonical


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"$ref": "common.json#/definitions/B"}, "common.json"),
        ({"$id": "http://x/own.json", "$ref": "common.json"}, "common.json"),
        ({"$ref": "http://y/common.json#/definitions/B"}, "http://y/common.json"),
        ({"$ref": "http://own/id.json#/definitions/B"}, "anything"),
    ],
)
def test_a_reference_leads_to_a_registered_schema(content, name):
    common = {"$id": "http://own/id.json", "definitions": {"B": {"type": "string"}}}
    assert parse(json_text(content, name), {name: json_text(common)}).canonical


def test_a_reference_of_a_reference_leads_to_a_registered_schema():
    inner = json_text({"type": "string"})
    middle = json_text({"properties": {"a": {"$ref": "inner.json"}}}, "inner.json")
    outer = json_text({"$ref": "middle.json"}, "middle.json")
    resolved = {"inner.json": inner, "middle.json": middle}
    assert parse(outer, resolved).canonical
    broken = {**resolved, "inner.json": json_text({"$ref": "#/nowhere"})}
    assert "'#/nowhere' leads nowhere" in refusal(outer, broken)


def test_a_remote_schema_is_never_fetched(monkeypatch):
    def connect(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", connect)
    for reference in ("http://127.0.0.1:9/a.json", "file:///etc/passwd", "//x", "other.json"):
        assert "leads nowhere" in refusal(json_text({"$ref": reference}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no JSON"),
        ('{"title": "\\udc00"}', "half a character"),
        ("3", "must be an object or a boolean, not 3"),
        ('{"type": "text"}', "is not valid at $.type: 'text' is not valid"),
        ('{"properties": []}', "is not valid at $.properties"),
        ('{"$schema": "http://json-schema.org/draft-03/schema#"}', "which is not known: use"),
        ('{"$schema": 3}', "'$schema' is 3, which is not known"),
        ('{"$ref": 3}', "is not valid at $"),
        ('{"$ref": "#/definitions/x"}', "'#/definitions/x' leads nowhere"),
        ('{"$ref": "#/definitions/x", "definitions": {"x": {"$ref": "#/definitions/x"}}}',
         "leads to itself"),
        ('{"$ref": "http://[x"}', "leads nowhere"),
        ('{"$ref": "#/a~9b"}', "leads nowhere"),
        ('{"$ref": "#/required", "required": ["a"]}', "leads to no schema"),
        ('{"$id": "http://[x"}', "can't be read"),
        ('{"not": {"allOf": [{"$ref": "gone.json"}]}}', "'gone.json' leads nowhere"),
        ('{"properties": {"a": {"items": [{"$ref": "gone.json"}]}}}', "leads nowhere"),
        ('{"a\\nb": ' * 100 + "1" + "}" * 100, ""),
        ('{"not": ' * 250 + "true" + "}" * 250, "nested too deep"),
        ("[" * 300 + "]" * 300, "nested too deep"),
        (json.dumps({"title": "x" * 5_000_000}), "more than 1024 KiB"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused_by_one_line(text, message):
    schema = Schema(SchemaType.JSON, text)
    if message:
        assert message in refusal(schema)
    else:
        assert parse(schema, {}).canonical


def test_a_schema_that_was_taken_once_is_read_as_it_is():
    taken = json_schema({"type": "text", "$ref": "gone.json"}, new=False)
    assert taken.canonical == '{"type":"text","$ref":"gone.json"}'
    assert json_schema({"$schema": "http://x/own"}, new=False).canonical
