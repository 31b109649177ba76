"""The keys and records in a group coordinator's log. The newest record of each key, and the offsets
of open transactions, are all that a new coordinator needs.

    key         record         ends when
    GroupKey    GroupRecord    the group is empty and has no offsets left (tombstone)
    OffsetKey   OffsetRecord   it expires, its topic goes, or somebody deletes it (tombstone)

An offset in a transaction counts once the transaction's marker commits it; of two for one partition
the one that was written later counts, even if the marker of the other comes later. Source: KIP-98,
KIP-211, KIP-345.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from storage_engine.core.coordinator_log import UnreadableRecord
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


RecordKey = GroupKey | OffsetKey


class GroupMemberRecord(NamedTuple):
    """A member of the recorded generation."""

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
    """Wall time."""
    expire_ms: int = NO_EXPIRY
    """The wall time of expiry that the client chose, as versions 2 to 4 of OffsetCommit allow."""


Record = GroupRecord | OffsetRecord

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
    offsets: dict[OffsetKey, PlacedOffset] = field(default_factory=dict)
    pending: dict[int, dict[OffsetKey, PlacedOffset]] = field(default_factory=dict)
    """The offsets in open transactions, by producer id."""
    next_order: int = 0

    def __len__(self) -> int:
        return len(self.groups) + len(self.offsets)

    def put(
        self, key: RecordKey, record: Record | UnreadableRecord | None, producer_id: int | None
    ) -> None:
        """Apply the next record of the log; `producer_id` is given when the record is part of a
        transaction."""
        order, self.next_order = self.next_order, self.next_order + 1
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

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Apply a transaction marker, the next record of the log."""
        for key, placed in self.pending.pop(producer_id, {}).items():
            known = self.offsets.get(key)
            if commits and (known is None or known.order < placed.order):
                self.offsets[key] = placed
