"""Finds the damaged part of a typed batch: header, directory or column. For messages only: whether
a batch is damaged at all follows from its own CRC.

It needs neither Arrow nor the schema, and trusts nothing.
"""

from collections.abc import Iterator

from crc32c import crc32c

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.record_batch import HEADER_BYTES, BatchHeader, BytesLike
from storage_engine.protocol.typed.directory import (
    HEADERS,
    OFFSETS,
    TIMESTAMPS,
    TOMBSTONES,
    ColumnEntry,
    Directory,
    read_directory,
)
from storage_engine.protocol.typed.typed_batch import is_typed

NAMED_MAX = 3
"""The most columns that a message names."""

_SYSTEM_NAMES = {
    OFFSETS: "the column of offset deltas",
    TIMESTAMPS: "the column of timestamps",
    HEADERS: "the column of headers",
    TOMBSTONES: "the column of tombstones",
}


def damaged_part(header: BatchHeader, batch: BytesLike) -> str:
    """Return the end of the message about a batch whose CRC does not match: a colon and the damaged
    part, for a typed batch; nothing for a batch of records."""
    return f": {_damaged_part(batch)}" if is_typed(header) else ""


def _damaged_part(batch: BytesLike) -> str:
    section = memoryview(batch)[HEADER_BYTES:]
    try:
        directory = read_directory(section)
    except CorruptRecordError as error:
        return str(error)
    wrong = [column_name(entry.column_id) for entry in damaged_columns(section, directory)]
    if not wrong:
        return "its header is damaged"
    more = f" and {len(wrong) - NAMED_MAX} more" if len(wrong) > NAMED_MAX else ""
    return f"{', '.join(wrong[:NAMED_MAX])}{more} {'are' if len(wrong) > 1 else 'is'} damaged"


def damaged_columns(section: memoryview, directory: Directory) -> Iterator[ColumnEntry]:
    """Yield the columns of a records section whose CRC does not match."""
    for entry in directory.entries:
        start = directory.size + entry.place
        if crc32c(section[start : start + entry.stored_bytes]) != entry.crc:
            yield entry


def column_name(column_id: int) -> str:
    """Return a column's name in messages; without the schema it is known by its id alone."""
    return _SYSTEM_NAMES.get(column_id, f"column {column_id}")
