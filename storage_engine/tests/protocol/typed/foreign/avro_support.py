"""Avro records and typed batches made of one another, by fastavro on the foreign side."""

import io
import json
from datetime import timedelta

import fastavro

from storage_engine.core.schemas.avro.parse import parse_avro_schema
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.avro_text import avro_text
from storage_engine.protocol.records.record_batch import Codec, crc_matches, read_header
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.typed.avro_columns import typed_from_avro
from storage_engine.protocol.typed.avro_rows import as_avro_batches
from storage_engine.protocol.typed.stored_rows import StoredRows
from storage_engine.protocol.typed.typed_batch import check_typed_batch
from storage_engine.tests.protocol.typed.logs import TOPIC_ID

ID = 7


def text_of(schema):
    """The Avro schema of a topic's latest version."""
    return avro_text(schema, schema.latest, "t")


def writers_of(*schemas):
    """Writers' schemas, in JSON or as text, by the ids from 7 on."""
    texts = [each if isinstance(each, str) else json.dumps(each) for each in schemas]
    return {ID + place: parse_avro_schema(text) for place, text in enumerate(texts)}


def framed(body, schema_id=ID):
    return b"\0" + schema_id.to_bytes(4, "big") + body


def written(schema, row, schema_id=ID):
    """A value as a serializer writes it; `schema` is JSON or a text."""
    parsed = json.loads(schema) if isinstance(schema, str) else schema
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(parsed), row)
    return framed(target.getvalue(), schema_id)


def read(schema, value, schema_id=ID):
    """The value as a deserializer reads it."""
    assert value[:5] == framed(b"", schema_id)
    source = io.BytesIO(value[5:])
    found = fastavro.schemaless_reader(source, fastavro.parse_schema(json.loads(schema)))
    assert source.read() == b"", "bytes are left"
    return found


def typed(data, schema, writers, codec=Codec.NONE):
    """The typed batch that a broker makes of a plain one, checked as a producer's batch is."""
    made = memoryview(typed_from_avro(data, read_header(data), schema, TOPIC_ID, codec, writers))
    header = read_header(made)
    assert crc_matches(made, 0, len(made))
    check_typed_batch(header, made, schema=schema, topic_id=TOPIC_ID)
    return made


def all_rows(data, schema):
    """The rows of a typed batch in its latest version, those that are gone as their keys alone."""
    stored = StoredRows.of_batch(read_header(data), data, schema)
    columns = {}
    for column in schema.latest.visible:
        found = stored.column(column.column_id)
        columns[column.name] = [None] * len(stored) if found is None else found[1].to_pylist()
    gone = [False] * len(stored) if stored.tombstones is None else stored.tombstones.tolist()
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [(row, is_gone) for row, is_gone in zip(rows, gone, strict=True)]


def as_avro(log, schema, schema_id=ID):
    """The plain batch of a typed one."""
    return as_avro_batches(log, read_header(log), schema, schema_id)


def values_in(log, schema, schema_id=ID):
    """The values of a typed batch as a deserializer reads them."""
    text = text_of(schema)
    values = decode_batches([as_avro(log, schema, schema_id)]).values.to_pylist()
    return [None if each is None else read(text, each, schema_id) for each in values]


def in_avro(value, column_type):
    """A row's value as fastavro writes and reads it."""
    if value is None:
        return None
    match column_type:
        case types.IntervalColumn():
            return value // timedelta(microseconds=1)
        case types.ArrayColumn(element, _):
            return [in_avro(each, element) for each in value]
        case types.MapColumn(types.StringColumn(), inner, _):
            return {key: in_avro(each, inner) for key, each in value}
        case types.MapColumn(key, inner, _):
            return [
                {"key": in_avro(each, key), "value": in_avro(item, inner)} for each, item in value
            ]
        case types.StructColumn(fields):
            return {each.name: in_avro(value[each.name], each.type) for each in fields}
    return value


def rows_in_avro(rows, schema):
    return [
        {each.name: in_avro(row[each.name], each.type) for each in schema.latest.visible}
        for row in rows.to_pylist()
    ]
