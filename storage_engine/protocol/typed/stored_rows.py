"""One typed batch taken apart: its columns as arrays, in the types of its own schema version.

Every check of what is stored happens here: CRCs, sizes, offsets, and, by `column_codec`, values.
"""

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.typed.topic_schema import SchemaColumn, SchemaVersion, TopicSchema
from storage_engine.protocol.records.arrow_binary import int64_values, numbers_in
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    crc_matches,
)
from storage_engine.protocol.records.record_decoder import DEFAULT_MAX_DECOMPRESSED_BYTES
from storage_engine.protocol.records.varints import Ints, Mask
from storage_engine.protocol.typed.arrays.ipc_message import ColumnKind, column_kind
from storage_engine.protocol.typed.arrays.plain_numbers import PlainNumbers, find_numbers
from storage_engine.protocol.typed.arrays.row_parts import Part
from storage_engine.protocol.typed.arrow_types import SYSTEM_TYPES, arrow_type
from storage_engine.protocol.typed.column_codec import load_column
from storage_engine.protocol.typed.directory import (
    HEADERS,
    OFFSETS,
    TIMESTAMPS,
    TOMBSTONES,
    Directory,
    read_directory,
)
from storage_engine.protocol.typed.frames import PROJECTED, TypedFrame
from storage_engine.protocol.typed.nested_arrays import bits
from storage_engine.protocol.typed.projection import check_seal
from storage_engine.protocol.typed.typed_batch import check_rows, damaged, directory_of

_SYSTEM_KINDS = {column_id: column_kind(kind) for column_id, kind in SYSTEM_TYPES.items()}


class StoredRows:
    """The rows of a batch; columns are loaded when they are asked for."""

    def __init__(
        self,
        header: BatchHeader,
        directory: Directory,
        version: SchemaVersion,
        blocks: dict[int, memoryview],
        *,
        check_columns: bool,
        max_bytes: int,
    ) -> None:
        self.header = header
        self.directory = directory
        self.version = version
        self._blocks = blocks
        self._check_columns = check_columns
        self._room = max_bytes
        self.bytes = 0
        """The size of the columns loaded so far, decompressed."""

    @classmethod
    def of_batch(
        cls,
        header: BatchHeader,
        batch: memoryview,
        schema: TopicSchema,
        *,
        check_crc: bool = True,
        max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> "StoredRows":
        """Open a whole batch. CorruptRecordError when it is damaged, UnknownSchemaVersionError when
        `schema` does not have its version yet."""
        if header.magic != MAGIC:
            raise damaged(header, f"it has magic {header.magic}, only {MAGIC} can be read")
        if check_crc and not crc_matches(batch, 0, header.size_in_bytes):
            raise damaged(header, "its CRC does not match")
        directory = directory_of(header, batch)
        columns_at = HEADER_BYTES + directory.size
        blocks = {}
        for column_id, (place, stored, _, _) in directory.places.items():
            blocks[column_id] = batch[columns_at + place : columns_at + place + stored]
        version = schema.version(directory.schema_version)
        # The batch's CRC has covered the columns.
        return cls(
            header, directory, version, blocks, check_columns=not check_crc, max_bytes=max_bytes
        )

    @classmethod
    def of_frame(
        cls,
        frame: TypedFrame,
        schema: TopicSchema,
        *,
        max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> "StoredRows":
        """Open a projected batch, with the same errors."""
        header = frame.header
        assert header is not None and frame.kind == PROJECTED
        if header.magic != MAGIC:
            raise damaged(header, f"it has magic {header.magic}, only {MAGIC} can be read")
        section_bytes = header.size_in_bytes - HEADER_BYTES
        try:
            directory = read_directory(frame.batch, section_bytes=section_bytes)
        except CorruptRecordError as error:
            raise damaged(header, str(error)) from None
        check_rows(header, directory)
        blocks = {}
        batch, wanted = frame.batch, frame.column_ids
        at = directory.size
        for column_id, place in directory.places.items():
            if column_id < 0 or column_id in wanted:
                end = at + place[1]
                blocks[column_id] = batch[at:end]
                at = end
        if at != len(batch):
            raise damaged(header, f"its columns take {at} of the frame's {len(batch)} bytes")
        check_seal(header, frame.sealed_fields, directory, blocks)
        version = schema.version(directory.schema_version)
        return cls(header, directory, version, blocks, check_columns=False, max_bytes=max_bytes)

    def __len__(self) -> int:
        return self.directory.rows

    def column(self, column_id: int) -> tuple[SchemaColumn, pa.Array] | None:
        """Return a column as the batch's version has it, and its array; None when all of its values
        are null."""
        column = self.version.by_id.get(column_id)
        if column is None:
            return None
        array = self._load(column_id, column_kind(arrow_type(column.type)))
        return None if array is None else (column, array)

    def part(self, column_id: int, kind: ColumnKind) -> Part:
        """Return a column as a part of something larger: PlainNumbers, or a pa.Array, which may lie
        in the batch's own bytes; None when all of its values are null."""
        directory = self.directory
        place = directory.places.get(column_id)
        if place is None:
            return None
        if kind.width:
            try:
                fields = directory.fields(place[3])
            except CorruptRecordError as error:
                raise damaged(self.header, str(error)) from None
            _, _, _, raw_bytes, crc, nulls, codec, encoding, *_ = fields
            if not (nulls or codec or encoding):
                numbers = self._numbers(column_id, kind, raw_bytes, crc)
                if numbers is not None:
                    return numbers
        return self._load(column_id, kind, in_place=True)

    def _numbers(
        self, column_id: int, kind: ColumnKind, raw_bytes: int, crc: int
    ) -> PlainNumbers | None:
        """Return PlainNumbers; None where only `_load` can read the column."""
        block = self._block(column_id, raw_bytes, crc)
        numbers = find_numbers(block, kind.width, self.directory.rows)
        if numbers is None:
            return None
        if kind.is_decimal:
            try:
                numbers.in_place(kind.kind).validate(full=True)
            except pa.ArrowException:
                # It will be named there.
                return None
        self.bytes += raw_bytes
        return numbers

    @property
    def offsets(self) -> range | Ints:
        """Return the offsets of the rows: a range unless compaction left gaps."""
        header, rows = self.header, self.directory.rows
        if self.directory.column(OFFSETS) is None and header.last_offset_delta == rows - 1:
            return range(header.base_offset, header.base_offset + rows)
        return header.base_offset + self.deltas

    @property
    def deltas(self) -> Ints:
        """Return the offsets of the rows, counted from the batch's base offset."""
        header = self.header
        array = self._load(OFFSETS, _SYSTEM_KINDS[OFFSETS])
        if array is None:
            if header.last_offset_delta != len(self) - 1:
                raise damaged(
                    header,
                    f"it has {len(self)} rows and last offset delta {header.last_offset_delta},"
                    " but no column of offsets",
                )
            return np.arange(len(self), dtype=np.int64)
        narrow = numbers_in(array.buffers()[1], np.int32, array.offset, len(self))
        deltas: Ints = narrow.astype(np.int64)
        if (
            array.null_count
            or deltas[0] < 0
            or deltas[-1] > header.last_offset_delta
            or (deltas[1:] <= deltas[:-1]).any()
        ):
            raise damaged(header, "its offsets are out of order")
        return deltas

    @property
    def timestamps(self) -> Ints:
        """Return the times that readers get, in milliseconds."""
        times = self.times
        return np.full(len(self), times, np.int64) if isinstance(times, int) else times

    @property
    def times(self) -> Ints | int:
        """Return the same, or the one time that all rows have."""
        header = self.header
        if header.timestamp_type:
            return header.max_timestamp
        array = self._load(TIMESTAMPS, _SYSTEM_KINDS[TIMESTAMPS])
        if array is None:
            return header.base_timestamp
        if array.null_count:
            raise damaged(header, "a timestamp is null")
        return int64_values(array)

    @property
    def headers(self) -> pa.Array:
        """Return the record headers; None when no row has any."""
        return self._load(HEADERS, _SYSTEM_KINDS[HEADERS])

    @property
    def tombstones(self) -> Mask | None:
        """Return a numpy column that is true for tombstones; None when there are none."""
        array = self._load(TOMBSTONES, _SYSTEM_KINDS[TOMBSTONES])
        if array is None:
            return None
        if array.null_count:
            raise damaged(self.header, "a tombstone is null")
        return bits(array)

    def _load(self, column_id: int, kind: ColumnKind, *, in_place: bool = False) -> pa.Array | None:
        """Return a column's array; `kind` and `in_place` as in `load_column`."""
        try:
            entry = self.directory.column(column_id)
        except CorruptRecordError as error:
            raise damaged(self.header, str(error)) from None
        if entry is None:
            return None
        block = self._block(column_id, entry.raw_bytes, entry.crc)
        room = self._room - self.bytes
        try:
            array = load_column(
                block, entry, kind, self.directory.rows, max_bytes=room, in_place=in_place
            )
        except CorruptRecordError as error:
            raise damaged(self.header, str(error)) from None
        # A dictionary may have become more.
        self.bytes += max(entry.raw_bytes, array.nbytes) if entry.encoding else entry.raw_bytes
        return array

    def _block(self, column_id: int, raw_bytes: int, crc: int) -> memoryview:
        """Return the stored bytes of a column, checked."""
        block = self._blocks.get(column_id)
        if block is None:
            raise damaged(self.header, f"the response leaves out the column {column_id}")
        if raw_bytes > self._room - self.bytes:
            raise self._too_large()
        if self._check_columns and crc32c(block) != crc:
            raise damaged(self.header, f"the CRC of its column {column_id} does not match")
        return block

    def _too_large(self) -> CorruptRecordError:
        return damaged(
            self.header, f"its columns decompress to more than the {self._room} bytes allowed"
        )


_NO_COLUMNS = SchemaVersion(version=1, columns=())


def row_times(header: BatchHeader, batch: memoryview, *, max_bytes: int) -> tuple[Ints, Ints]:
    """Return the offset and the timestamp in milliseconds of each row of a whole batch;
    CorruptRecordError when it is damaged, or these columns have more than `max_bytes`."""
    if not crc_matches(batch, 0, header.size_in_bytes):
        raise damaged(header, "its CRC does not match")
    directory = directory_of(header, batch)
    columns_at = HEADER_BYTES + directory.size
    blocks = {}
    for column_id in (OFFSETS, TIMESTAMPS):
        found = directory.places.get(column_id)
        if found is not None:
            place, stored_bytes, _, _ = found
            start = columns_at + place
            blocks[column_id] = batch[start : start + stored_bytes]
    rows = StoredRows(
        header, directory, _NO_COLUMNS, blocks, check_columns=False, max_bytes=max_bytes
    )
    return header.base_offset + rows.deltas, rows.timestamps
