"""The cost of records of clients that know no columns, for a broker: `bench codec --typed`.

The rows are taxi rides of 20 mixed columns, all nullable, as records of JSON and of Avro. Those of
a batch become columns, as where a client produces them, and columns become records, as where one
consumes them. Beside them stands what a batch costs whose records are only looked at.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

COLUMNS = ("rows", "step", "format", "us/batch", "us/row", "B/row")

SIZES = (1_000, 10)
"""The rows of a batch."""
_MOST_BATCHES = 200
_TOPIC_ID = UUID(int=7)
_SCHEMA_ID = 7

_Step = Callable[[], bytearray | None]
"""Does its work once; its result is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignResult:
    """The processor time of one step; `bytes_per_row` are those of the batch that it reads."""

    rows: int
    step: str
    by: str
    us_per_batch: int
    us_per_row: float
    bytes_per_row: int


def measure(records: int, rounds: int) -> list[ForeignResult]:
    """Return the best of `rounds` for each step, with so many records at most."""
    return [
        each
        for rows in SIZES
        for each in _measured(rows, max(1, min(records // rows, _MOST_BATCHES)), rounds)
    ]


def _measured(rows: int, batches: int, rounds: int) -> list[ForeignResult]:
    from benchmarks.typed.columns import ddl, make_rows
    from storage_engine.core.schemas.avro.parse import parse_avro_schema
    from storage_engine.core.typed.avro_text import avro_text
    from storage_engine.core.typed.ddl import parse_ddl
    from storage_engine.core.typed.topic_schema import new_schema
    from storage_engine.protocol.records.record_batch import Codec, read_header
    from storage_engine.protocol.records.record_decoder import decode_batches
    from storage_engine.protocol.typed.avro_columns import typed_from_avro
    from storage_engine.protocol.typed.avro_rows import as_avro_batches
    from storage_engine.protocol.typed.json_columns import typed_from_json
    from storage_engine.protocol.typed.json_rows import as_json_batches
    from storage_engine.protocol.typed.typed_encoder import iter_typed

    schema = new_schema(parse_ddl(ddl()))
    version = schema.latest
    writers = {_SCHEMA_ID: parse_avro_schema(avro_text(schema, version, "rides"))}
    (encoded,) = iter_typed(make_rows(0, rows), schema, version, _TOPIC_ID, now_ms=0)
    typed, typed_header = encoded.data, read_header(encoded.data)
    avro = memoryview(as_avro_batches(typed, typed_header, schema, _SCHEMA_ID))
    json = memoryview(as_json_batches(typed, typed_header, schema))
    avro_header, json_header = read_header(avro), read_header(json)

    def from_json() -> bytearray:
        return typed_from_json(json, json_header, schema, _TOPIC_ID, Codec.NONE)

    def from_avro() -> bytearray:
        return typed_from_avro(avro, avro_header, schema, _TOPIC_ID, Codec.NONE, writers)

    def look() -> None:
        decode_batches([avro])

    if from_avro() != from_json():
        raise AssertionError("the columns of the same rows are not the same")
    steps: list[tuple[str, str, memoryview, _Step]] = [
        ("records looked at", "avro", avro, look),
        ("records to columns", "json", json, from_json),
        ("records to columns", "avro", avro, from_avro),
        ("columns to records", "json", typed, lambda: as_json_batches(typed, typed_header, schema)),
        (
            "columns to records",
            "avro",
            typed,
            lambda: as_avro_batches(typed, typed_header, schema, _SCHEMA_ID),
        ),
    ]
    best = _best([step for *_, step in steps], batches, rounds)
    return [
        ForeignResult(
            rows=rows,
            step=name,
            by=by,
            us_per_batch=round(seconds * 1e6),
            us_per_row=round(seconds * 1e6 / rows, 2),
            bytes_per_row=round(len(source) / rows),
        )
        for (name, by, source, _), seconds in zip(steps, best, strict=True)
    ]


def _best(steps: list[_Step], batches: int, rounds: int) -> list[float]:
    """Return the least processor time of a batch for each step, which take turns."""
    best = [float("inf")] * len(steps)
    for _ in range(rounds):
        for place, step in enumerate(steps):
            for _ in range(batches):
                started = time.process_time()
                step()
                best[place] = min(best[place], time.process_time() - started)
    return best
