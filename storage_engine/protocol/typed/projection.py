"""Answers with some columns of typed batches: what a fetch asks for, and the frames it gets.

The broker's half slices stored bytes: nothing is decompressed, no column is looked into. Batches in
which no row can match the filter are skipped by their columns' minimum and maximum.

    what a partition of a Fetch request wants, in its tagged field WANT_TAG
    mode            1       0 batches as stored, 1 frames
    count           uvarint of the columns; with mode 1 only, as all that follows
    column ids      4 each
    filter                  the rest, see filter_bytes.py

    frame           at bytes
    frame_bytes      0  4   that follow this field
    kind             4  1   0 a batch as stored, 1 a projected one, 2 a run of skipped ones
    crc              5  4   CRC-32C of the kind and of the fixed part; in kinds 1 and 2
    kind 0:          5      the batch
    kind 1:          9      fixed part: the stored batch's header, 2 bytes the count of the selected
                            column ids, 4 bytes each of them; then the stored directory; then the
                            stored bytes of each column whose id is selected or below 0, in the
                            directory's order
    kind 2:          9      fixed part: 8 base offset, 8 next offset, 4 leader epoch of the last
                            batch, 8 largest timestamp

Big endian. The header in kind 1 keeps the CRC of the stored batch, which `crc_join` checks without
the columns that are left out. Control batches are always sent whole.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from crc32c import crc32c

from storage_engine.core.errors import CorruptRecordError, InvalidRequestError, KafkaError
from storage_engine.core.typed.comparisons import Comparison, may_match
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.apis.wire import uvarint
from storage_engine.protocol.records.record_batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    BatchHeader,
    BytesLike,
    iter_headers,
    read_header,
)
from storage_engine.protocol.typed.crc_join import joined_crc
from storage_engine.protocol.typed.directory import (
    MAX_ENTRIES,
    Outline,
    statistics_of,
)
from storage_engine.protocol.typed.filter_bytes import decode_filter, encode_filter
from storage_engine.protocol.typed.typed_batch import damaged, is_typed, outline_of

PieceT = TypeVar("PieceT", covariant=True)

WANT_TAG = 10_001

WANT_STORED = 0
WANT_FRAMES = 1

WHOLE = 0
PROJECTED = 1
SKIPPED = 2

_SIZE = struct.Struct(">i")
_KIND = struct.Struct(">B")
_CRC = struct.Struct(">I")
_COUNT = struct.Struct(">H")
_SKIPPED = struct.Struct(">qqiq")
_WHOLE_HEAD = struct.Struct(">iB")
_HEAD = struct.Struct(">iBI")
_FIXED_AT = _HEAD.size
_KIND_AT = _SIZE.size
_SKIPPED_BYTES = _FIXED_AT + _SKIPPED.size
_KINDS = {kind: bytes((kind,)) for kind in (WHOLE, PROJECTED, SKIPPED)}
_KIND_CRCS = {kind: crc32c(byte) for kind, byte in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class TypedWant:
    """What a reader that knows typed batches wants of a partition."""

    mode: int
    """WANT_STORED: the batches as they are; WANT_FRAMES: some columns of those that may match."""
    column_ids: tuple[int, ...] = ()
    """Of the schema; columns of the system come in any case."""
    comparisons: tuple[Comparison, ...] = ()


def encode_want(want: TypedWant) -> bytes:
    """Return the bytes of the tagged field."""
    if want.mode == WANT_STORED:
        return bytes((WANT_STORED,))
    ids = want.column_ids
    return b"".join(
        (
            bytes((want.mode,)),
            uvarint(len(ids)),
            struct.pack(f">{len(ids)}i", *ids),
            encode_filter(want.comparisons),
        )
    )


def decode_want(data: BytesLike) -> TypedWant:
    """Return what the tagged field asks for; InvalidRequestError when it is malformed or too
    large."""
    raw = bytes(data)
    if raw == bytes((WANT_STORED,)):
        return TypedWant(WANT_STORED)
    if len(raw) < 2 or raw[0] != WANT_FRAMES:
        raise InvalidRequestError("a fetch wants typed batches in a way that is unknown here")
    count, position = raw[1], 2
    if count >= 0x80:
        if len(raw) < 3 or raw[2] >= 0x80:
            raise _too_many_columns()
        count, position = count & 0x7F | raw[2] << 7, 3
    if count > MAX_ENTRIES:
        raise _too_many_columns()
    end = position + 4 * count
    if end > len(raw):
        raise InvalidRequestError("the column ids that a fetch wants are cut off")
    ids = struct.unpack(f">{count}i", raw[position:end])
    if len(set(ids)) != count:
        raise InvalidRequestError("a fetch wants a column twice")
    return TypedWant(WANT_FRAMES, ids, decode_filter(raw[end:]))


def _too_many_columns() -> InvalidRequestError:
    return InvalidRequestError(f"a fetch can't want more than {MAX_ENTRIES} columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedPieces(Generic[PieceT]):
    """Frames, as pieces to be sent one after the other."""

    pieces: Sequence[bytes | PieceT]
    size: int
    """In bytes, of all pieces."""
    end_offset: int
    """The offset after the last batch that the frames speak of; -1 without frames."""


class StoredBatches(Protocol[PieceT]):
    """Whole batches as they lie in a file or in memory. Positions count from the first one's."""

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of each batch."""
        ...

    def head(self, position: int, header: BatchHeader) -> memoryview:
        """Return the first bytes of a typed batch: header and directory, and perhaps more."""
        ...

    def piece(self, start: int, end: int) -> PieceT:
        """Return what stands for these bytes in an answer."""
        ...


class _InMemory:
    """Batches in memory, whose pieces are views of it."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        return iter_headers(self._view)

    def head(self, position: int, header: BatchHeader) -> memoryview:
        return self._view[position : position + header.size_in_bytes]

    def piece(self, start: int, end: int) -> memoryview:
        return self._view[start:end]


def project(
    view: memoryview, want: TypedWant, schema: TopicSchema, *, limit_bytes: int
) -> ProjectedPieces[memoryview]:
    """Return frames for whole batches in memory, as `project_stored` does."""
    return project_stored(_InMemory(view), want, schema, limit_bytes=limit_bytes)


def project_stored(
    stored: StoredBatches[PieceT],
    want: TypedWant,
    schema: TopicSchema | None,
    *,
    limit_bytes: int,
) -> ProjectedPieces[PieceT]:
    """Return frames for the batches: at least one, and no further one that would make them larger
    than `limit_bytes`. Without a schema nothing is skipped.

    CorruptRecordError when a directory is damaged, and when a header is by which batches would be
    skipped. What goes wrong after the first frame ends the frames, and is raised by the next call.
    """
    frames = _Frames(stored, want, limit_bytes)
    failure: KafkaError | None = None
    next_offset = -1
    try:
        for position, header in stored.headers():
            if header.base_offset < next_offset:
                raise damaged(header, f"its offsets begin before {next_offset}, where the last end")
            if not _add(frames, position, header, want, schema):
                break
            next_offset = header.next_offset
    except KafkaError as error:
        failure = error
    try:
        frames.end_run()
    except KafkaError as error:
        failure = failure or error
    if failure is not None and not frames.pieces:
        raise failure
    return ProjectedPieces(pieces=frames.pieces, size=frames.size, end_offset=frames.end_offset)


def _add(
    frames: "_Frames[PieceT]",
    position: int,
    header: BatchHeader,
    want: TypedWant,
    schema: TopicSchema | None,
) -> bool:
    """Add a batch; return False, and add nothing, when it would be too much."""
    if not is_typed(header):
        return frames.add_whole(position, header)
    head = frames.stored.head(position, header)
    outline = outline_of(header, head, is_head=True)
    if (
        want.comparisons
        and schema is not None
        and not may_have_rows(outline, want.comparisons, schema)
    ):
        return frames.skip(header, head, outline)
    return frames.add_projected(position, header, head, outline)


def may_have_rows(outline: Outline, comparisons: Sequence[Comparison], schema: TopicSchema) -> bool:
    """Return False when no row of the batch can meet all comparisons. Of a version that `schema`
    does not have yet nothing is known."""
    if outline.schema_version > schema.latest.version:
        return True
    version = schema.version(outline.schema_version)
    for comparison in comparisons:
        column_id = comparison.column_id
        entry = outline.column(column_id)
        column = version.by_id.get(column_id)
        if column is None:
            # Of another version: the rows of this one have null in it. A column that no version
            # has is refused before.
            column = schema.latest.by_id.get(column_id)
            if column is None or entry is not None:
                continue
        statistics = statistics_of(entry, column.type, outline.rows)
        if not may_match(comparison, column.type, statistics):
            return False
    return True


class _Frames(Generic[PieceT]):
    """The frames made so far, and the run of skipped batches that is not ended yet."""

    def __init__(self, stored: StoredBatches[PieceT], want: TypedWant, limit_bytes: int) -> None:
        self.stored = stored
        self.pieces: list[bytes | PieceT] = []
        self.size = 0
        self.end_offset = -1
        """The offset after the last frame."""
        self._limit_bytes = limit_bytes
        self._wanted = frozenset(want.column_ids)
        ids = want.column_ids
        self._id_list = _COUNT.pack(len(ids)) + struct.pack(f">{len(ids)}i", *ids)
        self._run: tuple[int, int, int, int] | None = None
        self._run_last: tuple[BatchHeader, memoryview, Outline] | None = None

    def add_whole(self, position: int, header: BatchHeader) -> bool:
        """Add a frame; return False, and add none, when it would be too much."""
        size = header.size_in_bytes
        if not self._has_room(_WHOLE_HEAD.size + size):
            return False
        self.end_run()
        self.end_offset = header.next_offset
        self.pieces.append(_WHOLE_HEAD.pack(1 + size, WHOLE))
        self.pieces.append(self.stored.piece(position, position + size))
        self.size += _WHOLE_HEAD.size + size
        return True

    def add_projected(
        self, position: int, header: BatchHeader, head: memoryview, outline: Outline
    ) -> bool:
        """Do the same with the wanted columns."""
        wanted = self._wanted
        at = position + HEADER_BYTES
        columns_at = at + outline.size
        # Neighbours are one piece, and so are the directory and the first column.
        spans = [[at, columns_at]]
        last = spans[0]
        for column_id, (place, stored, _, _) in outline.places.items():
            if column_id in wanted or column_id < 0:
                start = columns_at + place
                if last[1] == start:
                    last[1] = start + stored
                else:
                    last = [start, start + stored]
                    spans.append(last)
        fixed = bytes(head[:HEADER_BYTES]) + self._id_list
        size = _FIXED_AT + len(fixed)
        for start, end in spans:
            size += end - start
        if not self._has_room(size):
            return False
        self.end_run()
        self.end_offset = header.next_offset
        crc = crc32c(fixed, _KIND_CRCS[PROJECTED])
        self.pieces.append(_HEAD.pack(size - _SIZE.size, PROJECTED, crc) + fixed)
        self.pieces += [self.stored.piece(start, end) for start, end in spans]
        self.size += size
        return True

    def skip(self, header: BatchHeader, head: memoryview, outline: Outline) -> bool:
        """Add the batch to the run of skipped ones."""
        run = self._run
        if run is None:
            if not self._has_room(_SKIPPED_BYTES):
                return False
            run = (header.base_offset, 0, 0, header.max_timestamp)
        self._run = (
            run[0],
            header.next_offset,
            header.partition_leader_epoch,
            max(run[3], header.max_timestamp),
        )
        self._run_last = (header, head, outline)
        return True

    def end_run(self) -> None:
        """Add the frame of the skipped batches, if there are some. The reader goes on behind the
        last of them, so that its header must be what its producer sealed."""
        if self._run is None or self._run_last is None:
            return
        header, head, outline = self._run_last
        check_seal(header, head[ATTRIBUTES_AT:HEADER_BYTES], outline)
        fixed = _SKIPPED.pack(*self._run)
        crc = crc32c(fixed, _KIND_CRCS[SKIPPED])
        self.pieces.append(_HEAD.pack(_SKIPPED_BYTES - _SIZE.size, SKIPPED, crc) + fixed)
        self.size += _SKIPPED_BYTES
        self.end_offset = self._run[1]
        self._run = self._run_last = None

    def _has_room(self, size: int) -> bool:
        if self._run is not None:
            size += _SKIPPED_BYTES
        return (not self.size and self._run is None) or self.size + size <= self._limit_bytes


def check_seal(header: BatchHeader, fields: BytesLike, outline: Outline) -> None:
    """Check the batch's CRC without its columns, by the CRCs of them that the directory has.

    `fields` are the header's bytes from the attributes on.
    """
    directory = outline.data
    parts = [(crc32c(fields), len(fields)), (crc32c(directory), len(directory))]
    parts += [(crc, stored) for _, stored, crc, _ in outline.places.values()]
    if joined_crc(parts) != header.crc:
        raise damaged(header, "the CRC of its header, directory and columns does not match")


class TypedFrame(NamedTuple):
    """A frame of a projected answer."""

    kind: int
    data: memoryview
    """The frame's bytes, its size included."""
    base_offset: int
    next_offset: int
    leader_epoch: int
    """Of the last batch."""
    max_timestamp: int
    header: BatchHeader | None
    """None in a run of skipped batches."""
    batch: memoryview
    """WHOLE: the batch. PROJECTED: directory and columns, as stored. SKIPPED: empty."""
    column_ids: frozenset[int] = frozenset()
    """PROJECTED: the ids whose columns are there, if the batch has them."""

    @property
    def sealed_fields(self) -> memoryview:
        """PROJECTED: the header's bytes from the attributes on, which the batch's CRC covers."""
        return self.data[_FIXED_AT + ATTRIBUTES_AT : _FIXED_AT + HEADER_BYTES]


def iter_frames(data: BytesLike) -> Iterator[TypedFrame]:
    """Yield the frames of a projected answer; CorruptRecordError when one is damaged.

    Directory, columns and the batch's CRC are left to who decodes them.
    """
    view = memoryview(data).cast("B")
    position = 0
    next_offset = -1
    while position < len(view):
        if len(view) - position <= _KIND_AT:
            raise _damaged_frame(position, "its size is cut off")
        (size,) = _SIZE.unpack_from(view, position)
        end = position + _SIZE.size + size
        if size < 1 or end > len(view):
            raise _damaged_frame(
                position, f"it says it has {size} bytes, {len(view) - position - 4} are left"
            )
        frame = _read_frame(view[position:end], position)
        if not next_offset <= frame.base_offset < frame.next_offset:
            raise _damaged_frame(
                position,
                f"it has the offsets from {frame.base_offset} to {frame.next_offset}, after"
                f" {next_offset}",
            )
        next_offset = frame.next_offset
        yield frame
        position = end


def _read_frame(frame: memoryview, position: int) -> TypedFrame:
    kind = frame[_KIND_AT]
    if kind == WHOLE:
        batch = frame[_WHOLE_HEAD.size :]
        header = read_header(batch)
        if header.size_in_bytes != len(batch):
            raise _damaged_frame(
                position, f"its batch says it has {header.size_in_bytes} bytes, not {len(batch)}"
            )
        return _frame_of(kind, frame, header, batch, frozenset())
    if kind not in _KINDS:
        raise _damaged_frame(position, f"it is of the unknown kind {kind}")
    fixed_end = _fixed_end(frame, kind)
    if fixed_end > len(frame):
        raise _damaged_frame(position, "its fixed part is cut off")
    fixed = frame[_FIXED_AT:fixed_end]
    if _CRC.unpack_from(frame, _KIND_AT + 1)[0] != crc32c(fixed, _KIND_CRCS[kind]):
        raise _damaged_frame(position, "its CRC does not match")
    if kind == SKIPPED:
        if fixed_end != len(frame):
            raise _damaged_frame(position, "bytes are left behind it")
        base, following, epoch, timestamp = _SKIPPED.unpack(fixed)
        return TypedFrame(kind, frame, base, following, epoch, timestamp, None, frame[fixed_end:])
    header = read_header(fixed)
    ids = struct.unpack(f">{(len(fixed) - HEADER_BYTES) // 4}i", fixed[HEADER_BYTES + 2 :])
    return _frame_of(kind, frame, header, frame[fixed_end:], frozenset(ids))


def _fixed_end(frame: memoryview, kind: int) -> int:
    """Return where the fixed part ends, perhaps beyond the frame."""
    if kind == SKIPPED:
        return _SKIPPED_BYTES
    count_at = _FIXED_AT + HEADER_BYTES
    if count_at + _COUNT.size > len(frame):
        return len(frame) + 1
    (count,) = _COUNT.unpack_from(frame, count_at)
    return count_at + _COUNT.size + 4 * int(count)


def _frame_of(
    kind: int, frame: memoryview, header: BatchHeader, batch: memoryview, ids: frozenset[int]
) -> TypedFrame:
    return TypedFrame(
        kind,
        frame,
        header.base_offset,
        header.next_offset,
        header.partition_leader_epoch,
        header.max_timestamp,
        header,
        batch,
        ids,
    )


def _damaged_frame(position: int, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"the frame at byte {position} of an answer with columns is damaged: {reason}"
    )
