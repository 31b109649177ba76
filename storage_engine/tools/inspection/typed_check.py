"""Looks into typed batches for `dump-log`: the directory, each column's CRC, values and statistics,
and the rows as JSON.

A segment does not have its topic's schema. Without it the directory and the CRCs are checked, and
columns have numbers in place of names. Nothing is trusted.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from storage_engine.core.errors import KafkaError
from storage_engine.core.typed.column_types import ddl_of
from storage_engine.core.typed.comparisons import Comparison, Literal, Operator, may_match
from storage_engine.core.typed.topic_schema import SchemaColumn, SchemaVersion, TopicSchema
from storage_engine.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from storage_engine.protocol.records.record_batch import HEADER_BYTES, BatchHeader
from storage_engine.protocol.typed.damage import column_name, damaged_columns
from storage_engine.protocol.typed.directory import (
    DICTIONARY,
    HAS_BOUNDS,
    ColumnEntry,
    Directory,
    statistics_of,
)
from storage_engine.protocol.typed.typed_batch import checked_directory
from storage_engine.tools.document import Document, Json

if TYPE_CHECKING:
    import pyarrow as pa

_CODECS = {0: "none", 3: "lz4", 4: "zstd"}


class TypedCheck:
    """One typed batch whose own CRC is right."""

    def __init__(self, header: BatchHeader, batch: memoryview, schema: TopicSchema | None) -> None:
        """`schema` is the topic's; None where it is not given. CorruptRecordError for a directory
        that is damaged, UnknownSchemaVersionError where the schema lacks the batch's version."""
        self._header = header
        self._batch = batch
        self._schema = schema
        self._section = batch[HEADER_BYTES : header.size_in_bytes]
        self._directory = checked_directory(header, batch)
        self._version = None if schema is None else schema.version(self._directory.schema_version)

    def problem(self) -> str | None:
        """Return the first problem of a column; None when there is none."""
        for entry in damaged_columns(self._section, self._directory):
            return f"the CRC of {self._name(entry.column_id)} does not match"
        if self._version is None:
            return None
        return next(_wrong_values(self._section, self._directory, self._version), None)

    def document(self) -> Document:
        """The directory without its columns."""
        directory = self._directory
        return {
            "topic_id": str(directory.topic_id),
            "schema_version": directory.schema_version,
        }

    def columns(self) -> dict[int, Document]:
        """The columns by their ids, with statistics as far as the types are known."""
        return {entry.column_id: self._column(entry) for entry in self._directory.entries}

    def records(self) -> list[Document] | None:
        """The rows, each as the record that other clients get; None without the schema."""
        if self._schema is None:
            return None
        from storage_engine.protocol.typed.json_rows import as_json_batches
        from storage_engine.tools.record_text import describe_records

        plain = memoryview(as_json_batches(self._batch, self._header, self._schema))
        return describe_records(plain, self._header)

    def _name(self, column_id: int) -> str:
        column = self._of_schema(column_id)
        return column_name(column_id) if column is None else f"column '{column.name}'"

    def _of_schema(self, column_id: int) -> SchemaColumn | None:
        return None if self._version is None else self._version.by_id.get(column_id)

    def _column(self, entry: ColumnEntry) -> Document:
        document: Document = {
            "id": entry.column_id,
            "stored_bytes": entry.stored_bytes,
            "raw_bytes": entry.raw_bytes,
            "codec": _CODECS[entry.codec],
            "encoding": "dictionary" if entry.encoding == DICTIONARY else "plain",
            "nulls": entry.null_count,
        }
        column = self._of_schema(entry.column_id)
        if column is None:
            return document
        found = statistics_of(entry, column.type, self._directory.rows)
        document |= {"name": column.name, "type": ddl_of(column.type)}
        if found is not None and entry.flags & HAS_BOUNDS:
            document |= {"minimum": _text(found.minimum), "maximum": _text(found.maximum)}
        return document


def _wrong_values(
    section: memoryview, directory: Directory, version: SchemaVersion
) -> Iterator[str]:
    """Yield the problems of columns that can't be decoded or contradict the directory."""
    from storage_engine.protocol.typed.arrays.ipc_message import column_kind
    from storage_engine.protocol.typed.arrow_types import SYSTEM_TYPES, arrow_type
    from storage_engine.protocol.typed.column_codec import load_column

    for entry in directory.entries:
        column = version.by_id.get(entry.column_id)
        if column is None and entry.column_id not in SYSTEM_TYPES:
            yield f"it has a column {entry.column_id}, which version {version.version} has not"
            continue
        kind = SYSTEM_TYPES[entry.column_id] if column is None else arrow_type(column.type)
        start = directory.size + entry.place
        block = section[start : start + entry.stored_bytes]
        name = column_name(entry.column_id) if column is None else f"column '{column.name}'"
        try:
            array = load_column(
                block, entry, column_kind(kind), directory.rows, max_bytes=MAX_DECOMPRESSED_BYTES
            )
            if column is not None:
                yield from _wrong_statistics(name, array, entry, column)
        except KafkaError as error:
            yield f"{name}: {error}"


def _wrong_statistics(
    name: str, array: "pa.Array", entry: ColumnEntry, column: SchemaColumn
) -> Iterator[str]:
    """Yield a problem for each value whose batch a filter would leave out."""
    told = statistics_of(entry, column.type, len(array))
    for value in _extremes(array):
        comparison = Comparison(column.column_id, Operator.EQ, (value,))
        if not may_match(comparison, column.type, told):
            yield f"{name} has the value {value!r}, which its statistics leave out"


def _extremes(array: "pa.Array") -> Iterator[Literal]:
    """The least and the largest value, and NaN where there is one; none of a nested type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_nested(kind):
        return
    if pa.types.is_date32(kind):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        array = array.view(pa.int64())
    elif pa.types.is_floating(kind) and pc.any(pc.is_nan(array)).as_py():
        yield math.nan
        array = array.filter(pc.invert(pc.is_nan(array)))
    found = pc.min_max(array)
    for value in (found["min"].as_py(), found["max"].as_py()):
        if value is not None:
            yield value


def _text(value: Literal | None) -> Json:
    """Return a minimum or maximum in a form that JSON can show."""
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value) if not isinstance(value, float) or not math.isfinite(value) else value
