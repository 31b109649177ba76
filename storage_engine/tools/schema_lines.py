"""Records as lines, with keys and values read through a schema registry.

A key or value without the framing of a registry is printed as it is. One that has it and can't be
read ends the command, or has its reason in its JSON document.
"""

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from storage_engine.client.framed_values.framed_json import FramedJson, JsonValues
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import DecodedRecords
from storage_engine.tools.document import Document, Json
from storage_engine.tools.record_text import documents


class SchemaLines:
    """Reads records through one registry."""

    def __init__(self, values: FramedJson) -> None:
        self._values = values

    def plain(self, tp: TopicPartition, records: DecodedRecords) -> tuple[DecodedRecords, str]:
        """The records with texts in the place of what is framed, up to the first one that can't be
        read; and why it can't, or ""."""
        keys, values = self._read(tp, records)
        count, problem = len(records), ""
        for name, column in (("key", keys), ("value", values)):
            row = min(column.reasons, default=count)
            if row < count:
                count, problem = row, _problem(name, column, row, tp, records)
        return (
            DecodedRecords(
                keys=pc.coalesce(keys.texts.cast(pa.binary()), records.keys)[:count],
                values=pc.coalesce(values.texts.cast(pa.binary()), records.values)[:count],
                offsets=records.offsets[:count],
                timestamps_ms=records.timestamps_ms[:count],
                timestamp_types=records.timestamp_types[:count],
                headers=None if records.headers is None else records.headers[:count],
            ),
            problem,
        )

    def json(self, tp: TopicPartition, records: DecodedRecords) -> bytes:
        """One JSON document per line."""
        place: Document = {"topic": tp.topic, "partition": tp.partition}
        columns = dict(zip(("key", "value"), self._read(tp, records), strict=True))
        lines = [
            f"{{{','.join(_members(row, {**place, **document}, columns))}}}\n"
            for row, document in enumerate(documents(records))
        ]
        return "".join(lines).encode("utf-8", "surrogatepass")

    def _read(self, tp: TopicPartition, records: DecodedRecords) -> tuple[JsonValues, JsonValues]:
        return self._values.read(records.keys), self._values.read(records.values)


def _problem(
    name: str, column: JsonValues, row: int, tp: TopicPartition, records: DecodedRecords
) -> str:
    return (
        f"the {name} of {tp} at offset {records.offsets[row].as_py()}, with schema id "
        f"{column.ids[row]}, can't be read: {column.reasons[row]}; --json prints such records with "
        "their bytes and the reason"
    )


def _members(row: int, document: Document, columns: dict[str, JsonValues]) -> Iterator[str]:
    """The members of a record's document. A text that was read is put in as it is, so that no digit
    of its numbers is lost."""
    for name, value in document.items():
        whole = name.removesuffix("_base64")
        column = columns.get(whole)
        if column is None or column.ids[row] < 0:
            yield _member(name, value)
            continue
        text = column.texts[row].as_py()
        if text is None:
            yield _member(name, value)
        elif name == whole:
            yield f"{json.dumps(name)}:{text}"
        if name == whole:
            yield _member(f"{name}_schema_id", int(column.ids[row]))
            if row in column.reasons:
                yield _member(f"{name}_error", column.reasons[row])


def _member(name: str, value: Json) -> str:
    return f"{json.dumps(name)}:{json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
