"""Keys and values of one topic, read through the schema registry, as they are shown.

A value that can't be read is shown as its bytes, with the reason in a line. Source: R-PAGE6.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace_console.cluster.registry_upstream import (
    AWAY,
    Place,
    RegistryReader,
    RegistryUpstream,
)
from headrace_console.problem import ConsoleError
from headrace_console.records.shown_values import hexadecimal, shown_value
from storage_engine.client.framed_values.framed_json import JsonValues
from storage_engine.core.printable import printable
from storage_engine.protocol.avro.framing import cut
from storage_engine.protocol.records.record_decoder import DecodedRecords
from storage_engine.tools.document import Document

PIECE_BYTES = 1 << 20
"""The bytes of values that a search reads at once."""
_MOST_REASON = 300


@dataclass(frozen=True, slots=True)
class ReadValues:
    """Keys or values, read."""

    data: list[bytes | None]
    json: JsonValues
    places: dict[int, Place]
    """By schema id."""

    def text(self, row: int) -> str | None:
        """The JSON of a key or value; None where it was not read."""
        found: str | None = self.json.texts[row].as_py()
        return found

    def shown(self, row: int, most_chars: int, *, pretty: bool) -> Document | None:
        """Return the document of a key or value; None for null. With `pretty` that of one that was
        read has its bytes, too."""
        data = self.data[row]
        text = None if data is None else self.text(row)
        if data is None or text is None:
            document = shown_value(data, most_chars, pretty=pretty)
        else:
            document = shown_value(text.encode(), most_chars, pretty=pretty)
            assert document is not None
            document["bytes"] = len(data)
            if pretty:
                document["raw"] = hexadecimal(data, most_chars)
        schema_id = int(self.json.ids[row])
        if document is not None and schema_id >= 0:
            document["schema"] = self._schema(row, schema_id)
        return document

    def _schema(self, row: int, schema_id: int) -> Document:
        place = self.places.get(schema_id)
        why = self.json.reasons.get(row)
        return {
            "id": schema_id,
            "subject": None if place is None else place[0],
            "version": None if place is None else place[1],
            "others": 0 if place is None else place[2],
            "why": None if why is None else printable(why)[:_MOST_REASON],
        }


class SchemaValues:
    """Reads for one principal."""

    def __init__(self, registry: RegistryUpstream, topic: str) -> None:
        self._registry = registry
        self._topic = topic

    def read(
        self, column: pa.Array, part: str, is_over: Callable[[], bool] = lambda: False
    ) -> ReadValues:
        """Read keys or values; `part`: which they are."""

        def work(reader: RegistryReader) -> ReadValues:
            found = reader.values.read(column, is_over=is_over)
            return ReadValues(column.to_pylist(), found, self._places(reader, found, part))

        try:
            return self._registry.read(work)
        except ConsoleError as error:
            return _unread(column, str(error))

    def _places(self, reader: RegistryReader, found: JsonValues, part: str) -> dict[int, Place]:
        places: dict[int, Place] = {}
        for schema_id in filter(reader.values.knows, np.unique(found.ids).tolist()):
            try:
                place = reader.place_of(schema_id, f"{self._topic}-{part}")
            except AWAY:
                # The values are there: only the names of their subjects are missing.
                break
            if place is not None:
                places[schema_id] = place
        return places

    def texts(self, column: pa.Array, is_over: Callable[[], bool]) -> tuple[pa.Array, str | None]:
        """Return the JSON of each key or value as a pa.BinaryArray, null where it was not read; and
        why the first one was not that should have been."""
        try:
            found = self._registry.read(lambda reader: reader.values.read(column, is_over=is_over))
        except ConsoleError as error:
            return pa.nulls(len(column), pa.binary()), str(error)
        why = found.reasons[min(found.reasons)] if found.reasons else None
        return found.texts.cast(pa.binary()), why


def _unread(column: pa.Array, why: str) -> ReadValues:
    ids = cut(column).ids
    reasons = dict.fromkeys(np.flatnonzero(ids >= 0).tolist(), why)
    found = JsonValues(texts=pa.nulls(len(column), pa.string()), ids=ids, reasons=reasons)
    return ReadValues(column.to_pylist(), found, {})


def pieces(records: DecodedRecords) -> Iterator[DecodedRecords]:
    """Cut records into pieces of PIECE_BYTES, or of one record."""
    lengths = pc.fill_null(pc.binary_length(records.values), 0).to_numpy()
    ends = np.cumsum(lengths, dtype=np.int64)
    first, count = 0, len(records)
    while first < count:
        before = int(ends[first - 1]) if first else 0
        full = int(np.searchsorted(ends, before + PIECE_BYTES, side="right"))
        stop = max(first + 1, min(full, count))
        yield _slice(records, first, stop - first)
        first = stop


def _slice(records: DecodedRecords, first: int, count: int) -> DecodedRecords:
    return DecodedRecords(
        keys=records.keys.slice(first, count),
        values=records.values.slice(first, count),
        offsets=records.offsets.slice(first, count),
        timestamps_ms=records.timestamps_ms.slice(first, count),
        timestamp_types=records.timestamp_types.slice(first, count),
        headers=None if records.headers is None else records.headers.slice(first, count),
    )
