"""Many record batches at once: one column per field in place of one object per batch.

A follower reads what its leader sends this way. The columns only prove that all batches are good;
if one is not, each has to be checked by itself to find the error: `log/follower_appends`.

Every step here is one call of the standard library for all batches, since a loop over them in the
interpreter costs more than their CRCs. Source: R-LOG12; the layout is that of `record_batch`.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import add, and_
from typing import NamedTuple

from crc32c import crc32c

from storage_engine.protocol.records.record_batch import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    MIN_BATCH_LENGTH,
    TRANSACTIONAL_BIT,
    BytesLike,
)

_HEAD = struct.Struct(">qiibI")
"""The fields before the attributes: base offset, length, leader epoch, magic, CRC."""
_FIELDS = struct.Struct(">hi8xqqhii")
"""The rest of the header, without the base timestamp."""

assert _HEAD.size == ATTRIBUTES_AT


MAX_OFFSET = (1 << 63) - 1
"""The largest offset: an int64, which the log's end is, too."""


class BatchColumns:
    """Batches of magic 2 whose length fields are right; nothing else is checked yet."""

    __slots__ = (
        "_crcs",
        "_sealed",
        "attributes",
        "counts",
        "last_offset_deltas",
        "max_timestamps",
        "producer_epochs",
        "producer_ids",
        "sequences",
        "sizes",
    )

    attributes: tuple[int, ...]
    last_offset_deltas: tuple[int, ...]
    max_timestamps: tuple[int, ...]
    producer_ids: tuple[int, ...]
    producer_epochs: tuple[int, ...]
    sequences: tuple[int, ...]
    counts: tuple[int, ...]

    def __init__(self, crcs: list[int], sealed: Sequence[BytesLike]) -> None:
        """`sealed` has for each batch the bytes that its CRC protects, from the attributes on."""
        self._crcs = crcs
        self._sealed = sealed
        self.sizes = list(map(add, map(len, sealed), repeat(ATTRIBUTES_AT)))
        """The sizes of whole batches, in bytes."""
        (
            self.attributes,
            self.last_offset_deltas,
            self.max_timestamps,
            self.producer_ids,
            self.producer_epochs,
            self.sequences,
            self.counts,
        ) = zip(*map(_FIELDS.unpack_from, sealed), strict=True)

    def __len__(self) -> int:
        return len(self._sealed)

    @property
    def crcs_match(self) -> bool:
        return list(map(crc32c, self._sealed)) == self._crcs

    @property
    def have_no_producer(self) -> bool:
        return max(self.producer_ids) < 0


class StoredRun(NamedTuple):
    """Batches of a leader's log, which go on where another log ends."""

    leader_epoch: int
    """The epoch of all of them."""

    columns: BatchColumns
    offsets: list[int]
    """The base offset of each batch, and the offset after the last one."""
    size: int
    """The size in bytes, without a batch that is cut off at the end."""

    @property
    def transactional(self) -> Sequence[int]:
        """A number for each batch, not 0 if it belongs to a transaction."""
        return list(map(and_, self.columns.attributes, repeat(TRANSACTIONAL_BIT)))


def end_of_batches(records: memoryview, most: int) -> tuple[int, int]:
    """Return where the first `most` batches end, and how many these are, by their length fields
    alone. All of `records` belongs to them where fewer are whole, or where a length is wrong."""
    size, position, count = len(records), 0, 0
    unpack = _HEAD.unpack_from
    while count < most and size - position >= HEADER_BYTES:
        length = unpack(records, position)[1]
        count += 1
        position += LENGTH_END + length
        if length < MIN_BATCH_LENGTH or position >= size:
            return size, count
    return (position if count == most else size), count


def stored_run(records: memoryview, next_offset: int) -> StoredRun | None:
    """Return the whole batches of `records` if they are good data of one leader epoch, without a
    gap from `next_offset` on; else None, and each has to be checked by itself."""
    crcs: list[int] = []
    sealed: list[BytesLike] = []
    bases: list[int] = []
    position, end = 0, len(records)
    unpack = _HEAD.unpack_from
    leader_epoch: int = unpack(records)[2] if end >= HEADER_BYTES else -1
    while end - position >= HEADER_BYTES:
        base_offset, length, epoch, magic, crc = unpack(records, position)
        following = position + LENGTH_END + length
        if length < MIN_BATCH_LENGTH or magic != MAGIC or epoch != leader_epoch:
            return None
        if following > end:
            break
        bases.append(base_offset)
        crcs.append(crc)
        sealed.append(records[position + ATTRIBUTES_AT : following])
        position = following
    if not bases:
        return None
    columns = BatchColumns(crcs, sealed)
    deltas = columns.last_offset_deltas
    # Compaction leaves batches with fewer records than offsets.
    offsets = list(accumulate(map(add, deltas, repeat(1)), initial=next_offset))
    if (
        min(deltas) < 0
        or offsets[:-1] != bases
        or offsets[-1] > MAX_OFFSET
        or any(map(and_, columns.attributes, repeat(CONTROL_BIT)))
        or not columns.crcs_match
    ):
        return None
    return StoredRun(leader_epoch, columns, offsets, position)
