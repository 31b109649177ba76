"""Leaves rows out of typed batches, for compaction, and gives rows other offsets, for another log:
what `record_filter` does to batches of records.

    part                     of a batch that lost rows
    header                   as record_filter says
    topic id, version        as they were: a batch is never brought to a later version
    columns                  the rows that are left, with their own statistics; one codec for all
    offset deltas            always there: how far each row lies behind base_offset, which stays
    timestamps               the rows that are left; with a delete horizon, which takes the place of
                               the base timestamp, there also when the batch had none

A batch that loses none is not changed at all. Columns are decoded and written one after the other,
so that the memory is that of one column and the new batch. How a column is written follows from its
values alone, not from how it was before: replicas compact in different steps, and end with the same
bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.typed.column_types import (
    BinaryColumn,
    BooleanColumn,
    ColumnType,
    IntegerColumn,
    StringColumn,
)
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.records.control_record import DELETE_HORIZON_BIT
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    BytesLike,
    seal,
)
from storage_engine.protocol.records.record_filter import Mask, StoredBatch
from storage_engine.protocol.records.varints import Ints
from storage_engine.protocol.typed.arrow_types import SYSTEM_TYPES, arrow_type
from storage_engine.protocol.typed.column_bounds import NO_BOUNDS, bounds_of
from storage_engine.protocol.typed.column_codec import load_column, store_column
from storage_engine.protocol.typed.directory import (
    OFFSETS,
    TIMESTAMPS,
    TOMBSTONES,
    ColumnEntry,
    encode_directory,
)
from storage_engine.protocol.typed.typed_batch import damaged, directory_of
from storage_engine.protocol.typed.typed_keys import key_bytes

KEYS_TOGETHER_BYTES = 1 << 20

_BOUNDED_SYSTEM_TYPES: dict[int, ColumnType] = {
    TIMESTAMPS: IntegerColumn(64),
    TOMBSTONES: BooleanColumn(),
}

Replacements = Mapping[int, Any]
"""By column id a pa.Array with a value for each row that is left; None leaves the column out."""


class OpenTypedBatch:
    """One batch, whose columns are decoded when they are asked for."""

    def __init__(self, header: BatchHeader, batch: memoryview, schema: TopicSchema) -> None:
        """CorruptRecordError for a damaged batch, UnknownSchemaVersionError for one of a version
        that `schema` does not have."""
        self.header = header
        self.directory = directory_of(header, batch)
        self._section = batch[HEADER_BYTES : header.size_in_bytes]
        self._schema = schema
        self._version = schema.version(self.directory.schema_version)
        self.deltas = self._offset_deltas()
        """How far each row lies behind the batch's base offset; they ascend."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.directory.rows

    @property
    def offsets(self) -> Ints:
        return self.deltas + self.header.base_offset

    @property
    def timestamps_ms(self) -> Any:
        """Return the timestamps that readers get, a pa.Int64Array."""
        header = self.header
        if header.timestamp_type == 1:
            return _constant(header.max_timestamp, len(self))
        entry = self.directory.column(TIMESTAMPS)
        return _constant(header.base_timestamp, len(self)) if entry is None else self._column(entry)

    @property
    def is_tombstone(self) -> Mask:
        entry = self.directory.column(TOMBSTONES)
        if entry is None:
            return np.zeros(len(self), np.bool_)
        found: Mask = self._column(entry).to_numpy(zero_copy_only=False)
        return found

    def values(self, name: str) -> Any:
        """Return the array of the column that the batch's version has by that name."""
        column = self._version.column(name)
        entry = self.directory.column(column.column_id)
        if entry is None:
            return pa.nulls(len(self), arrow_type(column.type))
        return self._column(entry)

    @property
    def keys(self) -> Any:
        """Return a pa.BinaryArray; null where there is no key."""
        columns = self._schema.key_columns(self._version)
        arrays = []
        for column in columns:
            entry = self.directory.column(column.column_id)
            if entry is None:
                raise damaged(self.header, f"it has no column '{column.name}' of the key")
            arrays.append(self._column(entry))
        if not columns:
            return pa.nulls(len(self), pa.binary())
        rows = pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])
        return key_bytes(rows, self._schema, self._version)

    def with_rows(
        self,
        header: BatchHeader,
        rows: Ints | None,
        replaced: Replacements,
        topic_id: UUID | None = None,
    ) -> bytearray:
        """Return a whole batch of these rows (None: all, copied byte for byte), with `header` but
        for what follows from them."""
        taken = None if rows is None else pa.array(rows)
        codec = max((entry.codec for entry in self.directory.entries), default=0)
        entries: list[ColumnEntry] = []
        columns: list[BytesLike] = []
        for entry in self.directory.entries:
            if entry.column_id in replaced:
                continue
            start = self.directory.size + entry.place
            stored: BytesLike = self._section[start : start + entry.stored_bytes]
            if taken is not None:
                array = self._column(entry).take(taken)
                if array.null_count == len(array):
                    # A column without a value is left out.
                    continue
                entry, stored = self._encoded(entry.column_id, array, codec)
            entries.append(entry)
            columns.append(stored)
        for column_id, array in replaced.items():
            if array is not None:
                entry, stored = self._encoded(column_id, array, codec)
                entries.append(entry)
                columns.append(stored)
        count = len(self) if rows is None else len(rows)
        directory = encode_directory(
            topic_id=topic_id or self.directory.topic_id,
            schema_version=self.directory.schema_version,
            rows=count,
            entries=entries,
        )
        batch = bytearray(HEADER_BYTES)
        batch += directory
        for column in columns:
            batch += column
        seal(batch, 0, header._replace(length=len(batch) - LENGTH_END, crc=0, records_count=count))
        return batch

    def _column(self, entry: ColumnEntry) -> Any:
        column = self._version.by_id.get(entry.column_id)
        if column is None and entry.column_id not in SYSTEM_TYPES:
            raise damaged(
                self.header,
                f"version {self._version.version} of the schema has no column {entry.column_id}",
            )
        kind = SYSTEM_TYPES[entry.column_id] if column is None else arrow_type(column.type)
        start = self.directory.size + entry.place
        block = self._section[start : start + entry.stored_bytes]
        try:
            return load_column(block, entry, kind, len(self))
        except CorruptRecordError as error:
            raise damaged(self.header, str(error)) from None

    def _encoded(self, column_id: int, array: Any, codec: int) -> tuple[ColumnEntry, BytesLike]:
        column = self._version.by_id.get(column_id)
        column_type = _BOUNDED_SYSTEM_TYPES.get(column_id) if column is None else column.type
        bounds = NO_BOUNDS if column_type is None else bounds_of(array, column_type)
        nulls = array.null_count
        if isinstance(column_type, StringColumn | BinaryColumn):
            array = _with_dictionary(array)
        stored = store_column(array, codec)
        return stored.entry(column_id, nulls, *bounds), stored.block

    def _offset_deltas(self) -> Ints:
        count, last = len(self), self.header.last_offset_delta
        entry = self.directory.column(OFFSETS)
        if entry is None:
            if count != last + 1:
                raise damaged(self.header, f"{count} rows, the last of them at offset delta {last}")
            return np.arange(count)
        deltas: Ints = self._column(entry).to_numpy(zero_copy_only=False).astype(np.int64)
        if entry.null_count or (deltas < 0).any() or (deltas > last).any():
            raise damaged(self.header, f"an offset delta is not in 0 to {last}")
        if (np.diff(deltas) <= 0).any():
            raise damaged(self.header, "its offset deltas do not ascend")
        return deltas


class OpenTypedBatches:
    """Some typed batches, with a column per property and a row per record, as `OpenBatches` has
    them."""

    def __init__(self, batches: Sequence[StoredBatch], schema: TopicSchema) -> None:
        """All of the batches have rows. CorruptRecordError and UnknownSchemaVersionError as for
        one."""
        self.batches = batches
        self._opened = [OpenTypedBatch(batch.header, batch.data, schema) for batch in batches]
        self._counts = np.array([len(each) for each in self._opened], np.int64)
        self._has_key = bool(schema.key)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._counts.sum())

    @property
    def has_key(self) -> Mask:
        return np.full(len(self), self._has_key)

    @property
    def is_tombstone(self) -> Mask:
        return np.concatenate([each.is_tombstone for each in self._opened])

    @property
    def offsets(self) -> Ints:
        return np.concatenate([each.offsets for each in self._opened])

    def keys(self) -> Iterator[Any]:
        """Yield pa.BinaryArrays, small ones joined; null where there is no key. A dictionary may
        stand for far more bytes than the batch has, so that only one batch is decoded at a time."""
        parts: list[Any] = []
        for opened in self._opened:
            parts.append(opened.keys)
            if sum(part.nbytes for part in parts) >= KEYS_TOGETHER_BYTES:
                yield pa.concat_arrays(parts)
                parts = []
        if parts:
            yield pa.concat_arrays(parts)

    def per_record(self, per_batch: Any) -> Any:
        """Return a column with a value per row from one with a value per batch."""
        return np.repeat(per_batch, self._counts)

    def per_batch(self, per_record: Mask) -> Ints:
        """Return for how many rows of each batch it is true."""
        ends = np.cumsum(per_record, dtype=np.int64)[np.cumsum(self._counts) - 1]
        return np.diff(ends, prepend=0)

    def rewritten(self, kept: Mask, horizons: Sequence[int | None]) -> list[BytesLike | None]:
        """Return each batch with its `kept` rows only; None for one that keeps none.

        `horizons` has the time for each batch that gets a delete horizon.
        """
        results: list[BytesLike | None] = []
        begin = 0
        for batch, opened, horizon in zip(self.batches, self._opened, horizons, strict=True):
            rows = np.flatnonzero(kept[begin : begin + len(opened)])
            begin += len(opened)
            if not len(rows):
                results.append(None)
            elif len(rows) == len(opened) and horizon is None:
                results.append(batch.data)
            else:
                results.append(_with_kept(opened, rows, horizon))
        return results


def _with_kept(opened: OpenTypedBatch, rows: Ints, horizon: int | None) -> bytearray:
    header = opened.header
    replaced = {OFFSETS: pa.array(opened.deltas[rows].astype(np.int32))}
    if header.timestamp_type == 0:
        times = opened.timestamps_ms.take(pa.array(rows))
        header = header._replace(max_timestamp=pc.max(times).as_py())
        if horizon is not None:
            replaced[TIMESTAMPS] = times
    if horizon is not None:
        header = header._replace(
            base_timestamp=horizon, attributes=header.attributes | DELETE_HORIZON_BIT
        )
    return opened.with_rows(header, rows, replaced)


def _with_dictionary(array: Any) -> Any:
    """Return the array with a dictionary, where that makes it smaller by a quarter."""
    encoded = pc.dictionary_encode(array)
    if 4 * (encoded.dictionary.nbytes + encoded.indices.nbytes) <= 3 * array.nbytes:
        return encoded
    return array


def _constant(value: int, count: int) -> Any:
    return pa.array(np.full(count, value, np.int64))
