"""What a reader of one Avro schema can read of another, rule by rule.

Source: the specification of Apache Avro 1.12, schema resolution; Confluent's schema evolution."""

import pytest

from storage_engine.core.schemas.languages import incompatibilities
from storage_engine.tests.core.schemas.given import avro, field, record

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
MORE = {**ENUM, "symbols": ["A", "B", "C", "D"]}
DEFAULT = {**ENUM, "default": "A"}
FIXED = {"type": "fixed", "name": "F", "size": 2}
TREE = record(field("v", "int"), field("next", ["null", "R"]))
WIDER_TREE = record(field("v", "long"), field("next", ["null", "R"]))


def reasons(reader, writer):
    return incompatibilities(avro(reader), avro(writer))


NUMBERS = ["int", "long", "float", "double"]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        *((each, each) for each in (*NUMBERS, "null", "boolean", "bytes", "string")),
        *((NUMBERS[n], lower) for n in range(4) for lower in NUMBERS[:n]),
        ("bytes", "string"),
        ("string", "bytes"),
        # Fields: added with a default, removed, reordered, renamed by an alias, of another type.
        (record(field("a", "int", default=1)), record()),
        (record(), record(field("a", "int"))),
        (record(*(field(name, "int") for name in "ab")), record(*(field(n, "int") for n in "ba"))),
        (record(field("b", "int", aliases=["a"])), record(field("a", "int"))),
        (record(field("a", "double")), record(field("a", "int"))),
        # Names: the namespace is left out of account, an alias stands for the old name.
        (record(namespace="x"), record(namespace="y")),
        (record(name="New", aliases=["R"]), record()),
        (MORE, ENUM),
        (DEFAULT, MORE),
        (FIXED, {**FIXED, "namespace": "x"}),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
        # Unions.
        (["null", "int"], "int"),
        (["null", "long"], "int"),
        (["null", "int"], ["int"]),
        ("long", ["int", "long"]),
        (["null", "string", "int"], ["int", "null"]),
        (TREE, TREE),
        (WIDER_TREE, TREE),
        ({"type": "int", "logicalType": "date"}, "int"),
    ],
)  # fmt: skip
def test_a_reader_can_read(reader, writer):
    assert reasons(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "reason"),
    [
        ("int", "long", (
            "{errorType:'TYPE_MISMATCH', description:'The type (path '/') of a field in the new "
            "schema does not match with the old schema', additionalInfo:'reader type: INT not "
            "compatible with writer type: LONG'}"
        )),
        (record(field("a", "int")), record(), (
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'a' at path "
            "'/fields/0' in the new schema has no default value and is missing in the old schema', "
            "additionalInfo:'a'}"
        )),
        (record(field("a", "string")), record(field("a", "int")), (
            "{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type') of a field "
            "in the new schema does not match with the old schema', additionalInfo:'reader type: "
            "STRING not compatible with writer type: INT'}"
        )),
        (record(name="Other"), record(namespace="n"), (
            "{errorType:'NAME_MISMATCH', description:'The name of the schema has changed (path "
            "'/name')', additionalInfo:'expected: n.R'}"
        )),
        (ENUM, MORE, (
            "{errorType:'MISSING_ENUM_SYMBOLS', description:'The new schema is missing enum "
            "symbols '[C, D]' at path '/symbols' in the old schema', additionalInfo:'[C, D]'}"
        )),
        (FIXED, {**FIXED, "size": 3}, (
            "{errorType:'FIXED_SIZE_MISMATCH', description:'The size of FIXED type field at path "
            "'/size' in the new schema does not match with the old schema', "
            "additionalInfo:'expected: 3, found: 2'}"
        )),
        (["null", "int"], "string", (
            "{errorType:'MISSING_UNION_BRANCH', description:'The new schema is missing a type "
            "inside a union field at path '/' in the old schema', additionalInfo:'reader union "
            "lacking writer type: STRING'}"
        )),
        (["null", "int"], ["null", "int", ENUM], (
            "{errorType:'MISSING_UNION_BRANCH', description:'The new schema is missing a type "
            "inside a union field at path '/2' in the old schema', additionalInfo:'reader union "
            "lacking writer type: ENUM'}"
        )),
    ],
)  # fmt: skip
def test_a_reader_that_can_not_read_says_why(reader, writer, reason):
    assert reasons(reader, writer) == [reason]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        *((lower, NUMBERS[n]) for n in range(4) for lower in NUMBERS[:n]),
        ("boolean", "int"), ("int", "boolean"), ("null", "int"), ("int", "null"),
        ("int", "string"), ("float", "bytes"), ("string", "int"),
        ("int", ["null", "int"]),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}),
        (ENUM, "string"), ("string", ENUM), ("bytes", FIXED), (FIXED, "bytes"), (record(), "int"),
        (ENUM, {**ENUM, "name": "X"}), (FIXED, {**FIXED, "name": "X"}),
        # An alias is the reader's: what the writer calls itself else does not count.
        (record(), record(name="Other", aliases=["R"])),
        (record(field("b", "int")), record(field("a", "int", aliases=["b"]))),
        (TREE, WIDER_TREE),
        (TREE, record(field("v", "int"), field("next", ["null", "R", "int"]))),
    ],
)  # fmt: skip
def test_a_reader_can_not_read(reader, writer):
    assert reasons(reader, writer)


def test_the_lines_name_the_schemas_as_they_are_told():
    lines = incompatibilities(avro(ENUM), avro(MORE), reader_is="old", writer_is="new")
    assert "The old schema is missing" in lines[0]
    assert "in the new schema" in lines[0]


def test_a_pair_that_was_taken_to_fit_is_judged_again():
    """Inside of A, B fits as long as A does. A does not, and another branch stands in for it, but
    nothing stands in for the B that comes later."""

    def definition(last):
        b = record(field("a", "A"), name="B")
        return record(field("b", b), field("n", last), name="A")

    other = record(name="Z", aliases=["A"])
    reader = record(field("x", [definition("int"), other]), field("y", "B"), name="Top")
    writer = record(field("x", definition("long")), field("y", "B"), name="Top")
    assert len(reasons(reader, writer)) == 1
    assert reasons(record(reader["fields"][0], name="Top"), writer) == []


def test_a_reason_to_which_many_ways_lead_is_told_once():
    def schema(kind):
        levels = [record(field("f", kind), name="R0")]
        for n in range(60):
            twice = [field("a", f"R{n}"), field("b", f"R{n}")]
            levels.append(record(*twice, name=f"R{n + 1}"))
        return record(*(field(each["name"], each) for each in levels), name="Top")

    assert len(reasons(schema("int"), schema("long"))) == 1
    wide = record(*(field(f"f{n}", "int") for n in range(20_000)))
    assert len(reasons(wide, record())) == 200


def test_large_schemas_are_compared_in_time_or_not_at_all():
    def wide(name):
        return [record(field("f", "int"), name=f"{name}{n}") for n in range(1000)]

    lines = incompatibilities(avro(wide("A")), avro(wide("B")))
    assert lines == [
        "{errorType:'TYPE_MISMATCH', description:'The schemas are too large to compare: they have "
        "more than 200,000 pairs of parts'}"
    ]
    assert incompatibilities(avro(wide("A")), avro(wide("A")[:300])) == []
    links = (record(field("f", f"R{n}"), name=f"R{n + 1}") for n in range(500))
    chain = [record(name="R0"), *links]
    reader = record(field("a", chain, default={}), field("x", "R500"), name="Top")
    writer = record(field("b", chain), field("x", "R500"), name="Top")
    assert "nested more than 100 deep" in reasons(reader, writer)[0]
