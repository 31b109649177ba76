"""Decodes record batches into rows of Arrow arrays, for all batches at once.

Bytes off the wire are never trusted. Every position is checked against its record's end before it
is read, whatever is wrong is a CorruptRecordError that names the batch's offset, and the work grows
with the bytes, not with what they claim.

Batches are decoded together, about GROUP_BYTES in one pass, because a pass costs some hundred
microseconds however few records it has: thousands of batches of one record take a few passes.

    column         type
    key, value     binary
    offset         int64
    timestamp      timestamp[us, UTC]
    timestampType  int32
    headers        list<struct<key: string, value: binary>>

Source: the record format of the Kafka protocol (drawn in record_encoder.py); R-LOG7.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Generic, NamedTuple, TypeAlias, TypedDict, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.arrow_binary import LARGEST_ARRAY_BYTES, gather, int64_values
from storage_engine.protocol.records.compression import joined
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    MAGIC,
    TYPED_BIT,
    BatchHeader,
    BytesLike,
    Codec,
    crc_matches,
    iter_headers,
)
from storage_engine.protocol.records.record_chain import (
    BrokenChainError,
    RecordRegions,
    find_records,
)
from storage_engine.protocol.records.record_fields import (
    DamagedRecordError,
    RecordFields,
    check_offset_deltas,
    read_fields,
)
from storage_engine.protocol.records.record_headers import (
    HEADERS_TYPE,
    DamagedHeaderError,
    decode_headers,
)
from storage_engine.protocol.records.sections import Section, corrupt_batch, iter_sections
from storage_engine.protocol.records.varints import Ints

GROUP_BYTES = 1 << 20
"""The decompressed bytes of one pass: enough to hide a pass's fixed cost, few enough to stay in the
cache."""

DEFAULT_MAX_DECOMPRESSED_BYTES = 128 << 20
"""The limit of one batch where its rows are wanted in one piece."""

_MICROSECONDS = 1000
_NO_END = (1 << 63) - 1
_LARGEST_TIMESTAMP_MS = ((1 << 63) - 1) // _MICROSECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRecords:
    """Rows as Arrow arrays of one length, ascending by offset within each batch."""

    keys: pa.Array
    """binary; None when not requested"""
    values: pa.Array
    """binary; None when not requested"""
    offsets: pa.Array
    """int64"""
    timestamps_ms: pa.Array
    """int64; -1 where the producer gave none"""
    timestamp_types: pa.Array
    """int32; 0 CreateTime, 1 LogAppendTime"""
    headers: pa.Array
    """HEADERS_TYPE; None when not requested"""

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def timestamps(self) -> pa.Array:
        """Return timestamp[us, UTC], as Spark has them; times outside its range become its first or
        last."""
        most = _LARGEST_TIMESTAMP_MS
        microseconds = np.clip(int64_values(self.timestamps_ms), -most, most) * _MICROSECONDS
        return _plain_array(microseconds, pa.timestamp("us", tz="UTC"))


Buffer: TypeAlias = BytesLike | pa.Buffer
"""Concatenated batches in log order."""

Log = TypeVar("Log")
"""The type by which the caller names a log."""


class Decoding(TypedDict, total=False):
    """The keyword arguments that `iter_decoded_logs` and its like share."""

    include_headers: bool
    include_keys: bool
    include_values: bool
    max_decompressed_bytes: int | None
    check_crcs: bool
    group_bytes: int


def decode_batches(
    buffers: Buffer | Iterable[Buffer],
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    **decoding: Unpack[Decoding],
) -> DecodedRecords:
    """Return all rows of iter_decoded in one piece; at most 2 GiB of keys, and of values, and at
    most DEFAULT_MAX_DECOMPRESSED_BYTES of a batch."""
    decoding.setdefault("max_decompressed_bytes", DEFAULT_MAX_DECOMPRESSED_BYTES)
    parts = list(
        iter_decoded(buffers, start_offset=start_offset, end_offset=end_offset, **decoding)
    ) or [_no_records(decoding.get("include_headers", False))]
    if len(parts) == 1:
        return parts[0]

    def joined_column(name: str) -> pa.Array | None:
        columns = [getattr(part, name) for part in parts]
        return None if columns[0] is None else pa.concat_arrays(columns)

    return DecodedRecords(
        **{each.name: joined_column(each.name) for each in fields(DecodedRecords)}
    )


def iter_decoded(
    buffers: Buffer | Iterable[Buffer],
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    **decoding: Unpack[Decoding],
) -> Iterator[DecodedRecords]:
    """Yield the records with start_offset <= offset < end_offset, about `group_bytes` of them at a
    time. Columns that are not included are checked all the same, but not copied out.

    `buffers` is one buffer or an iterable of them, each of concatenated batches in log order; a
    batch cut off at the end of a buffer is left out. Control batches give no rows, nor do empty
    ones (left by compaction). No empty piece is yielded. Memory does not grow with batches, only
    with records. Raises CorruptRecordError, also for a batch of more than `max_decompressed_bytes`.
    """
    pieces = (LogPiece(None, buffer, start_offset, end_offset) for buffer in _each_buffer(buffers))
    return (each.records for each in iter_decoded_logs(pieces, **decoding))


class LogPiece(NamedTuple, Generic[Log]):
    """Concatenated batches of one log, and which of its offsets are wanted."""

    log: Log
    buffer: Buffer
    start_offset: int = 0
    end_offset: int | None = None


class DecodedLogs(NamedTuple, Generic[Log]):
    """Records of several logs."""

    records: DecodedRecords
    rows: list[tuple[Log, int]]
    """Runs of rows, in order: the log of each, and the number of its rows."""


def iter_decoded_logs(
    pieces: Iterable[LogPiece[Log]],
    *,
    include_headers: bool = False,
    include_keys: bool = True,
    include_values: bool = True,
    max_decompressed_bytes: int | None = None,
    check_crcs: bool = True,
    group_bytes: int = GROUP_BYTES,
) -> Iterator[DecodedLogs[Log]]:
    """`iter_decoded` for several logs, whose small pieces are decoded in one pass. Rows come in the
    order of the pieces."""
    columns = _Columns(include_keys, include_values, include_headers)
    group: _Group[Log] = _Group()
    for part in _parts(pieces, max_decompressed_bytes, check_crcs=check_crcs):
        if group.size + len(part.section.records) > LARGEST_ARRAY_BYTES:
            yield from _decode_group(group, columns)
            group = _Group()
        group.add(part)
        if group.size >= group_bytes:
            yield from _decode_group(group, columns)
            group = _Group()
    yield from _decode_group(group, columns)


def _parts(
    pieces: Iterable[LogPiece[Log]], max_bytes: int | None, *, check_crcs: bool
) -> Iterator["_Part[Log]"]:
    for piece in pieces:
        wanted = _Range(piece.start_offset, piece.end_offset)
        buffer = memoryview(piece.buffer).cast("B")
        for position, header in iter_headers(buffer):
            if not wanted.touches(header) or header.is_control or not header.records_count:
                continue
            batch = buffer[position : position + header.size_in_bytes]
            _check_batch(batch, header, check_crc=check_crcs)
            for section in iter_sections(header, batch, max_bytes=max_bytes):
                yield _Part(section, buffer, position, wanted, piece.log)


class _Range(NamedTuple):
    """The wanted offsets, half-open; without end when `stop` is None."""

    start: int
    stop: int | None

    def touches(self, header: BatchHeader) -> bool:
        if header.last_offset < self.start:
            return False
        return self.stop is None or header.base_offset < self.stop

    def covers(self, header: BatchHeader) -> bool:
        if header.base_offset < self.start:
            return False
        return self.stop is None or header.last_offset < self.stop


class _Columns(NamedTuple):
    """The wanted columns among those that cost a copy."""

    keys: bool
    values: bool
    headers: bool


class _Part(NamedTuple, Generic[Log]):
    """A batch to decode, or a section of it."""

    section: Section
    buffer: memoryview
    position: int
    """The position of the batch in `buffer`."""
    wanted: _Range
    log: Log


@dataclass(slots=True)
class _Group(Generic[Log]):
    """Batches to decode in one pass."""

    parts: list[_Part[Log]] = field(default_factory=list)
    size: int = 0
    in_place: bool = True
    """True when all records lie uncompressed in one buffer."""

    def add(self, part: _Part[Log]) -> None:
        uncompressed = part.section.header.compression == Codec.NONE
        first = self.parts[0] if self.parts else part
        self.in_place = self.in_place and uncompressed and part.buffer is first.buffer
        self.parts.append(part)
        self.size += len(part.section.records)


def _each_buffer(buffers: Buffer | Iterable[Buffer]) -> Iterator[Buffer]:
    if isinstance(buffers, (bytes, bytearray, memoryview, pa.Buffer)):
        buffers = (buffers,)
    yield from buffers


def _check_batch(batch: memoryview, header: BatchHeader, *, check_crc: bool) -> None:
    """Make the checks that don't need the records."""
    count = header.records_count
    if header.magic != MAGIC:
        raise corrupt_batch(header, f"it has magic {header.magic}, only {MAGIC} can be read")
    if header.attributes & TYPED_BIT and count:
        raise CorruptRecordError(
            f"the record batch at offset {header.base_offset} has columns, not records: it is read"
            " with the schema of its topic"
        )
    if check_crc and not crc_matches(batch, 0, len(batch)):
        raise corrupt_batch(header, "its CRC does not match")
    if count < 0 or header.last_offset_delta < count - 1:
        raise corrupt_batch(
            header, f"it has {count} records, but a last offset delta of {header.last_offset_delta}"
        )


def _decode_group(group: _Group[Log], columns: _Columns) -> Iterator[DecodedLogs[Log]]:
    """Yield the group's wanted records as one piece; nothing where it has none."""
    if not group.parts:
        return
    sections = [part.section for part in group.parts]
    try:
        decoded = _decode(group, columns)
    except BrokenChainError as error:
        raise _damaged(sections[error.region], error.record, error.reason) from None
    except DamagedRecordError as error:
        ends = np.cumsum([section.header.records_count for section in sections])
        region = int(np.searchsorted(ends, error.row, side="right"))
        section = sections[region]
        record = error.row - int(ends[region]) + section.header.records_count
        raise _damaged(section, record, error.reason) from None
    if len(decoded.records):
        yield decoded


def _damaged(section: Section, record: int, reason: str) -> CorruptRecordError:
    return corrupt_batch(section.header, f"record {section.first_record + record}: {reason}")


def _decode(group: _Group[Log], columns: _Columns) -> DecodedLogs[Log]:
    buffer, regions = _lay_out(group)
    source = np.frombuffer(buffer, np.uint8)
    fields = read_fields(source, find_records(source, regions))
    per_batch = _PerBatch([part.section.header for part in group.parts], regions.counts)
    deltas = fields.offset_deltas
    check_offset_deltas(deltas, per_batch.column("last_offset_delta"), regions.counts)
    offsets = per_batch.column("base_offset") + deltas
    timestamps = per_batch.timestamps(fields.timestamp_deltas)
    types = per_batch.column("timestamp_type").astype(np.int32)
    rows: Ints | None = None
    counts = regions.counts
    if not all(part.wanted.covers(part.section.header) for part in group.parts):
        rows = _wanted_rows(group.parts, offsets, counts)
        ends = np.searchsorted(rows, np.cumsum(counts))
        counts = np.diff(ends, prepend=0)
        offsets, timestamps, types = offsets[rows], timestamps[rows], types[rows]
        fields = RecordFields(*(column[rows] for column in fields))
    arrow_buffer = pa.py_buffer(buffer)
    headers = None
    if columns.headers and not np.count_nonzero(fields.header_counts):
        headers = pa.nulls(len(offsets), HEADERS_TYPE)
    elif columns.headers:
        try:
            headers = decode_headers(
                source, arrow_buffer, fields.header_starts, fields.stops, fields.header_counts
            )
        except DamagedHeaderError as error:
            row = error.index if rows is None else int(rows[error.index])
            raise DamagedRecordError(row, error.reason) from None
    keys = values = None
    if columns.keys:
        keys = gather(arrow_buffer, fields.key_starts, fields.key_lengths)
    if columns.values:
        values = gather(arrow_buffer, fields.value_starts, fields.value_lengths)
    records = DecodedRecords(
        keys=keys,
        values=values,
        offsets=_plain_array(offsets, pa.int64()),
        timestamps_ms=_plain_array(timestamps, pa.int64()),
        timestamp_types=_plain_array(types, pa.int32()),
        headers=headers,
    )
    return DecodedLogs(records, _rows_by_log(group.parts, counts))


def _wanted_rows(parts: list[_Part[Log]], offsets: Ints, counts: Ints) -> Ints:
    """The numbers of the rows whose offsets are wanted."""
    starts = np.array([part.wanted.start for part in parts], np.int64)
    stops = [_NO_END if part.wanted.stop is None else part.wanted.stop for part in parts]
    inside = offsets >= np.repeat(starts, counts)
    inside &= offsets < np.repeat(np.array(stops, np.int64), counts)
    return np.flatnonzero(inside)


def _rows_by_log(parts: Iterable[_Part[Log]], counts: Ints) -> list[tuple[Log, int]]:
    found: list[tuple[Log, int]] = []
    for part, count in zip(parts, counts.tolist(), strict=True):
        if found and found[-1][0] == part.log:
            found[-1] = (part.log, found[-1][1] + count)
        elif count:
            found.append((part.log, count))
    return found


def _lay_out(group: _Group[Log]) -> tuple[BytesLike, RecordRegions]:
    """Return one buffer with the records of all parts, and their places. Copies nothing when they
    lie in one buffer already."""
    parts = group.parts
    sizes = np.array([len(part.section.records) for part in parts], np.int64)
    counts = np.array([part.section.header.records_count for part in parts], np.int64)
    if group.in_place:
        starts = np.array([part.position for part in parts], np.int64)
        first = parts[0].position + HEADER_BYTES
        starts -= starts[0]
        stops = starts + sizes
        return parts[0].buffer[first : first + int(stops[-1])], RecordRegions(starts, stops, counts)
    stops = np.cumsum(sizes)
    whole = joined([part.section.records for part in parts])
    return whole, RecordRegions(stops - sizes, stops, counts)


class _PerBatch:
    """Fields of the batch headers as columns with a value per record."""

    def __init__(self, headers: list[BatchHeader], counts: Ints) -> None:
        self._headers = headers
        self._counts = counts

    def column(self, name: str) -> Ints:
        values = np.array([getattr(header, name) for header in self._headers], np.int64)
        return np.repeat(values, self._counts)

    def timestamps(self, deltas: Ints) -> Ints:
        """Return the timestamps; with LogAppendTime every record of a batch has the batch's
        time."""
        kinds = {header.timestamp_type for header in self._headers}
        if kinds == {0}:
            return self.column("base_timestamp") + deltas
        appended = self.column("max_timestamp")
        if kinds == {1}:
            return appended
        created = self.column("base_timestamp") + deltas
        return np.where(self.column("timestamp_type") == 1, appended, created)


def _plain_array(column: npt.NDArray[np.integer], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _no_records(include_headers: bool) -> DecodedRecords:
    return DecodedRecords(
        keys=pa.array([], pa.binary()),
        values=pa.array([], pa.binary()),
        offsets=pa.array([], pa.int64()),
        timestamps_ms=pa.array([], pa.int64()),
        timestamp_types=pa.array([], pa.int32()),
        headers=pa.array([], HEADERS_TYPE) if include_headers else None,
    )
