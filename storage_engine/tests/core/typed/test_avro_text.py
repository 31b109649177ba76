"""Columns as Avro schemas."""

import json

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import ConfigError
from storage_engine.core.schemas.languages import incompatibilities, parse
from storage_engine.core.schemas.texts import Schema, SchemaType
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.avro_schema import parse_avro
from storage_engine.core.typed.avro_text import avro_text, record_name
from storage_engine.core.typed.column_types import ColumnSpec
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.tests.core.typed.schema_strategies import AVRO_NAMES, columns_of
from storage_engine.tests.sampling import examples

COLUMNS = columns_of(AVRO_NAMES, AVRO_NAMES)


def text_of(schema, version=None, name="t"):
    return avro_text(schema, version or schema.latest, name)


def specs(version):
    return [ColumnSpec(each.name, each.type, each.nullable) for each in version.visible]


@settings(max_examples=examples(300))
@given(columns=COLUMNS)
def test_the_columns_of_the_text_are_those_of_the_topic(columns):
    schema = new_schema(columns)
    text = text_of(schema)
    assert parse_avro(text) == columns
    assert parse(Schema(SchemaType.AVRO, text), {}).canonical == text
    fastavro.parse_schema(json.loads(text))


_WIDER = {
    types.IntegerColumn(8): types.IntegerColumn(16),
    types.IntegerColumn(16): types.IntegerColumn(32),
    types.IntegerColumn(32): types.IntegerColumn(64),
    types.FloatColumn(32): types.FloatColumn(64),
}


def widened(draw, column_type):
    """The type, perhaps wider in some of its parts."""
    match column_type:
        case types.ArrayColumn(element, nullable):
            return types.ArrayColumn(widened(draw, element), nullable)
        case types.MapColumn(key, value, nullable):
            return types.MapColumn(widened(draw, key), widened(draw, value), nullable)
        case types.StructColumn(fields):
            return types.StructColumn(
                tuple(
                    types.StructColumnField(f.name, widened(draw, f.type), f.nullable)
                    for f in fields
                )
            )
        case types.DecimalColumn(precision, scale) if precision < 38 and draw(st.booleans()):
            return types.DecimalColumn(draw(st.integers(precision + 1, 38)), scale)
    return _WIDER.get(column_type, column_type) if draw(st.booleans()) else column_type


def next_version(draw, schema, names):
    """The schema after one change: columns hidden, shown, wider or new."""
    kept = []
    for column in schema.latest.columns:
        if column.hidden:
            if draw(st.booleans()):
                kept.append(ColumnSpec(column.name, column.type, True))
        elif draw(st.integers(0, 3)):
            kind = widened(draw, column.type)
            kept.append(ColumnSpec(column.name, kind, column.nullable))
    known = {column.name.lower() for column in schema.latest.columns}
    new = draw(names)
    if new.lower() not in known:
        kept.append(ColumnSpec(new, draw(COLUMNS)[0].type, True))
    return schema.evolved(kept) if kept else schema


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_each_version_reads_what_was_written_in_those_before(data):
    schema = new_schema(data.draw(COLUMNS))
    for _ in range(3):
        schema = next_version(data.draw, schema, AVRO_NAMES)
    parsed = [
        parse(Schema(SchemaType.AVRO, text_of(schema, version)), {}) for version in schema.versions
    ]
    for place, reader in enumerate(parsed):
        assert [incompatibilities(reader, writer) for writer in parsed[:place]] == [[]] * place


def test_hidden_columns_are_not_in_the_text():
    schema = new_schema(parse_ddl("id INT NOT NULL, gone STRING")).evolved(
        parse_ddl("id INT NOT NULL, n SMALLINT")
    )
    assert text_of(schema) == (
        '{"type":"record","name":"t","fields":[{"name":"id","type":"int"},{"name":"n",'
        '"type":["null",{"type":"int","connect.type":"int16"}],"default":null}]}'
    )
    assert "gone" in text_of(schema, schema.versions[0])


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("trips", "trips"),
        ("shop.orders-v2", "shop.orders__v2"),
        ("2026.rides", "_2026.rides"),
        ("a..b.", "a._.b._"),
        ("-", "__"),
        ("string", "string_"),
        ("my.string", "my.string_"),
    ],
)
def test_every_name_of_a_topic_becomes_a_name_of_avro(topic, name):
    assert record_name(topic) == name
    text = text_of(new_schema(parse_ddl("id INT, st STRUCT<d: DECIMAL(9,2)>")), name=topic)
    assert parse(Schema(SchemaType.AVRO, text), {}).record_name == name


@pytest.mark.parametrize("ddl", ["`total-fare` DOUBLE", "st STRUCT<`größe`: INT>", "`2nd` INT"])
def test_a_column_that_avro_has_no_name_for_is_refused_by_one_line(ddl):
    with pytest.raises(ConfigError, match=r"can't be a field of Avro, .*: rename it$"):
        text_of(new_schema(parse_ddl(ddl)))


def test_a_text_that_no_registry_takes_is_refused():
    inner = types.StructColumn((types.StructColumnField("x", types.IntegerColumn(32)),))
    outer = types.StructColumn(
        tuple(types.StructColumnField(f"{'f' * 250}{n}", inner) for n in range(900))
    )
    for _ in range(3):
        outer = types.StructColumn((types.StructColumnField("g" * 255, outer),))
    with pytest.raises(ConfigError, match="has more than 1024 KiB; use shorter names"):
        text_of(new_schema([ColumnSpec("c", outer)]))


@pytest.mark.parametrize(
    ("kind", "ddl"),
    [
        ({"type": "int", "connect.type": "int16"}, "SMALLINT"),
        ({"type": "int", "connect.type": 16}, "INT"),
        ({"type": "long", "connect.type": "int16"}, "BIGINT"),
        ({"type": "int", "logicalType": "date", "connect.type": "int16"}, "DATE"),
        ({"type": "long", "spark.sql.catalyst.type": "interval day to second"},
         "INTERVAL DAY TO SECOND"),
        ({"type": "long", "spark.sql.catalyst.type": "bigint"}, "BIGINT"),
        ({"type": "array", "logicalType": "map", "items": "int"}, "ARRAY<INT NOT NULL>"),
    ],
)  # fmt: skip
def test_attributes_count_only_where_they_belong(kind, ddl):
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "c", "type": kind}]})
    (column,) = parse_avro(text)
    assert types.ddl_of(column.type, exact=True) == ddl


def test_entries_that_contain_themselves_are_refused():
    entry = {
        "type": "record", "name": "E", "fields": [
            {"name": "key", "type": "int"},
            {"name": "value", "type": {"type": "array", "logicalType": "map", "items": "E"}},
        ]}  # fmt: skip
    kind = {"type": "array", "logicalType": "map", "items": entry}
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "c", "type": kind}]})
    with pytest.raises(ConfigError, match="nested more than 16 deep"):
        parse_avro(text)
