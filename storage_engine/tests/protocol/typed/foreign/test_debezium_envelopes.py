"""The envelopes that Debezium writes: a typed topic of their schema, and what it can't have."""

import json
from decimal import Decimal

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed.avro_schema import parse_avro
from storage_engine.core.typed.column_types import ddl_of
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.tests.protocol.typed.foreign.avro_support import (
    ID,
    all_rows,
    typed,
    values_in,
    writers_of,
    written,
)
from storage_engine.tests.protocol.typed.json_support import records_of, rows_in
from storage_engine.tests.protocol.typed.logs import log_of


def named(kind, name, **more):
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


def nullable(name, kind):
    return {"name": name, "type": ["null", kind], "default": None}


def value_schema(*more):
    amount = named(
        "bytes", "org.apache.kafka.connect.data.Decimal", logicalType="decimal", precision=10,
        scale=2, **{"connect.parameters": {"scale": "2", "connect.decimal.precision": "10"}},
    )  # fmt: skip
    return {
        "type": "record", "name": "Value", "connect.name": "shop.public.orders.Value", "fields": [
            {"name": "id", "type": {"type": "int", "connect.default": 0}, "default": 0},
            {"name": "customer", "type": "string"},
            nullable("amount", amount),
            {"name": "day", "type": named("int", "io.debezium.time.Date")},
            {"name": "at", "type": named("long", "io.debezium.time.MicroTimestamp")},
            nullable("small", {"type": "int", "connect.type": "int16"}),
            nullable("seen", named("string", "io.debezium.time.ZonedTimestamp")),
            nullable("tags", {"type": "array", "items": ["null", "string"]}),
            *more,
        ]}  # fmt: skip


def envelope(value):
    snapshot = named("string", "io.debezium.data.Enum", **{"connect.default": "false"})
    source = {
        "type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql",
        "fields": [
            {"name": "version", "type": "string"},
            {"name": "name", "type": "string"},
            {"name": "ts_ms", "type": "long"},
            {"name": "snapshot", "type": [snapshot, "null"], "default": "false"},
            nullable("txId", "long"),
        ]}  # fmt: skip
    block = {
        "type": "record", "name": "block", "namespace": "event", "fields": [
            {"name": "id", "type": "string"},
            {"name": "total_order", "type": "long"},
        ]}  # fmt: skip
    return {
        "type": "record", "name": "Envelope", "namespace": "shop.public.orders",
        "connect.name": "shop.public.orders.Envelope", "fields": [
            nullable("before", value),
            nullable("after", "Value"),
            {"name": "source", "type": source},
            nullable("transaction", block),
            {"name": "op", "type": "string"},
            nullable("ts_ms", "long"),
        ]}  # fmt: skip


ENVELOPE = envelope(value_schema())
ROW = {
    "id": 1, "customer": "Anna", "amount": Decimal("12.50"), "day": 20_000, "at": 1_700_000,
    "small": 7, "seen": "2026-11-30T12:00:00Z", "tags": ["a", None],
}  # fmt: skip
SOURCE = {"version": "3.0", "name": "shop", "ts_ms": 5, "snapshot": "false", "txId": 9}


def change(op, before, after):
    row = {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 6}
    return row | {"transaction": None}


def test_a_typed_topic_of_the_envelopes_schema_takes_every_change():
    schema = new_schema(parse_avro(json.dumps(ENVELOPE)))
    assert ddl_of(schema.latest.column("after").type) == (
        "STRUCT<id: INT NOT NULL, customer: STRING NOT NULL, amount: DECIMAL(10,2),"
        " day: INT NOT NULL, at: BIGINT NOT NULL, small: SMALLINT, seen: STRING,"
        " tags: ARRAY<STRING>>"
    )
    later = ROW | {"amount": None, "customer": "Bob"}
    changes = [
        change("c", None, ROW), change("u", ROW, later), change("d", later, None),
        change("r", None, ROW) | {"transaction": {"id": "t", "total_order": 3}},
    ]  # fmt: skip
    data = records_of([written(ENVELOPE, each) for each in changes])
    made = typed(data, schema, writers_of(ENVELOPE))
    assert rows_in(made, schema) == changes
    assert values_in(log_of_one(made), schema) == changes


def log_of_one(batch):
    class Batch:
        data = batch

    return log_of([Batch])


def test_a_table_that_gets_a_column_needs_it_in_the_topic():
    schema = new_schema(parse_avro(json.dumps(ENVELOPE)))
    wider = envelope(value_schema(nullable("note", "string")))
    row = change("c", None, ROW | {"note": "x"})
    with pytest.raises(RowsDoNotFitError, match=r"'before\.note' is not in the topic's"):
        typed(records_of([written(wider, row)]), schema, writers_of(wider))
    flat = envelope(value_schema())
    flat["fields"].append(nullable("ts_us", "long"))
    evolved = schema.evolved(parse_avro(json.dumps(flat)))
    values = [written(ENVELOPE, change("c", None, ROW)), written(flat, change("c", None, ROW), 8)]
    made = typed(records_of(values), evolved, writers_of(ENVELOPE, flat))
    assert [row["ts_us"] for row in rows_in(made, evolved)] == [None, None]


def test_the_key_of_the_table_as_a_column_makes_tombstones_of_deletions():
    columns = parse_avro(json.dumps(ENVELOPE))
    keyed = parse_avro(json.dumps({"type": "record", "name": "K", "fields": [
        {"name": "order_id", "type": "int"}]}))  # fmt: skip
    schema = new_schema([*keyed, *columns], ["order_id"])
    values = [written(ENVELOPE, change("d", ROW, None)), None]
    made = typed(records_of(values, [b"1", b"1"]), schema, writers_of(ENVELOPE))
    (deletion, is_gone), (tombstone, comes_last) = all_rows(made, schema)
    assert (deletion["order_id"], deletion["op"], is_gone) == (1, "d", False)
    assert (tombstone["order_id"], tombstone["op"], comes_last) == (1, None, True)
    with pytest.raises(RowsDoNotFitError, match="record 0 is not stored: its key is not the one"):
        typed(records_of(values, [b"\0\0\0\0\5\2"] * 2), schema, writers_of(ENVELOPE))


def test_a_topic_without_the_key_takes_no_tombstones():
    schema = new_schema(parse_avro(json.dumps(ENVELOPE)))
    with pytest.raises(RowsDoNotFitError, match="record 0 has a null value, but the topic has no"):
        typed(records_of([None], [b"1"]), schema, writers_of(ENVELOPE))


def test_what_no_column_can_be_is_told_with_its_field():
    union = {"name": "either", "type": ["null", "string", "long"], "default": None}
    wide = envelope(value_schema(union))
    with pytest.raises(ConfigError, match=r"'before\.either' is a union of 2 types beside null"):
        parse_avro(json.dumps(wide))
    as_text = envelope(value_schema(nullable("either", "string")))
    schema = new_schema(parse_avro(json.dumps(as_text)))
    values = [written(wide, change("c", None, ROW | {"either": "x"}))]
    with pytest.raises(
        RowsDoNotFitError,
        match=rf"schema id {ID}: 'before\.either' is a union of 2 types beside null, and a column",
    ):
        typed(records_of(values), schema, writers_of(wide))
