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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
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
from storage_engine.core.typed.topic_schema import SchemaColumn, TopicSchema
from storage_engine.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from storage_engine.protocol.records.control_record import DELETE_HORIZON_BIT
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    TYPED_BIT,
    BatchHeader,
    BytesLike,
)
from storage_engine.protocol.records.record_filter import BatchRows, StoredBatch
from storage_engine.protocol.records.varints import Ints, Mask
from storage_engine.protocol.typed import directory
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.column_codec import joined_batch, store_column
from storage_engine.protocol.typed.directory import (
    OFFSETS,
    TIMESTAMPS,
    TOMBSTONES,
    ColumnEntry,
)
from storage_engine.protocol.typed.stored_rows import StoredRows
from storage_engine.protocol.typed.typed_batch import checked_directory, damaged
from storage_engine.protocol.typed.typed_keys import key_bytes

KEYS_TOGETHER_BYTES = 1 << 20

_BOUNDED_SYSTEM_TYPES: dict[int, ColumnType] = {
    TIMESTAMPS: IntegerColumn(64),
    TOMBSTONES: BooleanColumn(),
}

Replacements = Mapping[int, pa.Array | None]
"""By column id a pa.Array with a value for each row that is left; None leaves the column out."""


class OpenTypedBatch:
    """One batch, whose columns are decoded when they are asked for."""

    def __init__(self, header: BatchHeader, batch: memoryview, schema: TopicSchema) -> None:
        """CorruptRecordError for a damaged batch, UnknownSchemaVersionError for one of a version
        that `schema` does not have."""
        self.header = header
        self.directory = checked_directory(header, batch)
        self._section = batch[HEADER_BYTES : header.size_in_bytes]
        self._schema = schema
        self._version = schema.version(self.directory.schema_version)
        self._rows = StoredRows.of_batch(
            header, batch, schema, check_crc=False, max_bytes=MAX_DECOMPRESSED_BYTES
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.directory.rows

    @property
    def deltas(self) -> Ints:
        """Return how far each row lies behind the batch's base offset; they ascend."""
        return self._stored.deltas

    @property
    def offsets(self) -> Ints:
        return self.deltas + self.header.base_offset

    @property
    def timestamps_ms(self) -> Ints:
        """Return the timestamps that readers get."""
        return self._stored.timestamps

    @property
    def _stored(self) -> StoredRows:
        """The columns, of which each may be as large as all of them: they are decoded one by
        one."""
        self._rows.bytes = 0
        return self._rows

    @property
    def is_tombstone(self) -> Mask:
        found = self._stored.tombstones
        return np.zeros(len(self), np.bool_) if found is None else found

    def values(self, name: str) -> pa.Array:
        """Return the array of the column that the batch's version has by that name."""
        column = self._version.column(name)
        if self.directory.column(column.column_id) is None:
            return pa.nulls(len(self), arrow_type(column.type))
        return self._array(column.column_id)

    @property
    def keys(self) -> pa.Array:
        """Return a pa.BinaryArray; null where there is no key."""
        columns = self._schema.key_columns(self._version)
        if not columns:
            return pa.nulls(len(self), pa.binary())
        stored = self._stored
        arrays = [
            _there(self.header, column_id, stored.column(column_id))
            for column_id in self._schema.key
        ]
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
        columns: list[tuple[ColumnEntry, Iterable[BytesLike]]] = []
        for entry in self.directory.entries:
            if entry.column_id in replaced:
                continue
            if taken is None:
                start = self.directory.size + entry.place
                columns.append((entry, (self._section[start : start + entry.stored_bytes],)))
                continue
            array = self._array(entry.column_id).take(taken)
            # A column without a value is left out.
            if array.null_count < len(array):
                columns.append(self._encoded(entry.column_id, array, codec))
        for column_id, array in replaced.items():
            if array is not None:
                columns.append(self._encoded(column_id, array, codec))
        count = len(self) if rows is None else len(rows)
        return joined_batch(
            header._replace(records_count=count),
            columns,
            topic_id=topic_id or self.directory.topic_id,
            schema_version=self.directory.schema_version,
        )

    def _array(self, column_id: int) -> pa.Array:
        match column_id:
            case directory.TIMESTAMPS:
                return pa.array(self.timestamps_ms)
            case directory.TOMBSTONES:
                return pa.array(self.is_tombstone)
            case directory.HEADERS:
                return self._stored.headers
        return _there(self.header, column_id, self._stored.column(column_id))

    def _encoded(
        self, column_id: int, array: pa.Array, codec: int
    ) -> tuple[ColumnEntry, Iterable[BytesLike]]:
        column = self._version.by_id.get(column_id)
        column_type = _BOUNDED_SYSTEM_TYPES.get(column_id) if column is None else column.type
        if isinstance(column_type, StringColumn | BinaryColumn):
            array = _with_dictionary(array)
        return store_column(column_id, array, column_type, codec)


def decoded_size(batch: StoredBatch) -> int:
    """Return about how many bytes a typed batch takes when it is decoded."""
    try:
        return checked_directory(batch.header, batch.data).null_counts()[1]
    except CorruptRecordError:
        return len(batch.data)


class OpenTypedBatches(BatchRows):
    """Some typed batches, with a column per property and a row per record, as `OpenBatches` has
    them.

    Leaders don't check the content of columns. A producer may have written a batch that can't be
    decoded or becomes too large: it stays unchanged, its rows have no key, `unreadable` has why.
    """

    def __init__(self, batches: Sequence[StoredBatch], schema: TopicSchema) -> None:
        """All of the batches have rows. UnknownSchemaVersionError as of `OpenTypedBatch`."""
        super().__init__(
            batches, np.array([batch.header.records_count for batch in batches], np.int64)
        )
        self.unreadable: dict[int, str] = {}
        """The reason by the number of the batch; filled in as batches are opened."""
        self._opened: list[OpenTypedBatch | None] = []
        deltas, tombstones = [], []
        for number, batch in enumerate(batches):
            count = batch.header.records_count
            try:
                opened = OpenTypedBatch(batch.header, batch.data, schema)
                columns = opened.deltas, opened.is_tombstone
            except CorruptRecordError as error:
                self.unreadable[number] = str(error)
                opened = None
                columns = np.arange(count), np.zeros(count, np.bool_)
            self._opened.append(opened)
            deltas.append(columns[0] + batch.header.base_offset)
            tombstones.append(columns[1])
        self._has_key = bool(schema.key)
        self.offsets: Ints = np.concatenate(deltas)
        self._is_tombstone: Mask = np.concatenate(tombstones)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.offsets)

    def key_arrays(self) -> Iterator[pa.Array]:
        """Yield pa.BinaryArrays, small ones joined; null where there is no key. A dictionary may
        stand for far more bytes than the batch has, so that only one batch is decoded at a time."""
        parts: list[pa.Array] = []
        for number, opened in enumerate(self._opened):
            parts.append(self._keys_of(number, opened))
            if sum(part.nbytes for part in parts) >= KEYS_TOGETHER_BYTES:
                yield pa.concat_arrays(parts)
                parts = []
        if parts:
            yield pa.concat_arrays(parts)

    def _keys_of(self, number: int, opened: OpenTypedBatch | None) -> pa.Array:
        if opened is not None:
            try:
                return opened.keys
            except CorruptRecordError as error:
                self.unreadable[number] = str(error)
        return pa.nulls(int(self._counts[number]), pa.binary())

    @property
    def has_key(self) -> Mask:
        """True for each row with a key; known once all `key_arrays` are read."""
        readable = [number not in self.unreadable for number in range(len(self.batches))]
        found: Mask = self.per_record(np.array(readable) & self._has_key)
        return found

    @property
    def is_tombstone(self) -> Mask:
        return self._is_tombstone & self.has_key

    def _rewrite(self, number: int, begin: int, rows: Ints, horizon: int | None) -> BytesLike:
        opened = self._opened[number]
        if opened is not None:
            try:
                return _with_kept(opened, rows, horizon)
            except CorruptRecordError as error:
                self.unreadable[number] = str(error)
        return self.batches[number].data


def _there(
    header: BatchHeader, column_id: int, found: tuple[SchemaColumn, pa.Array] | None
) -> pa.Array:
    """Return the array of a column that the batch must have."""
    if found is None:
        raise damaged(header, f"it has no column {column_id} that its schema version knows")
    return found[1]


def _with_kept(opened: OpenTypedBatch, rows: Ints, horizon: int | None) -> bytearray:
    header = opened.header
    replaced: dict[int, pa.Array | None] = {OFFSETS: pa.array(opened.deltas[rows].astype(np.int32))}
    if header.timestamp_type == 0:
        times = opened.timestamps_ms[rows]
        header = header._replace(max_timestamp=int(times.max()))
        if horizon is not None:
            replaced[TIMESTAMPS] = pa.array(times)
    else:
        # All rows have the header's time.
        replaced[TIMESTAMPS] = None
    if horizon is not None:
        header = header._replace(
            base_timestamp=horizon, attributes=header.attributes | DELETE_HORIZON_BIT
        )
    return opened.with_rows(header, rows, replaced)


def _with_dictionary(array: pa.Array) -> pa.Array:
    """Return the array with a dictionary, where that makes it smaller by a quarter."""
    encoded = pc.dictionary_encode(array)
    if 4 * (encoded.dictionary.nbytes + encoded.indices.nbytes) <= 3 * array.nbytes:
        return encoded
    return array


class TypedTarget(NamedTuple):
    """The topic that typed batches are copied into."""

    topic_id: UUID
    schema: TopicSchema
    """The source's schema, as far as the target has the same versions."""


def copied_rows(
    batch: memoryview, header: BatchHeader, *, start_offset: int, target: TypedTarget
) -> tuple[bytearray, Ints]:
    """Return the rows of the batch from `start_offset` on as a batch for the target, its rows
    without gaps, and the offsets that they have in the source. Columns are copied byte for byte,
    and decoded only where the batch begins before `start_offset`. Source: R-CLI6.

    CorruptRecordError for a damaged batch, UnknownSchemaVersionError for one of a later version.
    """
    opened = OpenTypedBatch(header, batch, target.schema)
    offsets = opened.offsets
    chosen = np.flatnonzero(offsets >= start_offset)
    rows = None if len(chosen) == len(offsets) else chosen
    replaced: dict[int, None] = {OFFSETS: None}
    fresh = header._replace(attributes=TYPED_BIT, last_offset_delta=len(chosen) - 1)
    if header.timestamp_type == 1:
        replaced[TIMESTAMPS] = None
        fresh = fresh._replace(base_timestamp=header.max_timestamp)
    elif rows is not None or header.attributes & DELETE_HORIZON_BIT:
        times = opened.timestamps_ms[chosen]
        fresh = fresh._replace(base_timestamp=int(times[0]), max_timestamp=int(times.max()))
    wanted: Replacements = replaced
    return opened.with_rows(fresh, rows, wanted, target.topic_id), offsets[chosen]
