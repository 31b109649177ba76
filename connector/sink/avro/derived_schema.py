"""The Avro schema of the columns of rows, as Spark's `to_avro` makes it, but for nulls: each field,
element and value is a union of null, first, and its type, and null is the default of a field. So a
schema with one column more is compatible with those before it.

A record is named after its column, within the name of the record around it; the outermost one is
`topLevelRecord`. Pure.
"""

import json
import re
from typing import TypeAlias

from connector.errors import OptionError
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.column_types import ddl_of

ROOT = "topLevelRecord"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Json: TypeAlias = "int | str | list[Json] | dict[str, Json] | None"

_PLAIN: dict[type[object], Json] = {
    types.BooleanColumn: "boolean",
    types.StringColumn: "string",
    types.BinaryColumn: "bytes",
    types.DateColumn: {"type": "int", "logicalType": "date"},
}


def derived_schema(given: types.ColumnType, part: str) -> str:
    """The schema as text, of a value, whose type is a struct of all columns, or of a key.
    OptionError for a column that Avro has no name or type for."""
    if part == "key":
        return json.dumps(_type(given, "key", ""))
    return json.dumps(_type(given, ROOT, ""))


def _type(given: types.ColumnType, name: str, namespace: str) -> Json:
    match given:
        case types.IntegerColumn(bits):
            return "long" if bits > 32 else "int"
        case types.FloatColumn(bits):
            return "float" if bits == 32 else "double"
        case types.TimestampColumn(with_zone):
            unit = "timestamp-micros" if with_zone else "local-timestamp-micros"
            return {"type": "long", "logicalType": unit}
        case types.DecimalColumn(precision, scale):
            return {
                "type": "fixed",
                "name": "fixed",
                "namespace": f"{namespace}.{name}" if namespace else name,
                "size": _least_bytes(precision),
                "logicalType": "decimal",
                "precision": precision,
                "scale": scale,
            }
        case types.ArrayColumn(element, _):
            return {"type": "array", "items": _nullable(element, name, namespace)}
        case types.MapColumn(types.StringColumn(), value, _):
            return {"type": "map", "values": _nullable(value, name, namespace)}
        case types.StructColumn(fields):
            return _record(fields, name, namespace)
    found = _PLAIN.get(type(given))
    if found is None:
        raise OptionError(
            "BAD_COLUMN",
            f"the column '{name}' is {ddl_of(given)}, which Avro does not have: cast it, such as "
            "an interval to BIGINT, or the keys of a map to STRING",
        )
    return found


def _record(fields: tuple[types.StructColumnField, ...], name: str, namespace: str) -> Json:
    inner = f"{namespace}.{name}" if namespace else name
    found: list[Json] = []
    for each in fields:
        if not _NAME.fullmatch(each.name):
            raise OptionError(
                "BAD_COLUMN",
                f"the column '{each.name}' can't be a field of Avro, whose names are letters, "
                "digits and underscores: rename it",
            )
        found.append(
            {"name": each.name, "type": _nullable(each.type, each.name, inner), "default": None}
        )
    record: dict[str, Json] = {"type": "record", "name": name}
    if namespace:
        record["namespace"] = namespace
    return {**record, "fields": found}


def _nullable(given: types.ColumnType, name: str, namespace: str) -> Json:
    return ["null", _type(given, name, namespace)]


def _least_bytes(precision: int) -> int:
    """The bytes that hold every number of so many digits."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8
