"""What is an Avro schema, and what its tree says."""

import json

import pytest

from storage_engine.core.schemas.avro import schema as tree
from storage_engine.core.schemas.avro.parse import parse_avro_schema
from storage_engine.core.schemas.avro.parsed import ParsedAvro
from storage_engine.core.schemas.languages import Schema, SchemaType, parse
from storage_engine.tests.core.schemas.given import avro_text, field, record, refusal


def parsed(content, **more):
    return parse_avro_schema(json.dumps(content), **more)


def test_a_name_is_in_the_namespace_of_the_definition_around_it():
    inner = record(field("e", {"type": "enum", "name": "E", "symbols": ["A"]}), name="b.I")
    schema = parsed(record(field("i", inner), field("again", "b.E"), namespace="a"))
    assert set(schema.names) == {"a.R", "b.I", "b.E"}
    assert isinstance(schema.root, tree.Record)
    again = schema.root.fields[1].type
    assert again == tree.NamedReference("b.E")
    assert schema.resolve(again) == schema.names["b.E"]


def test_aliases_are_full_names():
    schema = parsed(record(namespace="a", aliases=["Old", "b.Older"]))
    assert schema.names["a.R"].aliases == ("a.Old", "b.Older")


def test_a_record_that_contains_itself_is_known():
    node = record(field("next", ["null", "Node"]), name="Node")
    schema = parsed(record(field("list", node), field("n", "int")))
    assert schema.is_recursive
    assert tree.recursive_names(schema) == {"Node", "R"}
    through = parsed(
        record(field("list", node), field("other", record(field("x", "Node"), name="O")))
    )
    assert tree.recursive_names(through) == {"Node", "O", "R"}
    assert not parsed(record(field("n", "int"))).is_recursive


@pytest.mark.parametrize(
    ("kind", "logical"),
    [
        ({"type": "int", "logicalType": "date"}, tree.Logical.DATE),
        ({"type": "long", "logicalType": "timestamp-nanos"}, tree.Logical.TIMESTAMP_NANOS),
        ({"type": "string", "logicalType": "uuid"}, tree.Logical.UUID),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            tree.Decimal(9, 2),
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9}, tree.Decimal(9, 0)),
        (
            {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
            tree.Logical.DURATION,
        ),
        (
            {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9},
            tree.Decimal(9, 0),
        ),
        # What does not fit is left out of account.
        ({"type": "string", "logicalType": "date"}, None),
        ({"type": "bytes", "logicalType": "decimal"}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, None),
        ({"type": "fixed", "name": "F", "size": 11, "logicalType": "duration"}, None),
        (
            {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 10},
            None,
        ),
        ({"type": "long", "logicalType": ["date"]}, None),
    ],
)
def test_a_logical_type_counts_where_it_fits(kind, logical):
    root = parsed(kind).root
    assert isinstance(root, tree.Primitive | tree.Fixed)
    assert root.logical == logical
    assert root.properties["logicalType"] == kind["logicalType"]


DEFAULTS = [
    ("null", None, "a"),
    ("boolean", True, 1),
    ("int", 2**31 - 1, 2**31),
    ("int", -1, 1.0),
    ("long", -(2**63), 2**63),
    ("long", 0, False),
    ("float", 1, "a"),
    ("double", 1.5, None),
    ("double", "NaN", "no number"),
    ("string", "a", None),
    ("bytes", "\u00ff", "\u0100"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", "B"),
    ({"type": "fixed", "name": "F", "size": 2}, "\u0000a", "a"),
    ({"type": "array", "items": "int"}, [1, 2], [1, "2"]),
    ({"type": "map", "values": "int"}, {"a": 1}, {"a": None}),
    (["null", "int"], 1, "a"),
    (record(field("a", "int"), field("b", "int", default=1), name="I"), {"a": 1}, {"b": 1}),
    (record(field("a", "int"), name="I"), {"a": 1}, {"a": "x"}),
    (record(name="I"), {}, []),
]


@pytest.mark.parametrize(("kind", "good", "bad"), DEFAULTS)
def test_a_default_fits_its_type(kind, good, bad):
    assert parsed(record(field("f", kind, default=good)))
    wrong = record(field("f", kind, default=bad))
    assert "the default of 'f' does not fit" in refusal(avro_text(wrong))
    assert parsed(wrong, new=False), "a registry has taken it"


def test_a_default_of_many_unions_is_judged_in_time():
    """Each level leads to the next on two ways."""
    value: dict[str, object] = {"f": None}
    for _ in range(40):
        value = {"f": value}
    one = record(field("f", ["null", "A", "B"]), name="B")
    both = record(field("f", ["null", "A", one]), name="A")
    refused = refusal(avro_text(record(field("x", both, default={"f": {**value, "f": 1}}))))
    assert "the default of 'x'" in refused
    assert parsed(record(field("x", both, default=value)))


def test_references_are_known_by_their_names():
    inner = avro_text(record(field("n", "int"), name="a.Inner"))
    middle = avro_text(record(field("i", "a.Inner"), name="a.Middle"), "inner")
    outer = avro_text(record(field("m", "a.Middle"), field("i", "a.Inner")), "middle")
    schema = parse(outer, {"middle": middle, "inner": inner})
    assert isinstance(schema, ParsedAvro)
    assert json.loads(schema.canonical)["fields"][0]["type"] == "a.Middle"
    assert set(schema.tree.names) == {"R", "a.Middle", "a.Inner"}


def test_references_that_lead_nowhere_are_refused():
    a, b = avro_text("int", "b"), avro_text("int", "a")
    assert refusal(a) == "the reference 'b' (subject 'b-subject', version 1) leads nowhere"
    assert refusal(a, {"a": a, "b": b}).endswith("refers to itself")
    other = Schema(SchemaType.JSON, "{}")
    assert refusal(a, {"b": other}).endswith("leads to a schema of type JSON, not AVRO")
    chain = {str(n): avro_text("int", str(n + 1)) for n in range(1002)}
    assert "more than 1,000 references" in refusal(chain["0"], chain)


def nested(depth):
    inner: object = "int"
    for _ in range(depth):
        inner = {"type": "array", "items": inner}
    return inner


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the Avro schema is no JSON"),
        ("string", "the Avro schema is no JSON"),
        ("3", "the type of the Avro schema must be a name, an object or a list, and is 3"),
        ("{}", "an object without 'type'"),
        ('{"type": 3}', "the type of the Avro schema must be a string, and is 3"),
        ('"R"', "the type 'R', which is not defined before it"),
        ('["int", "int"]', "a union with 'int' twice"),
        ('["int", ["null"]]', "a union inside a union"),
        ('{"type": "array"}', "is of type array without 'items'"),
        ('{"type": "map", "values": null}', "must be a name, an object or a list, and is null"),
        ('{"type": "enum", "name": "E"}', "'symbols' of the Avro schema must be a JSON list"),
        ('{"type": "enum", "name": "E", "symbols": ["a", "a"]}', "has a symbol twice"),
        ('{"type": "enum", "name": "E", "symbols": ["a-b"]}', "'a-b', which is no name of Avro"),
        (
            '{"type": "enum", "name": "E", "symbols": ["a"], "default": "b"}',
            "the default 'b' of the enum of the Avro schema is none of its symbols",
        ),
        ('{"type": "fixed", "name": "F", "size": -1}', "the size of the fixed"),
        ('{"type": "fixed", "name": "int", "size": 1}', "is 'int', a type of Avro's own"),
        ('{"type": "record", "name": "R"}', "'fields' of the Avro schema must be a JSON list"),
        ('{"type": "record", "name": "R", "fields": [3]}', "a field of the Avro schema must be"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "the field 'a' has no type"),
        ('{"type": "record", "fields": []}', "the name of the Avro type of the Avro schema must"),
        ('{"type": "record", "name": "a\\nb", "fields": []}', "'a\\nb', which is no name of Avro"),
        ('{"type": "record", "name": "a..b", "fields": []}', "'', which is no name of Avro"),
        (json.dumps(record(field("a", "int"), field("a", "int"))), "has the field 'a' twice"),
        (json.dumps(record(field("a", record()))), "'a' defines 'R' a second time"),
        (json.dumps(record(field("a", "int", order="up"))), "the order of 'a' must be"),
        (
            json.dumps(record(field("a", "int", aliases="b"))),
            "'aliases' of 'a' must be a JSON list",
        ),
        (json.dumps(nested(70)), "nested more than 64 deep"),
        ("[" * 300 + "]" * 300, "nested too deep"),
        ("[" * 500_000, "nested too deep"),
        (json.dumps("x" * 5_000_000), "more than 1024 KiB"),
        ("[" + "[]," * 150_000 + "1]", "more than 100,000 parts"),
        ('"\\ud800"', "half a character"),
        ("\ud800", "half a character"),
        ('{"type": "int", "a": 1e999}', "a number beyond"),
        ('{"type": "int", "a": NaN}', "NaN is no value of JSON"),
        ('{"type": "int", "a": ' + "9" * 5000 + "}", "a number of 5000 digits"),
    ],
)
def test_what_is_no_schema_is_refused_by_one_line(text, message):
    assert message in refusal(Schema(SchemaType.AVRO, text))


def test_many_names_are_refused():
    fields = (field(f"f{n}", {"type": "fixed", "name": f"F{n}", "size": 1}) for n in range(10_001))
    assert "more than 10,000 names" in refusal(avro_text(record(*fields)))
