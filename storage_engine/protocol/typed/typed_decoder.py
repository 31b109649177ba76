"""Decodes typed batches, whole or projected, into rows with the columns that a reader wants.

Batches are read one by one, column by column, and joined into pieces of some 50,000 rows, for which
the reader's filter and everything behind it cost what they would for one batch. Bytes off the wire
are never trusted: see `stored_rows.py` and `column_codec.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from storage_engine.core.errors import ConfigError, HeadraceError, InvalidRecordError
from storage_engine.core.printable import printable
from storage_engine.core.typed.column_types import ddl_of
from storage_engine.core.typed.comparisons import Comparison
from storage_engine.core.typed.topic_schema import SchemaColumn, TopicSchema
from storage_engine.protocol.records.arrow_kernels import as_type, kernel
from storage_engine.protocol.records.record_batch import (
    BatchHeader,
    BytesLike,
    crc_matches,
    iter_headers,
)
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.records.varints import Ints, Mask
from storage_engine.protocol.typed.arrays.ipc_message import ColumnKind, column_kind
from storage_engine.protocol.typed.arrays.plain_numbers import PlainNumbers
from storage_engine.protocol.typed.arrays.row_filter import matching_rows
from storage_engine.protocol.typed.arrays.row_parts import (
    Part,
    as_ints,
    joined,
    joined_masks,
    joined_offsets,
    joined_times,
    part_of,
)
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.frames import PROJECTED, iter_frames
from storage_engine.protocol.typed.nested_arrays import boolean_array, int_array
from storage_engine.protocol.typed.stored_rows import StoredRows
from storage_engine.protocol.typed.typed_batch import damaged, is_typed

OFFSET = "_offset"
TIMESTAMP = "_timestamp"
RECORD_HEADERS = "_headers"
DELETED = "_deleted"
METADATA_TYPES = {
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    RECORD_HEADERS: HEADERS_TYPE,
    DELETED: pa.bool_(),
}

PIECE_ROWS = 50_000
"""The approximate number of rows of a piece."""
PIECE_BYTES = 32 << 20
"""A piece ends at this many bytes, however few rows it has: Arrow's offsets end at 2 GiB."""
PIECE_CELLS = 8 << 20
"""A piece has at most about so many rows times columns, since a column of nulls, which takes no
bytes where it is stored, takes them in a piece."""
LEAST_PIECE_ROWS = 1_000

_MICROSECONDS = 1000
_LARGEST_TIMESTAMP_MS = ((1 << 63) - 1) // _MICROSECONDS


class _Loaded:
    """A column of a plan, and how it is loaded from batches of each version of the schema: found
    out once, since batches may be small."""

    def __init__(self, column: SchemaColumn) -> None:
        self.column = column
        self.kind = arrow_type(column.type)
        self._stored_as: dict[int, tuple[SchemaColumn, ColumnKind] | None] = {}

    def load(self, stored: StoredRows) -> Part:
        """Return a part in the type of the plan; None when all of it is null."""
        number = stored.version.version
        if number not in self._stored_as:
            found = stored.version.by_id.get(self.column.column_id)
            self._stored_as[number] = (
                None if found is None else (found, column_kind(arrow_type(found.type)))
            )
        known = self._stored_as[number]
        if known is None:
            return None
        column, kind = known
        part = stored.part(column.column_id, kind)
        if part is None or kind.kind is self.kind or column.type == self.column.type:
            return part
        if isinstance(part, PlainNumbers):
            part = part.in_place(kind.kind)
        try:
            return as_type(part, self.kind)
        except pa.ArrowException:
            raise InvalidRecordError(
                f"the column '{printable(self.column.name)}' has values at offset"
                f" {stored.header.base_offset} that don't fit {ddl_of(self.column.type)}: the"
                f" topic's version {number} has made it {ddl_of(column.type)}; start the reader"
                " again to read it so"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedReadPlan:
    """The columns and filter of a reader; they stay the same when the topic's schema changes."""

    columns: tuple[SchemaColumn, ...]
    """The columns of the answer, in its order."""
    metadata: tuple[str, ...]
    """Columns of METADATA_TYPES, which follow `columns` in the answer."""
    comparisons: tuple[Comparison, ...]
    compared: tuple[SchemaColumn, ...]
    """The columns of the comparisons, one for each."""
    arrow_schema: pa.Schema
    """The pa.Schema of the answer; every field is nullable."""
    loaded: "tuple[_Loaded, ...]"
    """The columns that are given or compared, each once."""

    @property
    def column_ids(self) -> tuple[int, ...]:
        """Return the ids to ask the broker for: those of the comparisons are among them."""
        return tuple(dict.fromkeys(each.column_id for each in (*self.columns, *self.compared)))


def plan(
    schema: TopicSchema,
    names: Sequence[str] | None = None,
    metadata: Sequence[str] = (),
    filter: Sequence[Comparison] = (),
) -> TypedReadPlan:
    """Return the plan to read the columns of these names, in their order; None: all columns of the
    latest version that are not hidden. ConfigError for a column that does not exist."""
    latest = schema.latest
    columns = latest.visible if names is None else tuple(map(latest.column, names))
    if len({column.column_id for column in columns}) != len(columns):
        raise ConfigError("a column is named twice: name each once")
    for name in metadata:
        if name not in METADATA_TYPES:
            raise ConfigError(
                f"'{printable(name)}' is no metadata column: use {', '.join(METADATA_TYPES)}"
            )
    compared = []
    for comparison in filter:
        column = latest.by_id.get(comparison.column_id)
        if column is None:
            raise ConfigError(
                f"a filter compares the column {comparison.column_id}, which the schema's version"
                f" {latest.version} does not have"
            )
        compared.append(column)
    fields = [pa.field(column.name, arrow_type(column.type)) for column in columns]
    fields += [pa.field(name, METADATA_TYPES[name]) for name in metadata]
    each_once = {column.column_id: column for column in (*columns, *compared)}
    return TypedReadPlan(
        columns=columns,
        metadata=tuple(metadata),
        comparisons=tuple(filter),
        compared=tuple(compared),
        arrow_schema=pa.schema(fields),
        loaded=tuple(map(_Loaded, each_once.values())),
    )


class TypedRows:
    """Rows of a typed topic, ascending by offset; perhaps none, where batches had none to give.

    Offsets are made when they are asked for: most readers take the columns alone."""

    __slots__ = ("_count", "_kept", "_offsets", "batch", "next_offset")

    def __init__(
        self,
        batch: pa.RecordBatch,
        offsets: range | Ints,
        kept: Mask | None,
        next_offset: int,
    ) -> None:
        """`offsets` are those of all rows, of which `kept` (None: all) is true for those to
        give."""
        self.batch = batch
        """A pa.RecordBatch of the plan's `arrow_schema`."""
        self.next_offset = next_offset
        """The offset at which to read on."""
        self._offsets, self._kept = offsets, kept
        self._count = len(offsets) if kept is None else int(np.count_nonzero(kept))

    def __len__(self) -> int:
        return self._count

    @property
    def offsets(self) -> pa.Array:
        """Return the rows' offsets as a pa.Int64Array."""
        offsets = as_ints(self._offsets)
        return int_array(offsets if self._kept is None else offsets[self._kept])


def iter_typed_decoded(
    data: BytesLike | Iterable[BytesLike],
    plan: TypedReadPlan,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    framed: bool,
    topic_schema: TopicSchema,
) -> Iterator[TypedRows]:
    """Yield the rows with start_offset <= offset < end_offset that meet the plan's filter. The last
    piece may have none: it says where to read on.

    `data` is one buffer or several: whole batches (a last one that is cut off is left out), or with
    `framed` a projected answer. Tombstones are left out unless the plan asks for DELETED.
    CorruptRecordError; UnknownSchemaVersionError for a batch of a version that `topic_schema` does
    not have: get the schema anew, and decode from the last piece's next_offset on. The rows before
    an error are given first: whoever reads on gets no further than the error.
    """
    wanted = _Wanted(start_offset, end_offset)
    piece = _Piece(plan, wanted)
    buffers = (data,) if isinstance(data, bytes | bytearray | memoryview | pa.Buffer) else data
    open_data = _of_frames if framed else _of_batches
    try:
        for buffer in buffers:
            for next_offset, stored in open_data(buffer, topic_schema, wanted):
                if stored is not None:
                    yield from piece.add(stored)
                piece.read_to(next_offset)
    except HeadraceError:
        if len(piece):
            yield piece.finished()
        raise
    if piece.has_progress:
        yield piece.finished()


class _Wanted(NamedTuple):
    """The wanted offsets, half-open; without end when `stop` is None."""

    start: int
    stop: int | None

    def touches(self, base_offset: int, next_offset: int) -> bool:
        return next_offset > self.start and (self.stop is None or base_offset < self.stop)


_Opened = Iterator[tuple[int, StoredRows | None]]
"""The offset after a batch or frame, and its rows if it has some."""


def _of_batches(buffer: BytesLike, schema: TopicSchema, wanted: _Wanted) -> _Opened:
    view = memoryview(buffer).cast("B")
    for position, header in iter_headers(view):
        batch = view[position : position + header.size_in_bytes]
        if header.next_offset <= wanted.start:
            # It would be skipped because of what its header says.
            _check_crc(header, batch)
        elif wanted.touches(header.base_offset, header.next_offset):
            yield header.next_offset, _of_batch(header, batch, schema)


def _of_frames(buffer: BytesLike, schema: TopicSchema, wanted: _Wanted) -> _Opened:
    for frame in iter_frames(buffer):
        is_before = frame.next_offset <= wanted.start
        if not is_before and not wanted.touches(frame.base_offset, frame.next_offset):
            continue
        stored = None
        if frame.kind == PROJECTED:
            stored = StoredRows.of_frame(frame, schema)
        elif frame.header is not None:
            stored = _of_batch(frame.header, frame.batch, schema)
        # It would be skipped because of what its header says.
        if not is_before:
            yield frame.next_offset, stored


def _of_batch(header: BatchHeader, batch: memoryview, schema: TopicSchema) -> StoredRows | None:
    """Return None for a batch without rows: a control batch, or what compaction left."""
    if is_typed(header):
        return StoredRows.of_batch(header, batch, schema)
    _check_crc(header, batch)
    if not header.is_control and header.records_count:
        raise damaged(header, "it has plain records, but its topic is typed")
    return None


def _check_crc(header: BatchHeader, batch: memoryview) -> None:
    if not crc_matches(batch, 0, header.size_in_bytes):
        raise damaged(header, "its CRC does not match")


@dataclass(slots=True)
class _Rows:
    """Columns of some rows of one batch, for the piece."""

    offsets: range | Ints
    times: Ints | int
    """The time of each row, or one time for all, in ms."""
    parts: list[Part]
    """A pa.Array or PlainNumbers for each column that is loaded; None: all null."""
    tombstones: Mask | None
    headers: pa.Array | None

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, start: int, stop: int) -> "_Rows":
        return _Rows(
            self.offsets[start:stop],
            self.times if isinstance(self.times, int) else self.times[start:stop],
            [part_of(each, start, stop) for each in self.parts],
            None if self.tombstones is None else self.tombstones[start:stop],
            part_of(self.headers, start, stop),
        )


class _Piece:
    """Rows gathered until they are enough for a piece."""

    def __init__(self, plan: TypedReadPlan, wanted: _Wanted) -> None:
        self._plan = plan
        self._wanted = wanted
        self._rows: list[_Rows] = []
        self._count = 0
        self._bytes = 0
        cells = PIECE_CELLS // max(1, len(plan.loaded))
        self._most_rows = max(LEAST_PIECE_ROWS, min(PIECE_ROWS, cells))
        self._next_offset = -1
        self.has_progress = False

    def __len__(self) -> int:
        return self._count

    def read_to(self, next_offset: int) -> None:
        """Note that a batch has been read that ends there."""
        stop = self._wanted.stop
        self._next_offset = next_offset if stop is None else min(next_offset, stop)
        self.has_progress = True

    def add(self, stored: StoredRows) -> Iterator[TypedRows]:
        """Take the rows of a batch; yield pieces that are full before it or with a part of it."""
        rows = self._loaded(stored)
        if self._rows and self._bytes + stored.bytes > PIECE_BYTES:
            yield self.finished()
        self._bytes += stored.bytes
        for start in range(0, len(rows), self._most_rows):
            stop = min(len(rows), start + self._most_rows)
            is_last = stop == len(rows)
            self._rows.append(rows if is_last and not start else rows.part(start, stop))
            self._count += stop - start
            if self._count >= self._most_rows or self._bytes >= PIECE_BYTES:
                self.read_to(stored.header.next_offset if is_last else int(rows.offsets[stop]))
                yield self.finished()

    def finished(self) -> TypedRows:
        """Return the piece, and begin another."""
        rows, plan = self._rows, self._plan
        counts = [len(each) for each in rows]
        offsets = joined_offsets([each.offsets for each in rows])
        times = [(each.times, count) for each, count in zip(rows, counts, strict=True)]
        arrays = {
            loaded.column.column_id: joined([each.parts[n] for each in rows], counts, loaded.kind)
            for n, loaded in enumerate(plan.loaded)
        }
        gone = joined_masks([each.tombstones for each in rows], counts)
        columns = [arrays[column.column_id] for column in plan.columns]
        for name in plan.metadata:
            match name:
                case "_offset":
                    columns.append(int_array(as_ints(offsets)))
                case "_timestamp":
                    columns.append(_microseconds(joined_times(times)))
                case "_headers":
                    columns.append(joined([each.headers for each in rows], counts, HEADERS_TYPE))
                case _:
                    deleted = np.zeros(self._count, np.bool_) if gone is None else gone
                    columns.append(boolean_array(deleted))
        kept = self._kept(offsets, gone, [arrays[column.column_id] for column in plan.compared])
        batch = _record_batch(columns, plan.arrow_schema, self._count)
        if kept is not None and kept.all():
            kept = None
        if kept is not None:
            batch = kernel("filter", batch, boolean_array(kept))
        self._rows, self._count, self._bytes, self.has_progress = [], 0, 0, False
        return TypedRows(batch, offsets, kept, self._next_offset)

    def _loaded(self, stored: StoredRows) -> _Rows:
        offsets, times = stored.offsets, stored.times
        parts = [each.load(stored) for each in self._plan.loaded]
        takes_headers = RECORD_HEADERS in self._plan.metadata
        headers = stored.headers if takes_headers else None
        return _Rows(offsets, times, parts, stored.tombstones, headers)

    def _kept(
        self, offsets: range | Ints, gone: Mask | None, compared: list[pa.Array]
    ) -> Mask | None:
        """Return a numpy column that is true for the rows to give; None when it is for all."""
        wanted, plan = self._wanted, self._plan
        kept = None
        if len(offsets) and (
            offsets[0] < wanted.start or (wanted.stop is not None and offsets[-1] >= wanted.stop)
        ):
            each = as_ints(offsets)
            kept = each >= wanted.start
            if wanted.stop is not None:
                kept &= each < wanted.stop
        if gone is not None and DELETED not in plan.metadata:
            kept = ~gone if kept is None else kept & ~gone
        for comparison, column, array in zip(
            plan.comparisons, plan.compared, compared, strict=True
        ):
            matching = matching_rows(array, column.type, comparison)
            kept = matching if kept is None else kept & matching
        return kept


def _record_batch(columns: list[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    # Without columns a batch still has its number of rows.
    struct = pa.Array.from_buffers(pa.struct([]), count, [None])
    return pa.RecordBatch.from_struct_array(struct)


def _microseconds(timestamps: Ints) -> pa.Array:
    most = _LARGEST_TIMESTAMP_MS
    column = np.clip(timestamps, -most, most) * _MICROSECONDS
    return int_array(column).view(METADATA_TYPES[TIMESTAMP])
