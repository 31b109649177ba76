"""Which Avro schemas are the same."""

import json

import pytest

from storage_engine.core.schemas.languages import Schema, SchemaType, parse
from storage_engine.tests.core.schemas.given import avro, field, record

FULL = record(
    field("a", ["null", "int"], default=None, doc="d", aliases=["b", "a0"], order="ignore", z=1),
    field("e", {"type": "enum", "name": "E", "symbols": ["X"], "default": "X", "namespace": "n"}),
    field("f", {"type": "fixed", "name": "F", "size": 2, "aliases": ["G"]}),
    field("again", "n.E"),
    field("l", {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}}),
    field("m", {"type": "map", "values": {"type": "string", "avro.java.string": "String"}}),
    field("d", "double", default=1),
    namespace="n",
    doc="",
    aliases=["o.Old", "Older"],
    extra={"b": 1, "a": [2]},
)


def test_the_canonical_text_keeps_all_that_has_a_meaning():
    assert avro(FULL).canonical == (
        '{"type":"record","name":"R","namespace":"n","doc":"","fields":['
        '{"name":"a","type":["null","int"],"doc":"d","default":null,"order":"ignore",'
        '"aliases":["b","a0"],"z":1},'
        '{"name":"e","type":{"type":"enum","name":"E","symbols":["X"],"default":"X"}},'
        '{"name":"f","type":{"type":"fixed","name":"F","size":2,"aliases":["G"]}},'
        '{"name":"again","type":"E"},'
        '{"name":"l","type":{"type":"array","items":{"type":"long",'
        '"logicalType":"timestamp-millis"}}},'
        '{"name":"m","type":{"type":"map","values":{"type":"string",'
        '"avro.java.string":"String"}}},'
        '{"name":"d","type":"double","default":1}],'
        '"extra":{"b":1,"a":[2]},"aliases":["o.Old","Older"]}'
    )


def test_a_normalized_text_leaves_out_what_has_none():
    text = avro(FULL).normalized
    assert text.startswith('{"type":"record","name":"R","namespace":"n","fields":[')
    assert '"aliases":["a0","b"]' in text
    assert '{"name":"d","type":"double","default":1.0}' in text
    assert text.endswith('"extra":{"a":[2],"b":1},"aliases":["Older","o.Old"]}')


@pytest.mark.parametrize("text", [avro(FULL).canonical, avro(FULL).normalized])
def test_the_text_of_a_text_is_itself(text):
    again = avro(json.loads(text))
    assert text in (again.canonical, again.normalized)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"type": "int"}, "int"),
        (record(namespace="n"), record(name="n.R")),
        (record(field("a", record(name="n.I")), name="n.R"),
         record(field("a", record(name="I")), name="n.R")),
        (record(field("a", "int", order="ascending")), record(field("a", "int"))),
    ],
)  # fmt: skip
def test_the_writing_of_a_schema_does_not_count(one, other):
    assert avro(one).canonical == avro(other).canonical


@pytest.mark.parametrize(
    "other",
    [
        record(field("a", "int"), doc="d"),
        record(field("a", "int"), aliases=["B"]),
        record(field("a", "int", default=0)),
        record(field("a", "int", doc="d")),
        record(field("a", "int", aliases=["b"])),
        record(field("a", "int"), extra=1),
        record(field("a", {"type": "int", "logicalType": "date"})),
        record(field("a", "int"), namespace="n"),
    ],
)
def test_documentation_defaults_aliases_and_attributes_count(other):
    plain = record(field("a", "int"))
    assert avro(plain).canonical != avro(other).canonical
    assert avro(plain).normalized != avro(other).normalized


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (record(doc=""), record()),
        (record(aliases=["A", "B"]), record(aliases=["B", "A"])),
        (record(x=1, y={"b": 1, "a": 2}), record(y={"a": 2, "b": 1}, x=1)),
        (record(field("a", "float", default=0)), record(field("a", "float", default=0.0))),
        (record(field("a", {"type": "map", "values": "int"}, default={"b": 1, "a": 2})),
         record(field("a", {"type": "map", "values": "int"}, default={"a": 2, "b": 1}))),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0},
         {"type": "bytes", "precision": 2, "logicalType": "decimal"}),
    ],
)  # fmt: skip
def test_what_means_the_same_is_the_same_when_normalized(one, other):
    assert avro(one).canonical != avro(other).canonical
    assert avro(one).normalized == avro(other).normalized


def test_a_type_without_namespace_inside_of_one_with_keeps_its_meaning():
    inner = record(field("n", "int"), name="I", namespace="")
    text = avro(record(field("a", inner), field("b", ".I"), namespace="n")).canonical
    assert '"name":"I","namespace":""' in text
    assert avro(json.loads(text)).canonical == text


def test_the_record_of_a_schema_is_told():
    assert avro(record(namespace="n")).record_name == "n.R"
    assert avro(["null", record()]).record_name is None


def test_a_default_that_json_has_no_word_for_is_a_text():
    text = avro(record(field("a", "double", default="NaN"))).canonical
    assert '"default":"NaN"' in text
    assert parse(Schema(SchemaType.AVRO, text), {}).canonical == text
