"""The default of a field as an array of one value: encoded as Avro, and decoded."""

import struct

import numpy as np
import pyarrow as pa

from storage_engine.core.schemas.avro import schema as avro
from storage_engine.core.schemas.avro.defaults import misfit
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.json_text import JsonObject, JsonValue
from storage_engine.protocol.avro.compiled import reader_of
from storage_engine.protocol.avro.record_bytes import RecordBytes, Rows


def default_array(schema: avro.AvroSchema, field: avro.Field) -> pa.Array:
    """Return the default of a field that has one; InvalidSchemaError when it does not fit the
    field's type."""
    assert not isinstance(field.default, avro.NoDefault)
    why = misfit(field.type, field.default, schema.names)
    if why is not None:
        raise InvalidSchemaError(f"the default of '{field.name}' does not fit: {why}")
    data = np.frombuffer(_encoded(schema, field.type, field.default), np.uint8)
    source = RecordBytes(data, np.array([max(len(data), 1)]))
    ends = np.array([source.first + len(data)])
    rows = Rows(source, ends, np.zeros(1, np.int64))
    array, after = reader_of(schema, field.type).read(rows, np.array([source.first]), None)
    if source.broken.any() or after[0] != ends[0]:
        raise InvalidSchemaError(f"the default of '{field.name}' does not fit its logical type")
    return array


def _encoded(schema: avro.AvroSchema, avro_type: avro.AvroType, value: JsonValue) -> bytes:
    found = schema.resolve(avro_type)
    match found, value:
        case avro.Union(), _:
            return _of_union(schema, found, value)
        case avro.Record(), dict():
            return b"".join(
                _encoded(schema, each.type, _part(value, each)) for each in found.fields
            )
        case avro.Array(), list():
            items = b"".join(_encoded(schema, found.items, each) for each in value)
            return _block(len(value), items)
        case avro.Map(), dict():
            entries = b"".join(
                _sized(key.encode()) + _encoded(schema, found.values, each)
                for key, each in value.items()
            )
            return _block(len(value), entries)
        case avro.Enum(), str():
            return _varint(found.symbols.index(value))
        case avro.Fixed(), str():
            return value.encode("latin-1")
        case avro.Primitive(), _:
            return _of_primitive(found.name, value)
    raise AssertionError("the default does not fit")


def _of_union(schema: avro.AvroSchema, union: avro.Union, value: JsonValue) -> bytes:
    for number, branch in enumerate(union.branches):
        if misfit(branch, value, schema.names) is None:
            return _varint(number) + _encoded(schema, branch, value)
    raise AssertionError("the default fits no branch")


def _part(value: JsonObject, field: avro.Field) -> JsonValue:
    """Return a field of a record that is a default: it may be left out where it has its own."""
    if field.name in value:
        return value[field.name]
    assert not isinstance(field.default, avro.NoDefault)
    return field.default


def _of_primitive(name: avro.PrimitiveName, value: JsonValue) -> bytes:
    match name, value:
        case "boolean", bool():
            return bytes([value])
        case (("int" | "long"), int()):
            return _varint(value)
        case "float", (int() | float()):
            # A number that is too large for a float is infinite, as in Java.
            return np.array([value], np.float64).astype("<f4").tobytes()
        case "double", (int() | float()):
            return struct.pack("<d", value)
        case "bytes", str():
            return _sized(value.encode("latin-1"))
        case "string", str():
            return _sized(value.encode())
        case _:
            return b""


def _block(count: int, items: bytes) -> bytes:
    return _varint(count) + items + _varint(0) if count else _varint(0)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    encoded = (number << 1) ^ (number >> 63)
    found = bytearray()
    while encoded > 0x7F:
        found.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    found.append(encoded)
    return bytes(found)
