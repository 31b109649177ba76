"""The producers of a log whose end is dropped, from a few batches before the cut.

A replay of all batches since the newest snapshot takes a second for 300,000 of them, on the event
loop: a follower that drops the one batch that its dead leader has not sent to others would stop the
whole broker for that time. Source: R-LOG8.
"""

from collections.abc import Collection

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.retained.producer_state import (
    BATCHES_REMEMBERED,
    ProducerEntry,
    ProducerStates,
    SequencedBatch,
)
from storage_engine.log.segments.log_segment import LogSegment

TAIL_BATCHES_MAX = 4096
"""The most batches of a dropped end that are looked at, some 4 us each."""

FIRST_WINDOW = 1024
"""The offsets before the cut that are looked at first, and four times as many each time after."""


def producers_of_tail(segment: LogSegment, offset: int) -> set[int] | None:
    """Return the ids of the producers with batches that end at or after `offset` in the log's last
    segment; None where only a replay tells what their end leaves: it begins before that segment, is
    long or damaged, or has batches of a transaction."""
    if offset <= segment.base_offset:
        return None
    ids: set[int] = set()
    try:
        found = segment.find(offset)
        if found is None:
            return ids
        for number, (_, header) in enumerate(segment.scan(found[0])):
            if header.is_control or header.is_transactional or number >= TAIL_BATCHES_MAX:
                return None
            if header.producer_id >= 0:
                ids.add(header.producer_id)
    except CorruptRecordError:
        return None
    return ids


def take_back(states: ProducerStates, segment: LogSegment, ids: Collection[int]) -> bool:
    """Bring the producers with these ids to the end of the log's last segment, which was cut since.
    Return False, and change nothing, where the segment does not tell enough."""
    window = FIRST_WINDOW
    while ids:
        start = max(segment.base_offset, segment.next_offset - window)
        known = _entries_since(states, segment, start, ids)
        if known is None:
            return False
        if len(known) == len(ids):
            states.put_back(known)
            return True
        if start == segment.base_offset:
            return False
        window *= 4
    states.put_back(())
    return True


def _entries_since(
    states: ProducerStates, segment: LogSegment, start: int, ids: Collection[int]
) -> list[ProducerEntry] | None:
    """Return the entries that are the same whatever lies before `start`; None when no window is
    wide enough."""
    batches: dict[int, list[SequencedBatch]] = {producer_id: [] for producer_id in ids}
    epochs: dict[int, int] = {}
    whole: set[int] = set()
    """Those with a change of epoch in the window: it drops what came before."""
    try:
        found = segment.find(start) if segment.next_offset > start else None
        for _, header in segment.scan(found[0]) if found is not None else ():
            producer_id = header.producer_id
            if producer_id not in batches:
                continue
            if header.is_control:
                # No batch of it, and it may have raised the epoch.
                return None
            if epochs.setdefault(producer_id, header.producer_epoch) != header.producer_epoch:
                epochs[producer_id] = header.producer_epoch
                batches[producer_id].clear()
                whole.add(producer_id)
            batches[producer_id].append(
                SequencedBatch(
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
            )
    except CorruptRecordError:
        return None
    entries = []
    for producer_id, some in batches.items():
        before = states.get(producer_id)
        if before is None:
            return None
        if len(some) >= BATCHES_REMEMBERED or producer_id in whole:
            # No marker is behind the cut, so its coordinator's epoch is as it was.
            entries.append(
                ProducerEntry(
                    producer_id,
                    epochs[producer_id],
                    before.last_seen_ms,
                    some,
                    coordinator_epoch=before.coordinator_epoch,
                )
            )
    return entries
