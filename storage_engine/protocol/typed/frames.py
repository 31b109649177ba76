"""The frames of a projected answer, and how a reader takes them apart.

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
the columns that are left out.
"""

import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.record_batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    BatchHeader,
    BytesLike,
    read_header,
)
from storage_engine.protocol.typed.directory import TOPIC_ID_AT
from storage_engine.protocol.typed.typed_batch import is_typed

WHOLE = 0
PROJECTED = 1
SKIPPED = 2

SIZE = struct.Struct(">i")
COUNT = struct.Struct(">H")
SKIPPED_FIELDS = struct.Struct(">qqiq")
WHOLE_HEAD = struct.Struct(">iB")
FRAME_HEAD = struct.Struct(">iBI")
FIXED_AT = FRAME_HEAD.size
KIND_AT = SIZE.size
SKIPPED_BYTES = FIXED_AT + SKIPPED_FIELDS.size
_CRC = struct.Struct(">I")
_ORIGIN = struct.Struct(">16si")
"""A topic's id and a schema's version, as a directory has them."""
_KINDS = {kind: bytes((kind,)) for kind in (WHOLE, PROJECTED, SKIPPED)}
KIND_CRCS = {kind: crc32c(byte) for kind, byte in _KINDS.items()}

NO_ORIGIN = (bytes(16), 0)
"""The origin of a batch with records in place of columns."""


class TypedFrame(NamedTuple):
    """A frame of a projected answer."""

    kind: int
    data: memoryview
    """The frame's bytes, its size included."""
    base_offset: int
    next_offset: int
    leader_epoch: int
    """The leader epoch of the last batch in the frame."""
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
        return self.data[FIXED_AT + ATTRIBUTES_AT : FIXED_AT + HEADER_BYTES]


def frame_bounds(view: memoryview) -> Iterator[tuple[int, int]]:
    """Yield where each frame of an answer begins and ends, without a look into it;
    CorruptRecordError where a frame is cut off."""
    position, end = 0, len(view)
    unpack, head = SIZE.unpack_from, SIZE.size
    while position < end:
        if end - position <= KIND_AT:
            raise _damaged_frame(position, "its size is cut off")
        (size,) = unpack(view, position)
        following = position + head + size
        if size < 1 or following > end:
            raise _damaged_frame(
                position, f"it says it has {size} bytes, {end - position - head} are left"
            )
        yield position, following
        position = following


def last_frame(view: memoryview) -> tuple[int, TypedFrame] | None:
    """Return where the last frame of an answer begins, and the frame, which alone is checked; None
    when there is none."""
    bounds = deque(frame_bounds(view), maxlen=1)
    if not bounds:
        return None
    ((start, end),) = bounds
    return start, _read_frame(view[start:end], start)


def origin_of(frame: memoryview) -> tuple[bytes, int] | None:
    """Return the topic id and the schema version of a frame's rows, read from its directory alone.
    None without rows, and where decoding will find damage; NO_ORIGIN for a batch without
    columns."""
    kind = frame[KIND_AT]
    if kind == WHOLE:
        return batch_origin(frame[WHOLE_HEAD.size :])
    header_end = FIXED_AT + HEADER_BYTES
    if kind != PROJECTED or len(frame) < header_end + COUNT.size:
        return None
    (count,) = COUNT.unpack_from(frame, header_end)
    directory_at = header_end + COUNT.size + 4 * count
    return _origin(read_header(frame, FIXED_AT), frame, directory_at)


def batch_origin(batch: memoryview) -> tuple[bytes, int] | None:
    """Return the origin of a whole batch, as `origin_of` does."""
    if len(batch) < HEADER_BYTES:
        return None
    return _origin(read_header(batch), batch, HEADER_BYTES)


def _origin(header: BatchHeader, data: memoryview, directory_at: int) -> tuple[bytes, int] | None:
    if header.is_control or not header.records_count:
        return None
    if not is_typed(header):
        return NO_ORIGIN
    at = directory_at + TOPIC_ID_AT
    return _ORIGIN.unpack_from(data, at) if at + _ORIGIN.size <= len(data) else None


def iter_frames(data: BytesLike) -> Iterator[TypedFrame]:
    """Yield the frames of a projected answer; CorruptRecordError when one is damaged.

    Directory, columns and the batch's CRC are checked by the decoder.
    """
    view = memoryview(data).cast("B")
    next_offset = -1
    for position, end in frame_bounds(view):
        frame = _read_frame(view[position:end], position)
        if not next_offset <= frame.base_offset < frame.next_offset:
            raise _damaged_frame(
                position,
                f"it has the offsets from {frame.base_offset} to {frame.next_offset}, after"
                f" {next_offset}",
            )
        next_offset = frame.next_offset
        yield frame


def _read_frame(frame: memoryview, position: int) -> TypedFrame:
    kind = frame[KIND_AT]
    if kind == WHOLE:
        batch = frame[WHOLE_HEAD.size :]
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
    fixed = frame[FIXED_AT:fixed_end]
    if _CRC.unpack_from(frame, KIND_AT + 1)[0] != crc32c(fixed, KIND_CRCS[kind]):
        raise _damaged_frame(position, "its CRC does not match")
    if kind == SKIPPED:
        if fixed_end != len(frame):
            raise _damaged_frame(position, "bytes are left behind it")
        base, following, epoch, timestamp = SKIPPED_FIELDS.unpack(fixed)
        return TypedFrame(kind, frame, base, following, epoch, timestamp, None, frame[fixed_end:])
    header = read_header(fixed)
    ids = struct.unpack(f">{(len(fixed) - HEADER_BYTES) // 4}i", fixed[HEADER_BYTES + 2 :])
    return _frame_of(kind, frame, header, frame[fixed_end:], frozenset(ids))


def _fixed_end(frame: memoryview, kind: int) -> int:
    """Return where the fixed part ends, perhaps beyond the frame."""
    if kind == SKIPPED:
        return SKIPPED_BYTES
    count_at = FIXED_AT + HEADER_BYTES
    if count_at + COUNT.size > len(frame):
        return len(frame) + 1
    (count,) = COUNT.unpack_from(frame, count_at)
    return count_at + COUNT.size + 4 * int(count)


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
