"""Gives batches their offsets in the log. A batch is patched in memory; its parsed header is not.

So the offset that counts is the one beside the header, which keeps the producer's values. Source:
R-LOG6.
"""

from collections.abc import Iterator

from storage_engine.protocol.records.record_batch import BatchHeader, patch, patch_log_append_time

MAX_RELATIVE_OFFSET = 0x7FFFFFFF
"""Indexes hold offsets as int32, relative to the base offset of their segment."""

PlacedBatch = tuple[int, BatchHeader]
"""The base offset in the log, and the header as it was sent."""


def place(
    records: memoryview,
    batches: list[tuple[int, BatchHeader]],
    base_offset: int,
    leader_epoch: int,
    stamp_ms: int | None,
) -> list[PlacedBatch]:
    """Writes consecutive offsets from `base_offset` on, the epoch, and the time of the append if
    given, into `records`.
    """
    placed = []
    for position, header in batches:
        if stamp_ms is not None:
            patch_log_append_time(records, position, stamp_ms)
        patch(records, position, base_offset=base_offset, leader_epoch=leader_epoch)
        placed.append((base_offset, header))
        base_offset += header.last_offset_delta + 1
    return placed


def runs_of(
    batches: list[tuple[int, BatchHeader]], max_bytes: int
) -> Iterator[tuple[int, int, list[PlacedBatch]]]:
    """Yields contiguous batches in runs that fit a segment: byte range, then (base offset, header).

    A run has at most `max_bytes` or is one batch, and its offsets are within an int32 of each
    other.
    """
    begin = batches[0][0]
    placed: list[PlacedBatch] = []
    for position, header in batches:
        if placed and (
            position + header.size_in_bytes - begin > max_bytes
            or header.last_offset - placed[0][0] > MAX_RELATIVE_OFFSET
        ):
            yield begin, position, placed
            begin, placed = position, []
        placed.append((header.base_offset, header))
    position, header = batches[-1]
    yield begin, position + header.size_in_bytes, placed
