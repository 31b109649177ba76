"""The records that are sent are of the topic's schema, and each is a ride."""

import json
from io import BytesIO

import fastavro

from benchmarks.typed import avro_produce
from benchmarks.typed.columns import ddl, make_rows
from storage_engine.core.typed.avro_text import avro_text
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema


def test_values_are_framed_rides_of_the_topics_schema(monkeypatch):
    monkeypatch.setattr(avro_produce, "_DISTINCT", 5)
    schema = new_schema(parse_ddl(ddl()), [])
    text = avro_text(schema, schema.latest, "typed")
    values = avro_produce._values(text)
    parsed = fastavro.parse_schema(json.loads(text))
    assert {each[:5] for each in values} == {b"\0" + avro_produce._ID.to_bytes(4)}
    read = [fastavro.schemaless_reader(BytesIO(each[5:]), parsed, None) for each in values]
    assert read == make_rows(0, 5).to_pylist()
