"""The parts of a fetched answer: whole batches as they are stored, or frames of a projection.

Rule: whoever walks over an answer learns the same of a frame as of the batch that it stands for,
so positions, leader epochs and transactions are followed in one way. A leader may cut the last
batch off, but never a frame.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    iter_headers,
    read_header,
)
from storage_engine.protocol.typed.frames import iter_frames, last_frame
from storage_engine.protocol.typed.projection import WANT_FRAMES, TypedWant

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8


class FetchedPart(NamedTuple):
    """A batch, a frame, or a run of batches that the leader has skipped."""

    start: int
    """Its first byte in the answer."""
    end: int
    next_offset: int
    """The offset after its last batch."""
    leader_epoch: int
    """Of its last batch."""
    header: BatchHeader | None
    """None for a run of skipped batches."""


def iter_parts(records: memoryview, *, framed: bool) -> Iterator[FetchedPart]:
    """All whole parts in order. CorruptRecordError for damaged frames."""
    if framed:
        yield from _frames(records)
        return
    for start, header in iter_headers(records):
        yield FetchedPart(
            start,
            start + header.size_in_bytes,
            header.next_offset,
            header.partition_leader_epoch,
            header,
        )


def _frames(records: memoryview) -> Iterator[FetchedPart]:
    end = 0
    for frame in iter_frames(records):
        start, end = end, end + len(frame.data)
        yield FetchedPart(start, end, frame.next_offset, frame.leader_epoch, frame.header)


def is_framed(want: TypedWant | None) -> bool:
    """Whether the answer to a fetch that wants this has frames."""
    return want is not None and want.mode == WANT_FRAMES


class WholeBatches(NamedTuple):
    """An answer without a batch that the leader cut: it may do that to the last one."""

    records: memoryview
    next_offset: int
    """The offset after the last batch."""
    last_batch_bytes: int
    last_epoch: int
    """The leader epoch of the last batch."""

    @classmethod
    def of(cls, records: memoryview, *, framed: bool = False) -> "WholeBatches | None":
        """None when there is no whole batch. `framed`: they are frames of a projection."""
        return cls._of_frames(records) if framed else cls._of_batches(records)

    @classmethod
    def _of_batches(cls, records: memoryview) -> "WholeBatches | None":
        start = end = 0
        size = len(records)
        unpack = _LENGTH.unpack_from
        while end + HEADER_BYTES <= size:
            next_end = end + LENGTH_END + int(unpack(records, end + _LENGTH_AT)[0])
            if not end < next_end <= size:
                break
            start, end = end, next_end
        if not end:
            return None
        header = read_header(records, start)
        epoch = header.partition_leader_epoch
        return cls(records[:end], header.next_offset, end - start, epoch)

    @classmethod
    def _of_frames(cls, records: memoryview) -> "WholeBatches | None":
        # Who decodes them checks all of them.
        found = last_frame(records)
        if found is None:
            return None
        start, last = found
        return cls(records, last.next_offset, len(records) - start, last.leader_epoch)
