"""From a timestamp to an offset. Its one rule: the answer is the first record, in offset order,
that is late enough.

Source: KIP-79; R-LOG11.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from storage_engine.core.errors import KafkaError
from storage_engine.log.log_segment import LogSegment
from storage_engine.protocol.record_batch import BatchHeader

DECOMPRESSED_MAX_BYTES = 64 << 20
"""A batch that is larger inside answers as a whole: what a producer packed must not fill a
broker.
"""

logger = logging.getLogger(__name__)


class TimestampedOffset(NamedTuple):
    """A record's place, time, and the epoch of the leader that wrote it."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def find_by_timestamp(
    segments: Sequence[LogSegment], timestamp_ms: int, start_offset: int, end_offset: int
) -> TimestampedOffset | None:
    """The first record of [start_offset, end_offset) that is not earlier than `timestamp_ms`."""
    if start_offset >= end_offset:
        return None
    for segment in segments:
        if segment.next_offset <= start_offset or segment.size == 0:
            continue
        if segment.base_offset >= end_offset:
            break
        if segment.largest_timestamp() < timestamp_ms:
            continue
        for position, header in segment.scan(_start(segment, timestamp_ms)):
            if header.base_offset >= end_offset:
                return None
            if (
                header.max_timestamp >= timestamp_ms
                and header.last_offset >= start_offset
                and header.records_count
            ):
                found = _within_batch(
                    segment, position, header, timestamp_ms, start_offset, end_offset
                )
                if found is not None:
                    return found
    return None


def find_largest_timestamp(
    segments: Sequence[LogSegment], start_offset: int, end_offset: int
) -> TimestampedOffset | None:
    """The first of the latest records in [start_offset, end_offset)."""
    if start_offset >= end_offset:
        return None
    inside = [
        segment
        for segment in segments
        if segment.size and segment.next_offset > start_offset and segment.base_offset < end_offset
    ]
    largest = -1
    first: TimestampedOffset | None = None
    for segment in inside:
        if start_offset <= segment.base_offset and segment.next_offset <= end_offset:
            largest = max(largest, segment.largest_timestamp())
            continue
        for position, header in segment.scan():
            if header.base_offset >= start_offset and header.next_offset <= end_offset:
                largest = max(largest, header.max_timestamp)
            elif header.base_offset < start_offset <= header.last_offset:
                # Its latest record may be one of those below the start.
                first = _largest_within_batch(segment, position, header, start_offset, end_offset)
    found = find_by_timestamp(inside, largest, start_offset, end_offset) if largest >= 0 else None
    if found is not None or first is not None:
        if found is None or (first is not None and first.timestamp_ms >= found.timestamp_ms):
            return first
        return found
    if largest < 0:
        return None
    # The latest batch is one that compaction has emptied.
    filled = [
        header.max_timestamp
        for segment in inside
        for _, header in segment.scan()
        if header.records_count
        and header.last_offset >= start_offset
        and header.next_offset <= end_offset
    ]
    return find_by_timestamp(inside, max(filled), start_offset, end_offset) if filled else None


def _start(segment: LogSegment, timestamp_ms: int) -> int:
    """Where in the segment to begin: nothing before it is as late as `timestamp_ms`."""
    entry = segment.time_index.floor(timestamp_ms)
    if entry is None:
        return 0
    position = segment.find_time(entry)
    if position is None:
        segment.repair_indexes()
        return 0
    return position


def _within_batch(
    segment: LogSegment,
    position: int,
    header: BatchHeader,
    timestamp_ms: int,
    start_offset: int,
    end_offset: int,
) -> TimestampedOffset | None:
    epoch = header.partition_leader_epoch
    if _all_have_one_time(header):
        offset = max(header.base_offset, start_offset)
        return TimestampedOffset(offset, header.max_timestamp, epoch)
    for offset, timestamp in _times_within_batch(
        segment, position, header, start_offset, end_offset
    ):
        if timestamp >= timestamp_ms:
            return TimestampedOffset(offset, timestamp, epoch)
    return None


def _largest_within_batch(
    segment: LogSegment, position: int, header: BatchHeader, start_offset: int, end_offset: int
) -> TimestampedOffset | None:
    epoch = header.partition_leader_epoch
    if not header.records_count:
        return None
    if _all_have_one_time(header):
        return TimestampedOffset(start_offset, header.max_timestamp, epoch)
    times = _times_within_batch(segment, position, header, start_offset, end_offset)
    if not times:
        return None
    offset, timestamp = max(times, key=lambda time: (time[1], -time[0]))
    return TimestampedOffset(offset, timestamp, epoch) if timestamp >= 0 else None


def _all_have_one_time(header: BatchHeader) -> bool:
    """Whether there is a record at every offset of the batch, with its largest time."""
    is_stamped = header.timestamp_type == 1 and header.records_count > header.last_offset_delta
    return is_stamped or header.is_control


def _times_within_batch(
    segment: LogSegment, position: int, header: BatchHeader, start_offset: int, end_offset: int
) -> list[tuple[int, int]]:
    """Offset and time of every record in the range."""
    # Only here: it loads Arrow, which a broker that is never asked for times does without.
    from storage_engine.protocol.records import decode_batches

    batch = segment.view(position, header.size_in_bytes)
    try:
        decoded = decode_batches(
            batch,
            start_offset=start_offset,
            end_offset=end_offset,
            max_decompressed_bytes=DECOMPRESSED_MAX_BYTES,
        )
    except KafkaError as error:
        # A producer may have sealed nonsense; not every search over it shall fail.
        logger.warning("batch not decoded segment=%s error=%s", segment.file.path, error)
        return [(max(header.base_offset, start_offset), header.max_timestamp)]
    return list(zip(decoded.offsets.to_pylist(), decoded.timestamps_ms.to_pylist(), strict=True))
