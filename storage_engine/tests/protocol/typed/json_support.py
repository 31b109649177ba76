"""Plain records and typed batches made of one another, and values as JSON has them."""

import base64
import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

from storage_engine.core.typed.column_types import MapColumn, StringColumn
from storage_engine.protocol.records.record_batch import Codec, crc_matches, read_header
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.typed.json_columns import typed_from_json
from storage_engine.protocol.typed.json_rows import as_json_batches
from storage_engine.protocol.typed.typed_batch import check_typed_batch
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.logs import NOW, TOPIC_ID, decoded, table_of


def as_json(log, schema):
    return as_json_batches(log, read_header(log), schema)


def records_of(values, keys=None, **options):
    """A plain batch as a foreign client sends it."""
    as_bytes = [v if v is None or isinstance(v, bytes) else v.encode() for v in values]
    (batch,) = encode_batches(
        pa.array(as_bytes, pa.binary()),
        None if keys is None else pa.array(keys, pa.binary()),
        now_ms=NOW,
        **options,
    )
    return batch.data


def typed(data, schema, codec=Codec.NONE):
    """The typed batch that a broker makes of a plain one, checked as a producer's batch is."""
    made = memoryview(typed_from_json(data, read_header(data), schema, TOPIC_ID, codec))
    header = read_header(made)
    assert crc_matches(made, 0, len(made))
    check_typed_batch(header, made, schema=schema, topic_id=TOPIC_ID)
    return made


def rows_in(data, schema):
    return table_of(decoded(data, schema), plan(schema)).to_pylist()


def plain_json(value, column_type):
    """The value as Python's json gives it back."""
    match value:
        case None:
            return None
        case float():
            if math.isnan(value):
                return "NaN"
            return value if math.isfinite(value) else ("-" if value < 0 else "") + "Infinity"
        case datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text + "Z" if value.tzinfo else text
        case date():
            return value.isoformat()
        case timedelta():
            return value // timedelta(microseconds=1)
        case bytes():
            return base64.b64encode(value).decode()
    name = type(column_type).__name__
    if name == "ArrayColumn":
        return [plain_json(each, column_type.element) for each in value]
    if name == "StructColumn":
        return {f.name: plain_json(value[f.name], f.type) for f in column_type.fields}
    if isinstance(column_type, MapColumn):
        pairs = [
            (plain_json(k, column_type.key), plain_json(v, column_type.value)) for k, v in value
        ]
        if isinstance(column_type.key, StringColumn):
            return dict(pairs)
        return [{"key": key, "value": each} for key, each in pairs]
    return value


def parsed(text):
    """The value that Python's json reads, with Decimals in place of floats."""
    return json.loads(text, parse_float=Decimal)


def same(found, expected):
    """Numbers compare by value, FLOAT by what it is as a float of 32 bits."""
    if isinstance(expected, float):
        return float(found) == expected or pa.scalar(float(found), pa.float32()).as_py() == expected
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            same(found[name], expected[name]) for name in expected
        )
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == expected and isinstance(found, bool) == isinstance(expected, bool)


DDL = (
    "id BIGINT NOT NULL, n TINYINT, f FLOAT, d DOUBLE, dec DECIMAL(5,2), s STRING, b BINARY,"
    " day DATE, at TIMESTAMP, ntz TIMESTAMP_NTZ, i INTERVAL DAY TO SECOND, a ARRAY<INT>,"
    " st STRUCT<x: INT, y: STRING>, m MAP<STRING, INT>, im MAP<INT, DOUBLE>, ok BOOLEAN"
)
