"""The producers of a log whose end is dropped, from a few batches before the cut.

A replay of all batches since the newest snapshot takes a second for 300,000 of them, on the event
loop: a follower that drops the one batch that its dead leader has not sent to others would stop the
whole broker for that time. Source: R-LOG8.
"""

from collections.abc import Collection, Iterable

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.retained.producer_state import (
    BATCHES_REMEMBERED,
    ProducerEntry,
    ProducerStates,
    SequencedBatch,
)
from storage_engine.core.transactions.partition_transactions import NO_COORDINATOR_EPOCH
from storage_engine.log.segments.log_segment import LogSegment

TAIL_BATCHES_MAX = 4096
"""The most batches of a dropped end that are looked at, some 4 us each."""

FIRST_WINDOW = 1024
"""The offsets before the cut that are looked at first, and four times as many each time after."""

PART_LOOKED_AT = 4
"""One in so many of the segment's offsets may be looked at: a replay looks at all of them."""


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
    Return False, and change nothing, where a look at a part of the segment does not tell enough."""
    known: list[ProducerEntry] = []
    begun: list[int] = []
    left: set[int] = set()
    for producer_id in ids:
        before = states.get(producer_id)
        if before is None:
            return False
        kept = [batch for batch in before.batches if batch.last_offset < segment.next_offset]
        if len(before.batches) < BATCHES_REMEMBERED and kept:
            # None of its epoch is forgotten.
            known.append(_with_batches(before, before.epoch, kept))
        elif _begins_with_what_is_remembered(before) and not kept:
            begun.append(producer_id)
        else:
            left.add(producer_id)
    found = _found_before_the_end(states, segment, left)
    if found is None:
        return False
    states.put_back([*known, *found], without=begun)
    return True


def _begins_with_what_is_remembered(entry: ProducerEntry) -> bool:
    """Whether the producer, which no marker has given another epoch, has written nothing before."""
    return (
        entry.epoch == 0
        and entry.coordinator_epoch == NO_COORDINATOR_EPOCH
        and 0 < len(entry.batches) < BATCHES_REMEMBERED
        and entry.batches[0].first_sequence == 0
    )


def _with_batches(
    before: ProducerEntry, epoch: int, batches: Iterable[SequencedBatch]
) -> ProducerEntry:
    # No marker is behind the cut, so its coordinator's epoch is as it was.
    return ProducerEntry(
        before.producer_id,
        epoch,
        before.last_seen_ms,
        batches,
        coordinator_epoch=before.coordinator_epoch,
    )


def _found_before_the_end(
    states: ProducerStates, segment: LogSegment, ids: Collection[int]
) -> list[ProducerEntry] | None:
    """Return the entries of the producers with these ids, by the batches at the segment's end; None
    where it does not have enough of them."""
    longest = (segment.next_offset - segment.base_offset) // PART_LOOKED_AT
    window = FIRST_WINDOW
    while ids:
        start = max(segment.base_offset, segment.next_offset - window)
        known = _entries_since(states, segment, start, ids)
        if known is None or len(known) == len(ids):
            return known
        window *= 4
        if window > longest:
            return None
    return []


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
            entries.append(_with_batches(before, epochs[producer_id], some))
    return entries
