"""Offsets and times of a typed batch's rows, without its other columns or a schema."""

from storage_engine.core.typed.topic_schema import SchemaVersion
from storage_engine.protocol.records.record_batch import HEADER_BYTES, BatchHeader, crc_matches
from storage_engine.protocol.records.varints import Ints
from storage_engine.protocol.typed.directory import OFFSETS, TIMESTAMPS
from storage_engine.protocol.typed.stored_rows import StoredRows
from storage_engine.protocol.typed.typed_batch import damaged, outline_of

_NO_COLUMNS = SchemaVersion(version=1, columns=())


def row_times(header: BatchHeader, batch: memoryview, *, max_bytes: int) -> tuple[Ints, Ints]:
    """Return the offset and the timestamp in milliseconds of each row of a whole batch;
    CorruptRecordError when it is damaged, or these columns have more than `max_bytes`."""
    if not crc_matches(batch, 0, header.size_in_bytes):
        raise damaged(header, "its CRC does not match")
    outline = outline_of(header, batch)
    columns_at = HEADER_BYTES + outline.size
    blocks = {}
    for column_id in (OFFSETS, TIMESTAMPS):
        found = outline.places.get(column_id)
        if found is not None:
            place, stored_bytes, _, _ = found
            start = columns_at + place
            blocks[column_id] = batch[start : start + stored_bytes]
    rows = StoredRows(
        header, outline, _NO_COLUMNS, blocks, check_columns=False, max_bytes=max_bytes
    )
    return header.base_offset + rows.deltas, rows.timestamps
