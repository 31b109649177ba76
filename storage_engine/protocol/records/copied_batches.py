"""The batches of one log as batches for another: same records, in the same order.

    batch of the source                           copied
    data, as its producer wrote it                byte for byte, but for the header
    compacted (fewer records than offsets),       each record with another offset and time delta,
      of LogAppendTime, or begun before             else byte for byte; the same codec
      `start_offset`
    smaller than SMALL_BYTES, next to another     both in one: a log of tiny batches would cost a
      such one                                      request for each
    control batches, empty ones                   left out
    typed ones                                    with the target's topic id; columns byte for byte,
                                                    also where it has gaps, is of LogAppendTime, or
                                                    begun before `start_offset`, unless that leaves
                                                    rows out. Small ones stay as they are

Damaged batches stay refused: a checksum is computed anew only where the old one was right. Spans
say which offsets of the source are in a batch. Source: R-CLI6; KIP-98.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.record_batch import (
    CODEC_MASK,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Codec,
    crc_matches,
    iter_headers,
    read_header,
    seal,
)
from storage_engine.protocol.records.record_encoder import EncodedBatch
from storage_engine.protocol.records.record_filter import OpenBatches, StoredBatch, sealed
from storage_engine.protocol.records.sections import iter_sections
from storage_engine.protocol.records.varints import Ints
from storage_engine.protocol.typed.kept_rows import TypedTarget, copied_rows
from storage_engine.protocol.typed.typed_batch import is_typed

SMALL_BYTES = 16 << 10
"""Below this size the fixed cost of a batch, some 100 microseconds here and in brokers, is more
than that of its records."""

_TOGETHER_BYTES = 1 << 20
"""The most bytes of small batches that become one."""

_CREATE_TIME = 0

_FRESH = {
    "base_offset": 0,
    "partition_leader_epoch": -1,
    "crc": 0,
    "producer_id": NO_PRODUCER_ID,
    "producer_epoch": NO_PRODUCER_EPOCH,
    "base_sequence": NO_SEQUENCE,
}
"""The fields that the leader and the producer set."""


class Span(NamedTuple):
    """Records of a batch whose offsets in the source follow one another without a gap."""

    source_start: int
    first_row: int
    """The first row in the batch, whose offsets in the target have no gaps."""
    records: int
    """The number of records."""


class CopiedBatch(NamedTuple):
    """A batch to be sent, not yet stamped by its producer."""

    batch: EncodedBatch
    spans: tuple[Span, ...]
    """Ascending, never empty."""


def copied_batches(
    pieces: Iterable[memoryview], *, start_offset: int, typed: TypedTarget | None = None
) -> Iterator[CopiedBatch]:
    """Yield the batches that `pieces` have from `start_offset` on; each piece holds whole batches
    in log order, none of an aborted transaction. CorruptRecordError names the offset of a damaged
    one.

    `typed` is what typed batches are copied for. UnknownSchemaVersionError, before anything of a
    batch is copied, when its version is newer than the schema there.
    """
    waiting = _Waiting(start_offset)
    for piece in pieces:
        for position, header in iter_headers(piece):
            if header.last_offset < start_offset or header.is_control or not header.records_count:
                continue
            batch = piece[position : position + header.size_in_bytes]
            _check(batch, header)
            if not waiting.has_room_for(header):
                yield from waiting.taken()
            if is_typed(header):
                yield from waiting.taken()
                yield _typed(batch, header, start_offset, typed)
            elif _is_whole(header, start_offset) and len(batch) >= SMALL_BYTES:
                yield from waiting.taken()
                yield _as_it_is(batch, header)
            else:
                waiting.add(batch, header)
    yield from waiting.taken()


class _Waiting:
    """Neighbouring small batches that may become one."""

    def __init__(self, start_offset: int) -> None:
        self._start_offset = start_offset
        self._batches: list[tuple[memoryview, BatchHeader]] = []
        self._size = 0

    def add(self, batch: memoryview, header: BatchHeader) -> None:
        self._batches.append((batch, header))
        self._size += len(batch)

    def has_room_for(self, header: BatchHeader) -> bool:
        if not self._batches:
            return True
        same_codec = self._batches[0][1].compression == header.compression
        return same_codec and self._size + header.size_in_bytes <= _TOGETHER_BYTES

    def taken(self) -> Iterator[CopiedBatch]:
        batches, self._batches, self._size = self._batches, [], 0
        if not batches:
            return
        batch, header = batches[0]
        if len(batches) == 1 and _is_whole(header, self._start_offset):
            yield _as_it_is(batch, header)
            return
        try:
            copied = list(_together(batches, self._start_offset))
        except CorruptRecordError:
            # Its producer may have meant it so; a batch that this reader can't decode, another may.
            for batch, header in batches:
                if _is_whole(header, self._start_offset):
                    yield _as_it_is(batch, header)
                else:
                    yield from _together([(batch, header)], self._start_offset)
            return
        yield from copied


def _together(
    batches: Sequence[tuple[memoryview, BatchHeader]], start_offset: int
) -> Iterator[CopiedBatch]:
    """Yield the records of the batches, which have one codec, in as few batches as possible."""
    opened: list[StoredBatch] = []
    size = 0
    for batch, header in batches:
        for section in iter_sections(header, batch):
            opened.append(StoredBatch(section.header, batch, section.records))
            size += len(section.records)
            if size >= _TOGETHER_BYTES:
                yield from _renumbered(OpenBatches(opened), start_offset)
                opened, size = [], 0
    if opened:
        yield from _renumbered(OpenBatches(opened), start_offset)


def _renumbered(opened: OpenBatches, start_offset: int) -> Iterator[CopiedBatch]:
    rows = np.flatnonzero(opened.offsets >= start_offset)
    ends = np.cumsum(opened.sizes[rows])
    first = done = 0
    while first < len(rows):
        # A batch has one record at least, however large.
        end = max(first + 1, int(np.searchsorted(ends, done + _TOGETHER_BYTES, side="right")))
        yield _of_rows(opened, rows[first:end])
        first, done = end, int(ends[end - 1])


def _of_rows(opened: OpenBatches, rows: Ints) -> CopiedBatch:
    times = opened.timestamps_ms[rows]
    header = opened.batches[0].header._replace(
        **_FRESH,
        attributes=opened.batches[0].header.compression,
        last_offset_delta=len(rows) - 1,
        base_timestamp=int(times[0]),
        max_timestamp=int(times.max()),
    )
    data = sealed(header, opened.renumbered(rows), len(rows))
    batch = EncodedBatch(data=memoryview(data), record_count=len(rows))
    return CopiedBatch(batch, _spans(opened.offsets[rows]))


def _typed(
    batch: memoryview, header: BatchHeader, start_offset: int, target: TypedTarget | None
) -> CopiedBatch:
    if target is None:
        raise CorruptRecordError(
            f"the record batch at offset {header.base_offset} can't be copied: it is typed, and"
            " what it is copied to has no schema"
        )
    data, offsets = copied_rows(batch, header, start_offset=start_offset, target=target)
    seal(data, 0, read_header(data)._replace(**_FRESH))
    return CopiedBatch(
        EncodedBatch(data=memoryview(data), record_count=len(offsets)), _spans(offsets)
    )


def _check(batch: memoryview, header: BatchHeader) -> None:
    problem = None
    if header.magic != MAGIC:
        problem = f"it has magic {header.magic}, only {MAGIC} can be copied"
    elif not crc_matches(batch, 0, len(batch)):
        problem = "its CRC does not match"
    elif not 0 < header.records_count <= header.last_offset_delta + 1:
        problem = (
            f"it has {header.records_count} records, but a last offset delta of "
            f"{header.last_offset_delta}"
        )
    elif header.compression > max(Codec):
        problem = f"its compression codec {header.compression} is unknown"
    if problem is not None:
        raise CorruptRecordError(
            f"the record batch at offset {header.base_offset} can't be copied: {problem}"
        )


def _is_whole(header: BatchHeader, start_offset: int) -> bool:
    """Return True when its records can stay as they are."""
    return (
        header.records_count == header.last_offset_delta + 1
        and header.timestamp_type == _CREATE_TIME
        and header.base_offset >= start_offset
    )


def _as_it_is(batch: memoryview, header: BatchHeader) -> CopiedBatch:
    data = bytearray(batch)
    # Only the codec bits of the attributes are the producer's: the source's leader or a compaction
    # has set the others, or the transaction that the batch was part of.
    fresh = header._replace(**_FRESH, attributes=header.attributes & CODEC_MASK)
    seal(data, 0, fresh)
    return CopiedBatch(
        EncodedBatch(data=memoryview(data), record_count=header.records_count),
        (Span(header.base_offset, 0, header.records_count),),
    )


def _spans(offsets: Ints) -> tuple[Span, ...]:
    firsts = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 2) != 1)
    counts = np.diff(firsts, append=len(offsets))
    columns = (offsets[firsts], firsts, counts)
    return tuple(Span(*row) for row in zip(*map(np.ndarray.tolist, columns), strict=True))
