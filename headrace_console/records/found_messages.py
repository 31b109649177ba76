"""Records as messages of the API. Only records that are shown become Python objects."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from headrace_console.records.schema_values import ReadValues, SchemaValues
from headrace_console.records.shown_values import LIST_CHARS, shown_cell, shown_text, shown_value
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.column_types import ddl_of
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.dead_letter_headers import OFFSET, PARTITION, REASON, TIMESTAMP, TOPIC
from storage_engine.protocol.records.record_decoder import DecodedRecords
from storage_engine.tools.document import Document

MOST_HEADERS = 50
"""The most headers that are shown of a message."""


class FoundMessage(NamedTuple):
    """A message as it is shown, and its position."""

    partition: int
    offset: int
    timestamp_ms: int
    document: Document


def messages(
    tp: TopicPartition,
    records: DecodedRecords,
    places: Sequence[int],
    *,
    columns: Sequence[str] | None,
    most_chars: int = LIST_CHARS,
    pretty: bool = False,
    schemas: SchemaValues | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> list[FoundMessage]:
    """Return the messages at these places. `columns`: of a typed topic, whose values are JSON.
    `schemas`: what reads keys and values through a registry, until `is_over`."""
    at = pa.array(places, pa.int64())
    keys, values = (column.take(at) for column in (records.keys, records.values))
    read_keys = read_values = None
    if schemas is not None and places:
        read_keys = schemas.read(keys, "key", is_over)
        read_values = schemas.read(values, "value", is_over)
    chosen = (
        column.take(at).to_pylist()
        for column in (
            records.offsets,
            records.timestamps_ms,
            records.timestamp_types,
            records.headers,
        )
    )
    pairs = keys.to_pylist(), values.to_pylist()
    rows = []
    for number, (offset, at_ms, kind, headers, key, value) in enumerate(
        zip(*chosen, *pairs, strict=True)
    ):
        own = [(each["key"], each["value"]) for each in headers or ()]
        row: Document = {
            "partition": tp.partition,
            "offset": offset,
            "timestamp_ms": at_ms,
            "timestamp_type": "append" if kind == 1 else "create",
            "key": _shown(key, read_keys, number, most_chars, pretty=pretty),
            "value": _shown(value, read_values, number, most_chars, pretty=pretty),
            "headers": [
                {"key": shown_text(name), "value": shown_value(data, most_chars)}
                for name, data in own[:MOST_HEADERS]
            ],
            "headers_cut": max(0, len(own) - MOST_HEADERS),
            "row": None,
            "dead_letter": _dead_letter(own),
        }
        if columns is not None:
            text = None if read_values is None else read_values.text(number)
            _add_cells(row, value if text is None else text, columns)
        rows.append(FoundMessage(tp.partition, offset, at_ms, row))
    return rows


def _shown(
    data: bytes | None, read: ReadValues | None, row: int, most_chars: int, *, pretty: bool
) -> Document | None:
    if read is None:
        return shown_value(data, most_chars, pretty=pretty)
    return read.shown(row, most_chars, pretty=pretty)


def _add_cells(row: Document, value: bytes | str | None, columns: Sequence[str]) -> None:
    """Add the columns of a value that a broker or the console has written as JSON."""
    if value is None:
        return
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    cells = [shown_cell(found.get(name)) for name in columns]
    row["row"] = [cell for cell, _ in cells]
    row["row_cut"] = [place for place, (_, is_cut) in enumerate(cells) if is_cut]


def _dead_letter(headers: list[tuple[str | bytes, bytes | None]]) -> Document | None:
    named = {name: value for name, value in headers if isinstance(name, str)}
    if TOPIC not in named:
        return None
    return {
        "topic": shown_text(named[TOPIC]),
        "partition": _number(named.get(PARTITION)),
        "offset": _number(named.get(OFFSET)),
        "timestamp_ms": _number(named.get(TIMESTAMP)),
        "reason": shown_text(named.get(REASON)),
    }


def _number(data: bytes | None) -> int | None:
    text = b"" if data is None else data[:20]
    return int(text) if text.isdigit() and len(text) < 20 else None


def schema_columns(schema: TopicSchema, names: Sequence[str] | None = None) -> list[Document]:
    """Return the columns of a table: `names`, or all that are not hidden."""
    latest = schema.latest
    keys = {column.name for column in schema.key_columns(latest)}
    columns = latest.visible if names is None else [latest.column(name) for name in names]
    return [
        {
            "name": column.name,
            "type": ddl_of(column.type),
            "nullable": column.nullable,
            "key": column.name in keys,
        }
        for column in columns
    ]
