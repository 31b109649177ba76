"""Random evolutions of Avro schemas, and what fastavro reads with writer's and reader's schema."""

from io import BytesIO

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from storage_engine.tests.protocol.avro.avro_samples import Names

_PROMOTED = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}


def without_logical(schema):
    if isinstance(schema, list):
        return [without_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: without_logical(each) if key in ("type", "items", "values") else each
        for key, each in schema.items()
        if key not in ("logicalType", "precision", "scale")
    }
    if "fields" in kept:
        kept["fields"] = [without_logical(each) for each in kept["fields"]]
    return kept


class Evolution:
    def __init__(self, draw):
        self._draw = draw
        self._names = Names()

    def evolved(self, schema, nested=True):
        draw = self._draw
        if isinstance(schema, list):
            return self._union(schema)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if nested and draw(st.integers(0, 9)) == 0:
            inner = self.evolved(schema, nested=False)
            return inner if inner == "null" else draw(st.permutations(["null", inner]))
        if kind in _PROMOTED and draw(st.integers(0, 3)) == 0:
            return draw(st.sampled_from(_PROMOTED[kind]))
        if kind == "array":
            return {"type": "array", "items": self.evolved(schema["items"])}
        if kind == "map":
            return {"type": "map", "values": self.evolved(schema["values"])}
        if kind == "enum":
            symbols = draw(st.lists(st.sampled_from("ABCDEFG"), min_size=1, unique=True))
            default = {"default": symbols[0]} if draw(st.booleans()) else {}
            return {**schema, "symbols": symbols, **default}
        if kind == "record":
            return self.record(schema)
        return schema

    def _union(self, schema):
        draw = self._draw
        branches = [self.evolved(each, nested=False) for each in draw(st.permutations(schema))]
        kept = [each for each in branches if draw(st.integers(0, 5))]
        found: dict[tuple[str, str], object] = {}
        for each in kept:
            kind = each["type"] if isinstance(each, dict) else each
            named = kind in ("record", "enum", "fixed")
            found.setdefault((kind, each["name"] if named else ""), each)
        left = list(found.values()) or ["null"]
        return left[0] if len(left) == 1 and draw(st.booleans()) else left

    def record(self, schema):
        draw = self._draw
        fields = []
        for field in draw(st.permutations(schema["fields"])):
            change = draw(st.integers(0, 6))
            if change == 0:
                continue
            name = {"name": field["name"]}
            if change == 1:
                name = {"name": self._names.next("renamed"), "aliases": [field["name"]]}
            fields.append({**name, "type": self.evolved(field["type"])})
        if draw(st.booleans()):
            fields.append(draw(st.sampled_from(_ADDED)) | {"name": self._names.next("added")})
        renamed = {}
        if draw(st.booleans()):
            renamed = {"name": self._names.next("Renamed"), "aliases": [schema["name"]]}
        return {**schema, **renamed, "fields": fields}


_ADDED = [
    {"type": "long", "default": -5},
    {"type": "string", "default": "é"},
    {"type": ["null", "int"], "default": None},
    {"type": ["int", "null"], "default": 7},
    {"type": "double", "default": 1.5},
    {"type": "boolean", "default": True},
    {"type": {"type": "array", "items": "int"}, "default": [1, 2]},
    {"type": {"type": "map", "values": "string"}, "default": {"a": "b"}},
]


def in_one(value, kind):
    """The values of a column as fastavro has them: a union's are those of its one member, and those
    of bytes as texts, since fastavro has defaults in that form."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if names[:2] == ["member0", "member1"]:
            for field in kind:
                if value[field.name] is not None:
                    return in_one(value[field.name], field.type)
            raise AssertionError("no member has a value")
        return {field.name: in_one(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [in_one(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return {key: in_one(each, kind.item_type) for key, each in value}
    return in_text(value)


def in_text(value):
    if isinstance(value, dict):
        return {key: in_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [in_text(each) for each in value]
    if isinstance(value, bytes):
        return ["bytes", value.decode("latin-1")]
    if isinstance(value, float | int) and not isinstance(value, bool):
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    return value


def read_by_fastavro(writer, reader, body):
    """The value, or None where it does not fit the reader's schema."""
    try:
        return fastavro.schemaless_reader(
            BytesIO(body), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
        )
    except (fastavro.read.SchemaResolutionError, UnicodeDecodeError):
        return None
