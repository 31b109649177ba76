"""Compares two replicas of a partition batch by batch: where they first differ, and in what.

Batches are compared as bytes (so offsets, leader epochs and contents all count), and each CRC is
checked; records are not decoded. Each replica of a compacted topic compacts its log by itself:
there a batch is compared only where both have it with the same number of records. Source: R-TOOL2.
"""

from dataclasses import dataclass
from typing import Protocol

from storage_engine.client.fetching.replica_reader import ReplicaBatch
from storage_engine.protocol.records.record_batch import BatchHeader, crc_matches
from storage_engine.protocol.typed.damage import damaged_part


class Batches(Protocol):
    """A replica's batches in the order of their offsets."""

    start_offset: int
    """Batches that end at or below this offset are ignored, because one log does not have them any
    more."""

    def next(self) -> ReplicaBatch | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first difference of a replica."""

    offset: int
    what: str
    of_reference: bool = False
    """True when it is the reference's CRC that is wrong."""


@dataclass(slots=True, kw_only=True)
class ReplicaComparison:
    """Two replicas after they were compared."""

    batches: int = 0
    """The number of batches that both replicas have and that are equal."""
    skipped: int = 0
    """The number of batches that one replica has compacted and the other has not, or differently.
    """
    difference: Difference | None = None


def compare(reference: Batches, replica: Batches, *, is_compacted: bool) -> ReplicaComparison:
    """Compares two replicas up to the first difference, or the end. Holds one batch of each in
    memory."""
    done = ReplicaComparison()
    left, right = reference.next(), replica.next()
    while left is not None or right is not None:
        floor = max(reference.start_offset, replica.start_offset)
        if left is not None and left.header.next_offset <= floor:
            left = reference.next()
            continue
        if right is not None and right.header.next_offset <= floor:
            right = replica.next()
            continue
        if left is not None and right is not None and left.data == right.data:
            if not _is_sound(left):
                # Copied with its damage: both have it.
                done.difference = Difference(
                    offset=left.header.base_offset,
                    what=_wrong_crc(left),
                    of_reference=True,
                )
                return done
            done.batches += 1
            left, right = reference.next(), replica.next()
            continue
        if is_compacted and not (left and right and _same_shape(left.header, right.header)):
            done.skipped += 1
            left_ends = _next_offset(left)
            right_ends = _next_offset(right)
            if left_ends <= right_ends:
                left = reference.next()
            if right_ends <= left_ends:
                right = replica.next()
            continue
        done.difference = _difference(left, right)
        return done
    return done


_NEVER = 2**63


def _next_offset(batch: ReplicaBatch | None) -> int:
    return _NEVER if batch is None else batch.header.next_offset


def _is_sound(batch: ReplicaBatch) -> bool:
    return crc_matches(batch.data, 0, len(batch.data))


def _wrong_crc(batch: ReplicaBatch) -> str:
    return f"its CRC does not match its contents{damaged_part(batch.header, batch.data)}"


def _same_shape(left: BatchHeader, right: BatchHeader) -> bool:
    return (left.base_offset, left.last_offset, left.records_count) == (
        right.base_offset,
        right.last_offset,
        right.records_count,
    )


def _difference(left: ReplicaBatch | None, right: ReplicaBatch | None) -> Difference:
    if right is None:
        assert left is not None
        return Difference(offset=left.header.base_offset, what="the replica has no more batches")
    if left is None:
        return Difference(
            offset=right.header.base_offset, what="the replica has more batches than the leader"
        )
    ours, theirs = left.header, right.header
    offset = min(ours.base_offset, theirs.base_offset)
    if not _is_sound(right):
        return Difference(offset=theirs.base_offset, what=_wrong_crc(right))
    if not _is_sound(left):
        return Difference(offset=ours.base_offset, what=_wrong_crc(left), of_reference=True)
    if (ours.base_offset, ours.last_offset) != (theirs.base_offset, theirs.last_offset):
        return Difference(
            offset=offset,
            what=f"a batch of offsets {theirs.base_offset} to {theirs.last_offset}, the leader has "
            f"{ours.base_offset} to {ours.last_offset}",
        )
    if ours.partition_leader_epoch != theirs.partition_leader_epoch:
        return Difference(
            offset=offset,
            what=f"leader epoch {theirs.partition_leader_epoch}, the leader has "
            f"{ours.partition_leader_epoch}",
        )
    return Difference(
        offset=offset, what=f"other contents: CRC {theirs.crc:08x}, the leader has {ours.crc:08x}"
    )
