"""Columns from Avro schemas."""

import pytest

from storage_engine.tests.core.typed.foreign_schemas import ddl, refusal


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
    ],
)  # fmt: skip
def test_an_avro_schema_that_can_not_be_columns_is_refused(text, message):
    assert message in refusal(text)
