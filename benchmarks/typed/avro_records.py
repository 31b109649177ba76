"""How fast Avro records become Arrow columns, and columns of another schema: `bench codec --avro`.

The records are taxi rides of 20 mixed columns, 483 bytes as JSON and 228 as Avro: every field is a
union with null, as Spark's to_avro writes it. They are decoded by all columns and by two of them,
and read by a schema that has promoted, renamed, left out and added fields.
"""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from storage_engine.core.schemas.avro.parse import parse_avro_schema
from storage_engine.core.schemas.json_text import JsonObject, JsonValue

if TYPE_CHECKING:
    import pyarrow as pa

_DISTINCT = 10_000
"""The records that fastavro writes, which needs half a second for them; more are these again."""
_TWO = ("id", "fare")
_PLAIN = {
    "int64": "long",
    "int32": "int",
    "double": "double",
    "string": "string",
    "bool": "boolean",
}

COLUMNS = ("step", "by", "records/s", "MB/s", "of copy", "of fastavro")


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroResult:
    """The rate of one step."""

    step: str
    by: str
    records_per_s: int
    megabytes_per_s: int
    ratio_to_copy: float
    ratio_to_fastavro: float


def measure(records: int, rounds: int) -> list[AvroResult]:
    """Return the rate of each step; needs the package's extra `dev`."""
    import fastavro
    import numpy as np
    import pyarrow as pa

    from storage_engine.protocol.avro.resolve import Resolver

    written = _ride_schema()
    parsed = fastavro.parse_schema(written)
    distinct = _records(written)
    repeats = -(-records // _DISTINCT)
    bodies = pa.array((distinct * repeats)[:records], pa.binary())
    schema = parse_avro_schema(json.dumps(written))
    every, two = Resolver(schema, schema), Resolver(schema, schema, _TWO)
    evolved = Resolver(schema, parse_avro_schema(json.dumps(_evolved(written))))
    decoded = every.decode(bodies)
    if decoded.damaged or decoded.batch.column("fare")[0].as_py() != _fare(written, distinct[0]):
        raise AssertionError("the columns are not those that fastavro reads")
    size = bodies.buffers()[2].size
    sources = [np.ones(size, np.uint8), np.ones(decoded.batch.nbytes, np.uint8)]
    targets = [np.empty_like(source) for source in sources]

    def copy() -> None:
        for target, source in zip(targets, sources, strict=True):
            np.copyto(target, source)

    def read_by_fastavro() -> None:
        for body in distinct:
            fastavro.schemaless_reader(BytesIO(body), parsed, None)

    def columns_by(resolver: "Resolver") -> Callable[[], None]:
        def decode() -> None:
            resolver.decode(bodies)

        return decode

    steps = [
        ("copy", "memcpy", records, copy),
        ("decode, all of 20", "headrace", records, columns_by(every)),
        ("decode, 2 of 20", "headrace", records, columns_by(two)),
        ("decode and resolve, all", "headrace", records, columns_by(evolved)),
        ("decode, all of 20", "fastavro", _DISTINCT, read_by_fastavro),
    ]
    rates = [_rate(count, step, rounds) for _, _, count, step in steps]
    return [
        AvroResult(
            step=step,
            by=by,
            records_per_s=round(rate),
            megabytes_per_s=round(rate * size / records / 1e6),
            ratio_to_copy=round(rate / rates[0], 3),
            ratio_to_fastavro=round(rate / rates[-1], 1),
        )
        for (step, by, _, _), rate in zip(steps, rates, strict=True)
    ]


def _rate(count: int, step: Callable[[], None], rounds: int) -> float:
    times = []
    for turn in range(rounds + 1):
        started = time.process_time()
        step()
        if turn:
            times.append(time.process_time() - started)
    return count / max(statistics.median(times), 1e-9)


def _fare(schema: JsonObject, body: bytes) -> float:
    import fastavro

    found = fastavro.schemaless_reader(BytesIO(body), schema, None)
    assert isinstance(found, dict)
    fare = found["fare"]
    assert isinstance(fare, float)
    return fare


def _records(schema: JsonObject) -> list[bytes]:
    import fastavro

    from benchmarks.typed.columns import make_rows

    parsed = fastavro.parse_schema(schema)
    found = []
    for row in make_rows(0, _DISTINCT).to_pylist():
        target = BytesIO()
        fastavro.schemaless_writer(target, parsed, row)
        found.append(target.getvalue())
    return found


def _ride_schema() -> JsonObject:
    from benchmarks.typed.columns import SCHEMA

    return _record("Ride", list(SCHEMA))


def _record(name: str, fields: "list[pa.Field]") -> JsonObject:
    found: list[JsonValue] = [
        {"name": each.name, "type": [_type(each.type, each.name), "null"]} for each in fields
    ]
    return {"type": "record", "name": name, "fields": found}


def _type(kind: "pa.DataType", name: str) -> JsonValue:
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if pa.types.is_decimal(kind):
        digits: JsonObject = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    if pa.types.is_list(kind):
        return {"type": "array", "items": [_type(kind.value_type, name), "null"]}
    if pa.types.is_struct(kind):
        return _record(name, list(kind))
    return _PLAIN[str(kind)]


def _evolved(written: JsonObject) -> JsonObject:
    """Return a schema in which `vendor` is a long, `meter` a double, `code` has another name,
    `note` is gone and `tariff` is new."""
    fields = written["fields"]
    assert isinstance(fields, list)
    changed: dict[str, JsonObject] = {
        "vendor": {"name": "vendor", "type": ["long", "null"]},
        "meter": {"name": "meter", "type": ["double", "null"]},
        "code": {"name": "ride", "aliases": ["code"], "type": ["string", "null"]},
    }
    kept: list[JsonValue] = []
    for field in fields:
        assert isinstance(field, dict)
        name = field["name"]
        assert isinstance(name, str)
        if name != "note":
            kept.append(changed.get(name, field))
    return {**written, "fields": [*kept, {"name": "tariff", "type": "string", "default": "day"}]}
