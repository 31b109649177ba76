"""The one text of an Avro schema, by which two are the same.

Attributes stand in the order of Avro's Java library; documentation, defaults, aliases and other
attributes count, white space and the writing of names and types do not. A normalized text leaves
out of account what means nothing, too: the order of aliases and of other attributes, an empty
documentation of a type, a scale of 0, and whether the default of a double is 1 or 1.0.

Source: Confluent's documentation of schema normalization.
"""

import math
from collections.abc import Iterable

from storage_engine.core.schemas.avro import schema as avro
from storage_engine.core.schemas.json_text import JsonObject, JsonValue, compact_json, sorted_json


def canonical_text(schema: avro.AvroSchema, *, normalize: bool = False) -> str:
    return compact_json(_CanonicalWriter(normalize=normalize).type(schema.root, ""))


class _CanonicalWriter:
    def __init__(self, *, normalize: bool) -> None:
        self._normalize = normalize

    def type(self, avro_type: avro.AvroType, namespace: str) -> JsonValue:
        """Return the JSON of a type inside a definition of `namespace`."""
        match avro_type:
            case avro.Primitive(name=name, properties=properties):
                return {"type": name, **self._properties(properties)} if properties else name
            case avro.NamedReference(full_name=full_name):
                return _within(full_name, namespace)
            case avro.Union(branches=branches):
                return [self.type(each, namespace) for each in branches]
            case avro.Array(items=items, properties=properties):
                inner = self.type(items, namespace)
                return {"type": "array", "items": inner, **self._properties(properties)}
            case avro.Map(values=values, properties=properties):
                inner = self.type(values, namespace)
                return {"type": "map", "values": inner, **self._properties(properties)}
            case _:
                return self._named(avro_type, namespace)

    def _named(self, named: avro.NamedType, namespace: str) -> JsonObject:
        found: JsonObject = {"type": "fixed", "name": named.name}
        if named.namespace != namespace:
            found["namespace"] = named.namespace
        if named.doc or (named.doc is not None and not self._normalize):
            found["doc"] = named.doc
        match named:
            case avro.Record(fields=fields):
                found["type"] = "error" if named.is_error else "record"
                found["fields"] = [self._field(each, named.namespace) for each in fields]
            case avro.Enum(symbols=symbols):
                found["type"] = "enum"
                found["symbols"] = [*symbols]
                if named.default is not None:
                    found["default"] = named.default
            case avro.Fixed(size=size):
                found["size"] = size
        found.update(self._properties(named.properties))
        if named.aliases:
            found["aliases"] = self._ordered(_within(x, named.namespace) for x in named.aliases)
        return found

    def _field(self, field: avro.Field, namespace: str) -> JsonObject:
        found: JsonObject = {"name": field.name, "type": self.type(field.type, namespace)}
        if field.doc is not None:
            found["doc"] = field.doc
        if field.default is not avro.NO_DEFAULT:
            found["default"] = self._default(field.type, field.default)
        if field.order != "ascending":
            found["order"] = field.order
        if field.aliases:
            found["aliases"] = self._ordered(field.aliases)
        found.update(self._properties(field.properties))
        return found

    def _default(self, avro_type: avro.AvroType, value: JsonValue) -> JsonValue:
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if self._normalize:
            if avro.is_floating(avro_type) and type(value) is int:
                return float(value)
            return sorted_json(value)
        return value

    def _ordered(self, texts: Iterable[str]) -> list[JsonValue]:
        return [*sorted(set(texts))] if self._normalize else [*texts]

    def _properties(self, properties: avro.Properties) -> JsonObject:
        if not self._normalize:
            return dict(properties)
        found = {name: sorted_json(properties[name]) for name in sorted(properties)}
        if found.get("logicalType") == "decimal" and found.get("scale") == 0:
            del found["scale"]
        return found


def _within(full_name: str, namespace: str) -> str:
    """Return how a name is written inside a definition of `namespace`."""
    outer, _, name = full_name.rpartition(".")
    if outer == namespace:
        return name
    return full_name if outer else f".{name}"
