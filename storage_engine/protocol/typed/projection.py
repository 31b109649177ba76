"""Answers with some columns of typed batches: the fields of a fetch, and the frames of its answer.

The broker's half slices stored bytes: nothing is decompressed, no column is looked into. Batches in
which no row can match the filter are skipped by their columns' minimum and maximum.

    what a partition of a Fetch request wants, in its tagged field WANT_TAG
    mode            1       0 batches as stored, 1 frames
    count           uvarint of the columns; with mode 1 only, as all that follows
    column ids      4 each
    filter                  the rest, see filter_bytes.py

`frames.py` draws the frames. Control batches are always sent whole.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from crc32c import crc32c

from storage_engine.core.errors import InvalidRequestError, KafkaError
from storage_engine.core.typed.comparisons import Comparison, may_match
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.apis.wire import uvarint
from storage_engine.protocol.records.record_batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    BatchHeader,
    BytesLike,
)
from storage_engine.protocol.typed.crc_join import joined_crc
from storage_engine.protocol.typed.directory import (
    MAX_ENTRIES,
    Directory,
    statistics_of,
)
from storage_engine.protocol.typed.filter_bytes import decode_filter, encode_filter
from storage_engine.protocol.typed.frames import (
    COUNT,
    FIXED_AT,
    FRAME_HEAD,
    KIND_CRCS,
    PROJECTED,
    SIZE,
    SKIPPED,
    SKIPPED_BYTES,
    SKIPPED_FIELDS,
    WHOLE,
    WHOLE_HEAD,
)
from storage_engine.protocol.typed.typed_batch import damaged, directory_of, is_typed

PieceT = TypeVar("PieceT", covariant=True)

WANT_TAG = 10_001

WANT_STORED = 0
WANT_FRAMES = 1


@dataclass(frozen=True, slots=True)
class TypedWant:
    """The form in which a reader that knows typed batches fetches a partition."""

    mode: int
    """WANT_STORED: the batches as they are; WANT_FRAMES: some columns of those that may match."""
    column_ids: tuple[int, ...] = ()
    """The ids of columns of the schema; columns of the system come in any case."""
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
    """The size of all pieces in bytes."""
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
        """Return the piece of an answer with these bytes."""
        ...


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
    directory = directory_of(header, head, is_head=True)
    if (
        want.comparisons
        and schema is not None
        and not may_have_rows(directory, want.comparisons, schema)
    ):
        return frames.skip(header, head, directory)
    return frames.add_projected(position, header, head, directory)


def may_have_rows(
    directory: Directory, comparisons: Sequence[Comparison], schema: TopicSchema
) -> bool:
    """Return False when no row of the batch can meet all comparisons. True for a version that
    `schema` does not have yet."""
    if directory.schema_version > schema.latest.version:
        return True
    version = schema.version(directory.schema_version)
    for comparison in comparisons:
        column_id = comparison.column_id
        entry = directory.column(column_id)
        column = version.by_id.get(column_id)
        if column is None:
            # Of another version: the rows of this one have null in it. A column that no version
            # has is refused before.
            column = schema.latest.by_id.get(column_id)
            if column is None or entry is not None:
                continue
        statistics = statistics_of(entry, column.type, directory.rows)
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
        self._id_list = COUNT.pack(len(ids)) + struct.pack(f">{len(ids)}i", *ids)
        self._run: tuple[int, int, int, int] | None = None
        self._run_last: tuple[BatchHeader, memoryview, Directory] | None = None

    def add_whole(self, position: int, header: BatchHeader) -> bool:
        """Add a frame; return False, and add none, when it would be too much."""
        size = header.size_in_bytes
        if not self._has_room(WHOLE_HEAD.size + size):
            return False
        self.end_run()
        self.end_offset = header.next_offset
        self.pieces.append(WHOLE_HEAD.pack(1 + size, WHOLE))
        self.pieces.append(self.stored.piece(position, position + size))
        self.size += WHOLE_HEAD.size + size
        return True

    def add_projected(
        self, position: int, header: BatchHeader, head: memoryview, directory: Directory
    ) -> bool:
        """Do the same with the wanted columns."""
        wanted = self._wanted
        at = position + HEADER_BYTES
        columns_at = at + directory.size
        # Neighbours are one piece, and so are the directory and the first column.
        spans = [[at, columns_at]]
        last = spans[0]
        for column_id, (place, stored, _, _) in directory.places.items():
            if column_id in wanted or column_id < 0:
                start = columns_at + place
                if last[1] == start:
                    last[1] = start + stored
                else:
                    last = [start, start + stored]
                    spans.append(last)
        fixed = bytes(head[:HEADER_BYTES]) + self._id_list
        size = FIXED_AT + len(fixed)
        for start, end in spans:
            size += end - start
        if not self._has_room(size):
            return False
        self.end_run()
        self.end_offset = header.next_offset
        crc = crc32c(fixed, KIND_CRCS[PROJECTED])
        self.pieces.append(FRAME_HEAD.pack(size - SIZE.size, PROJECTED, crc) + fixed)
        self.pieces += [self.stored.piece(start, end) for start, end in spans]
        self.size += size
        return True

    def skip(self, header: BatchHeader, head: memoryview, directory: Directory) -> bool:
        """Add the batch to the run of skipped ones."""
        run = self._run
        if run is None:
            if not self._has_room(SKIPPED_BYTES):
                return False
            run = (header.base_offset, 0, 0, header.max_timestamp)
        self._run = (
            run[0],
            header.next_offset,
            header.partition_leader_epoch,
            max(run[3], header.max_timestamp),
        )
        self._run_last = (header, head, directory)
        return True

    def end_run(self) -> None:
        """Add the frame of the skipped batches, if there are some. The reader goes on behind the
        last of them, so that its header must be what its producer sealed."""
        if self._run is None or self._run_last is None:
            return
        header, head, directory = self._run_last
        check_seal(header, head[ATTRIBUTES_AT:HEADER_BYTES], directory)
        fixed = SKIPPED_FIELDS.pack(*self._run)
        crc = crc32c(fixed, KIND_CRCS[SKIPPED])
        self.pieces.append(FRAME_HEAD.pack(SKIPPED_BYTES - SIZE.size, SKIPPED, crc) + fixed)
        self.size += SKIPPED_BYTES
        self.end_offset = self._run[1]
        self._run = self._run_last = None

    def _has_room(self, size: int) -> bool:
        if self._run is not None:
            size += SKIPPED_BYTES
        return (not self.size and self._run is None) or self.size + size <= self._limit_bytes


def check_seal(
    header: BatchHeader,
    fields: BytesLike,
    directory: Directory,
    blocks: Mapping[int, BytesLike] | None = None,
) -> None:
    """Check the batch's CRC without its columns, by the CRCs of them that the directory has.

    `fields` are the header's bytes from the attributes on. `blocks` are columns that are there, by
    their ids: they are checked with the rest.
    """
    crc = crc32c(directory.data, crc32c(fields))
    missing: list[tuple[int, int]] = []
    for column_id, (_, stored, column_crc, _) in directory.places.items():
        block = blocks.get(column_id) if blocks else None
        if block is None:
            missing.append((column_crc, stored))
        else:
            if missing:
                crc = joined_crc(missing, crc)
                missing = []
            crc = crc32c(block, crc)
    if joined_crc(missing, crc) == header.crc:
        return
    for column_id, block in (blocks or {}).items():
        if crc32c(block) != directory.places[column_id][2]:
            raise damaged(header, f"the CRC of its column {column_id} does not match")
    raise damaged(header, "the CRC of its header, directory and columns does not match")
