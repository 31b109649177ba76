"""Random Avro schemas and values, bytes by a naive encoder, and columns as plain values."""

import json
import struct
from contextlib import contextmanager
from decimal import Context, Decimal
from io import BytesIO
from random import Random
from unittest.mock import patch

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

from storage_engine.core.schemas.avro import schema as avro
from storage_engine.core.schemas.avro.parse import parse_avro_schema
from storage_engine.protocol.avro import list_reader

_EXACT = Context(prec=60)
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 0},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 20},
)


class Names:
    """Gives names that were not given before."""

    def __init__(self):
        self._count = 0

    def next(self, prefix):
        self._count += 1
        return f"{prefix}{self._count}"


@st.composite
def record_schemas(draw, most_fields=6, depth=3):
    """The JSON of a record with all kinds of fields."""
    names = Names()
    return _record(draw, names, draw(st.integers(1, most_fields)), depth)


def _record(draw, names, count, depth):
    fields = [{"name": names.next("f"), "type": any_type(draw, names, depth)} for _ in range(count)]
    return {"type": "record", "name": names.next("R"), "fields": fields}


def any_type(draw, names, depth):
    kind = draw(st.integers(0, 13 if depth else 7))
    if kind <= 3:
        return draw(st.sampled_from(PRIMITIVES))
    if kind == 4:
        return dict(draw(st.sampled_from(LOGICAL)))
    if kind == 5:
        symbols = draw(st.lists(st.sampled_from("ABCDEF"), min_size=1, unique=True))
        return {"type": "enum", "name": names.next("E"), "symbols": symbols}
    if kind == 6:
        return {"type": "fixed", "name": names.next("X"), "size": draw(st.integers(0, 20))}
    if kind == 7:
        size = draw(st.integers(1, 20))
        return _decimal_fixed(names, size)
    if kind <= 9:
        return {"type": "array", "items": any_type(draw, names, depth - 1)}
    if kind == 10:
        return {"type": "map", "values": any_type(draw, names, depth - 1)}
    if kind == 11:
        return _record(draw, names, draw(st.integers(0, 4)), depth - 1)
    return union(draw, names, depth - 1)


def _decimal_fixed(names, size):
    precision = min(38, len(str(2 ** (8 * size - 1) - 1)) - 1)
    name = names.next("D")
    if precision < 1:
        return {"type": "fixed", "name": name, "size": size}
    of = {"logicalType": "decimal", "precision": precision, "scale": precision // 2}
    return {"type": "fixed", "name": name, "size": size, **of}


def union(draw, names, depth):
    kinds = draw(st.lists(st.sampled_from(PRIMITIVES), unique=True, max_size=3))
    branches = [each if draw(st.booleans()) else logical(draw, each) for each in kinds]
    if not branches or draw(st.booleans()):
        other = any_type(draw, names, depth)
        while isinstance(other, list) or kind_of(other) in kinds:
            other = any_type(draw, names, depth)
        branches.append(other)
    return branches


def logical(draw, name):
    found = [each for each in LOGICAL if each["type"] == name]
    return dict(draw(st.sampled_from(found))) if found else name


def kind_of(schema):
    return schema["type"] if isinstance(schema, dict) else schema


def parsed(schema):
    return parse_avro_schema(json.dumps(schema), new=False)


_INTS = st.integers(-(2**31), 2**31 - 1) | st.integers(-70, 70)
_LONGS = st.integers(-(2**63), 2**63 - 1) | _INTS
_MILLIS = st.integers(-(2**63) // 1000 + 1, 2**63 // 1000 - 1) | _INTS
_PLAIN = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": _INTS,
    "long": _LONGS,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=12),
}


def values(tree, avro_type=None):
    """A strategy of values: those of unions are (number of the branch, value), bytes are bytes, and
    all else as fastavro reads it without logical types."""
    found = tree.resolve(tree.root if avro_type is None else avro_type)
    match found:
        case avro.Primitive() | avro.Fixed() if isinstance(found.logical, avro.Decimal):
            bound = 10**found.logical.precision - 1
            size = found.size if isinstance(found, avro.Fixed) else None
            return st.integers(-bound, bound).map(lambda number: _unscaled(number, size))
        case avro.Primitive():
            is_millis = found.logical is not None and "stamp-millis" in found.logical.value
            return _MILLIS if is_millis else _PLAIN[found.name]
        case avro.Fixed():
            return st.binary(min_size=found.size, max_size=found.size)
        case avro.Enum():
            return st.sampled_from(found.symbols)
        case avro.Array():
            return st.lists(values(tree, found.items), max_size=4)
        case avro.Map():
            return st.dictionaries(st.text(max_size=4), values(tree, found.values), max_size=3)
        case avro.Record():
            return st.fixed_dictionaries({f.name: values(tree, f.type) for f in found.fields})
        case avro.Union():
            return st.one_of(
                [
                    st.tuples(st.just(number), values(tree, branch))
                    for number, branch in enumerate(found.branches)
                ]
            )


def _unscaled(number, size):
    least = (number.bit_length() + 8) // 8
    return number.to_bytes(least if size is None else size, "big", signed=True)


def varint(number):
    encoded = (number << 1) ^ (number >> 63)
    found = bytearray()
    while encoded > 0x7F:
        found.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    found.append(encoded)
    return bytes(found)


def encoded(tree, value, random=None, avro_type=None):
    """The bytes of a value; with `random` its arrays and maps have several blocks, of which some
    say how many bytes they have."""
    found = tree.resolve(tree.root if avro_type is None else avro_type)
    match found:
        case avro.Primitive():
            return _ENCODED[found.name](value)
        case avro.Fixed():
            return value
        case avro.Enum():
            return varint(found.symbols.index(value))
        case avro.Union():
            number, inner = value
            return varint(number) + encoded(tree, inner, random, found.branches[number])
        case avro.Record():
            parts = (encoded(tree, value[f.name], random, f.type) for f in found.fields)
            return b"".join(parts)
        case avro.Array():
            return _blocks([encoded(tree, each, random, found.items) for each in value], random)
        case avro.Map():
            text = avro.Primitive("string")
            items = [
                encoded(tree, key, random, text) + encoded(tree, each, random, found.values)
                for key, each in value.items()
            ]
            return _blocks(items, random)


_ENCODED = {
    "null": lambda value: b"",
    "boolean": lambda value: bytes([value]),
    "int": varint,
    "long": varint,
    "float": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
    "bytes": lambda value: varint(len(value)) + value,
    "string": lambda value: varint(len(value.encode())) + value.encode(),
}


def _blocks(items, random):
    found = b""
    while items:
        count = len(items) if random is None else random.randint(1, len(items))
        data = b"".join(items[:count])
        sized = random is not None and random.random() < 0.5
        found += varint(-count) + varint(len(data)) + data if sized else varint(count) + data
        items = items[count:]
    return found + b"\0"


def told_apart(schema, names=None):
    """The same schema, with bytes that are the same, without logical types, in which each branch of
    a union is a record `U<number>` of its own, so that fastavro tells which one it read."""
    names = Names() if names is None else names
    if isinstance(schema, list):
        return [
            {
                "type": "record",
                "name": names.next(f"U{number}_"),
                "fields": [{"name": "v", "type": told_apart(each, names)}],
            }
            for number, each in enumerate(schema)
        ]
    if isinstance(schema, str):
        return schema
    changed = {key: each for key, each in schema.items() if key != "logicalType"}
    for key in ("items", "values"):
        if key in schema:
            changed[key] = told_apart(schema[key], names)
    if "fields" in schema:
        changed["fields"] = [
            {**field, "type": told_apart(field["type"], names)} for field in schema["fields"]
        ]
    return changed


def read_by_fastavro(schema, body):
    """The value that fastavro reads, in the form of `values`."""
    options = {"return_record_name": True, "return_record_name_override": False}
    source = BytesIO(body)
    found = fastavro.schemaless_reader(source, fastavro.parse_schema(told_apart(schema)), **options)
    assert source.read() == b""
    return _with_numbers(found)


def _with_numbers(found):
    if isinstance(found, tuple):
        name, record = found
        return int(name[1:].split("_")[0]), _with_numbers(record["v"])
    if isinstance(found, list):
        return [_with_numbers(each) for each in found]
    if isinstance(found, dict):
        return {key: _with_numbers(each) for key, each in found.items()}
    return found


def in_columns(tree, value, avro_type=None):
    """The value that a column has for a value in the form of `values`; times are numbers."""
    found = tree.resolve(tree.root if avro_type is None else avro_type)
    match found:
        case avro.Primitive() | avro.Fixed() if isinstance(found.logical, avro.Decimal):
            number = int.from_bytes(value, "big", signed=True)
            return Decimal(number).scaleb(-found.logical.scale, _EXACT)
        case avro.Primitive() if found.logical is not None:
            return value * 1000 if "stamp-millis" in found.logical.value else value
        case avro.Array():
            return [in_columns(tree, each, found.items) for each in value]
        case avro.Map():
            return [(key, in_columns(tree, each, found.values)) for key, each in value.items()]
        case avro.Record():
            return {f.name: in_columns(tree, value[f.name], f.type) for f in found.fields}
        case avro.Union():
            return _member(tree, found, *value)
        case _:
            return value


def _member(tree, union, number, value):
    others = [b for b in union.branches if tree.resolve(b) != avro.Primitive("null")]
    if union.branches[number] not in others:
        return None
    inner = in_columns(tree, value, union.branches[number])
    if len(others) == 1 or others in _WIDENED or others[::-1] in _WIDENED:
        return inner
    own = others.index(union.branches[number])
    return {f"member{each}": inner if each == own else None for each in range(len(others))}


_WIDENED = [
    [avro.Primitive("int"), avro.Primitive("long")],
    [avro.Primitive("float"), avro.Primitive("double")],
]


def plain_values(array):
    """The values of an array; times are numbers, which Python's may be too small for."""
    kind = _without_times(array.type)
    # Arrow's cast of a list of nulls to its own type makes an array that can't be read.
    return (array if array.type == kind else array.cast(kind)).to_pylist()


def _without_times(kind):
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _without_times(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _without_times(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _without_times(each.type)) for each in kind])
    return kind


def bodies(found):
    return pa.array(found, pa.binary())


def seeded(seed):
    return Random(seed)


@contextmanager
def lists_in_any_way(draw):
    """Lists are read in rounds down to fewer rows than by default, or one by one, with long runs of
    numbers or without."""
    with (
        patch.object(list_reader, "_FEW_ROWS", draw(st.sampled_from([1, 3, 200]))),
        patch.object(list_reader, "_LONG_RUN", draw(st.sampled_from([1, 64]))),
    ):
        yield
