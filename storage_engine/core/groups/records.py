"""The keys and records in a group coordinator's log. The newest record of each key, and the offsets
of open transactions, are all that a new coordinator needs.

    key         record         ends when
    GroupKey    GroupRecord    the group is empty and has no offsets left (tombstone)
    OffsetKey   OffsetRecord   it expires, its topic goes, or somebody deletes it (tombstone)

The keys of consumer groups (KIP-848) stand in `consumer.records`.

An offset in a transaction counts once the transaction's marker commits it; of two for one partition
the one that was written later counts, even if the marker of the other comes later. Source: KIP-98,
KIP-211, KIP-345, KIP-447.
"""

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.groups.consumer.records import (
    ConsumerGroupContent,
    ConsumerRecord,
    ConsumerRecordKey,
)
from storage_engine.core.ids import TopicPartition

NO_EXPIRY = -1
NO_LEADER_EPOCH = -1
NO_TIME = -1


@dataclass(frozen=True, slots=True)
class GroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class OffsetKey:
    group_id: str
    partition: TopicPartition


RecordKey = GroupKey | OffsetKey | ConsumerRecordKey


class GroupMemberRecord(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """The member's metadata for the chosen protocol."""
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A generation of a group, assigned or empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    """The wall time of the group's last change of state."""
    members: tuple[GroupMemberRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRecord:
    """A committed offset: that of the next record to read."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_ms: int
    """The wall time of the commit."""
    expire_ms: int = NO_EXPIRY
    """The wall time of expiry that the client chose, as versions 2 to 4 of OffsetCommit allow."""


Record = GroupRecord | OffsetRecord | ConsumerRecord

GroupEntry = tuple[RecordKey, Record | None]
"""A key with its new record; None: a tombstone."""


class PlacedOffset(NamedTuple):
    """An offset with its place in the order of the log."""

    order: int
    record: OffsetRecord | UnreadableRecord


@dataclass(slots=True)
class GroupContent:
    """The content of the log up to some offset."""

    groups: dict[str, GroupRecord] = field(default_factory=dict)
    consumer_groups: dict[str, ConsumerGroupContent] = field(default_factory=dict)
    """The records of consumer groups by group id; no group is without any."""
    offsets: dict[OffsetKey, PlacedOffset] = field(default_factory=dict)
    pending: dict[int, dict[OffsetKey, PlacedOffset]] = field(default_factory=dict)
    """The offsets in open transactions, by producer id."""
    next_order: int = 0

    def __len__(self) -> int:
        of_consumer_groups = sum(len(group) for group in self.consumer_groups.values())
        return len(self.groups) + len(self.offsets) + of_consumer_groups

    def put(
        self, key: RecordKey, record: Record | UnreadableRecord | None, producer_id: int | None
    ) -> None:
        """Apply the next record of the log; `producer_id` is given when the record is part of a
        transaction."""
        order, self.next_order = self.next_order, self.next_order + 1
        if isinstance(key, ConsumerRecordKey):
            self._put_consumer(key, record)
            return
        match key, record:
            case GroupKey(), None | UnreadableRecord():
                # The record can't be decoded: the group has no members, which join anew.
                self.groups.pop(key.group_id, None)
            case GroupKey(), GroupRecord():
                self.groups[key.group_id] = record
            case OffsetKey(), None:
                self.offsets.pop(key, None)
                for offsets in self.pending.values():
                    offsets.pop(key, None)
            case OffsetKey(), OffsetRecord() | UnreadableRecord():
                placed = PlacedOffset(order, record)
                if producer_id is None:
                    self.offsets[key] = placed
                else:
                    self.pending.setdefault(producer_id, {})[key] = placed
            case _:
                raise AssertionError(f"the record of {key} is of another kind: {record}")

    def _put_consumer(
        self, key: ConsumerRecordKey, record: Record | UnreadableRecord | None
    ) -> None:
        assert not isinstance(record, GroupRecord | OffsetRecord), f"{key} has {record}"
        group = self.consumer_groups.setdefault(key.group_id, ConsumerGroupContent())
        group.put(key, record)
        if not len(group):
            del self.consumer_groups[key.group_id]

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Apply a transaction marker, the next record of the log."""
        for key, placed in self.pending.pop(producer_id, {}).items():
            known = self.offsets.get(key)
            if commits and (known is None or known.order < placed.order):
                self.offsets[key] = placed


class CommittedOffsets:
    """The committed and pending offsets. Invariant: no transaction in `_pending` is without
    offsets."""

    __slots__ = ("_committed", "_pending")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, PlacedOffset] = {}
        self._pending: dict[int, dict[TopicPartition, PlacedOffset]] = {}
        """The offsets in open transactions, by producer id."""

    def __bool__(self) -> bool:
        return bool(self._committed or self._pending)

    @property
    def committed(self) -> Mapping[TopicPartition, OffsetRecord]:
        return {
            tp: placed.record
            for tp, placed in self._committed.items()
            if not isinstance(placed.record, UnreadableRecord)
        }

    @property
    def unreadable(self) -> set[TopicPartition]:
        """The partitions whose offset this version can't read."""
        return {
            tp
            for tp, placed in self._committed.items()
            if isinstance(placed.record, UnreadableRecord)
        }

    def get(self, tp: TopicPartition) -> OffsetRecord | None:
        return self.committed.get(tp)

    def put(self, tp: TopicPartition, placed: PlacedOffset) -> None:
        self._committed[tp] = placed

    def put_pending(self, producer_id: int, tp: TopicPartition, placed: PlacedOffset) -> None:
        self._pending.setdefault(producer_id, {})[tp] = placed

    def end_transaction(self, producer_id: int, *, commits: bool) -> bool:
        """Commit or drop the offsets of a transaction; return True when it had any."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return False
        for tp, placed in pending.items():
            known = self._committed.get(tp)
            if commits and (known is None or known.order < placed.order):
                self._committed[tp] = placed
        return True

    def remove(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Remove the offsets of partitions, committed or pending; return those that had one. Each
        transaction is looked at once, however many partitions a client names."""
        wanted = set(partitions)
        removed = {tp for tp in wanted if self._committed.pop(tp, None) is not None}
        for producer_id, pending in list(self._pending.items() if wanted else ()):
            dropped = [tp for tp in pending if tp in wanted]
            for tp in dropped:
                del pending[tp]
            removed.update(dropped)
            if not pending:
                del self._pending[producer_id]
        return removed

    def written_until(
        self, last_order: int, among: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """Return the partitions `among` these of which no offset was written later."""
        later = {
            tp
            for pending in (self._pending.values() if among else ())
            for tp, placed in pending.items()
            if placed.order > last_order
        }
        for tp in among:
            placed = self._committed.get(tp)
            if placed is not None and placed.order > last_order:
                later.add(tp)
        return [tp for tp in among if tp not in later]

    def partitions(self) -> set[TopicPartition]:
        return {*self._committed, *(tp for pending in self._pending.values() for tp in pending)}

    def unstable(self) -> set[TopicPartition]:
        return {tp for pending in self._pending.values() for tp in pending}

    def expired(
        self,
        among: Collection[TopicPartition],
        wall_ms: int,
        retention_ms: int,
        *,
        unused_since_ms: int = NO_TIME,
        but_for: Set[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Return the partitions `among` these whose offset was committed longer ago than
        `retention_ms`, and,
        with `unused_since_ms`, whose group has been unused for so long; topics in `but_for` are
        left out."""
        unstable = self.unstable()
        gone = []
        for tp in among:
            placed = self._committed.get(tp)
            if placed is None or tp in unstable or tp.topic in but_for:
                continue
            record = placed.record
            if isinstance(record, UnreadableRecord):
                continue
            if record.expire_ms != NO_EXPIRY:
                is_over = wall_ms >= record.expire_ms
            else:
                is_over = wall_ms - max(record.commit_ms, unused_since_ms) >= retention_ms
            if is_over:
                gone.append(tp)
        return gone
