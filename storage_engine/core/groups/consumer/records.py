"""The keys and records of consumer groups (KIP-848) in a group coordinator's log, and the content
of the log by group. Each key stands for itself: compaction may leave any of them without the
others.

    key                    record                    ends when
    ConsumerGroupKey       ConsumerGroupRecord       the group has no members and no offsets left
    PartitionMetadataKey   none                      it is read: Kafka before 4.1 wrote it
    ConsumerMemberKey      ConsumerMemberRecord      the member leaves, or is fenced
    TargetKey              TargetRecord              with the group
    TargetMemberKey        TargetMemberRecord        with the member
    CurrentAssignmentKey   CurrentAssignmentRecord   with the member
    PatternKey             PatternRecord             no member subscribes to the pattern any more

Source: KIP-848, and the schemas of Kafka's group coordinator of 4.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.groups.assignors.assignment import Assignment

NO_METADATA_HASH = 0
NO_REBALANCE_TIMEOUT = -1


@dataclass(frozen=True, slots=True)
class ConsumerGroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class PartitionMetadataKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentAssignmentKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class PatternKey:
    group_id: str
    pattern: str


ConsumerRecordKey = (
    ConsumerGroupKey
    | PartitionMetadataKey
    | ConsumerMemberKey
    | TargetKey
    | TargetMemberKey
    | CurrentAssignmentKey
    | PatternKey
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRecord:
    epoch: int
    metadata_hash: int = NO_METADATA_HASH
    """The hash of the ids and sizes of all topics that the group subscribes to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadataRecord:
    """The subscribed topics as Kafka before 4.1 kept them, which are not read: they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberRecord:
    """The part that only members of the classic protocol have."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """The name and metadata of each protocol, in the member's order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberRecord:
    """A member as its heartbeats describe it."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    topics: frozenset[str] = frozenset()
    """The topics that it subscribes to by name."""
    pattern: str | None = None
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT
    assignor: str | None = None
    classic: ClassicMemberRecord | None = None
    """None: it speaks the consumer protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    epoch: int
    """The group's epoch for which the targets were computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMemberRecord:
    assignment: Assignment


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It still owns partitions that it has to give up before it goes on to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions of its target that others have not given up."""
    UNKNOWN = 127
    """A later version wrote its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignmentRecord:
    member_epoch: int
    previous_epoch: int
    """The epoch before: a member that has not got the answer with its epoch still sends it."""
    state: MemberState
    assigned: Assignment
    pending_revocation: Assignment
    """Partitions that the member has to give up. They are its own until it says that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRecord:
    """The topics that a regular expression matched."""

    topics: frozenset[str]
    version: int
    """The version of the metadata in which they were found."""
    resolved_ms: int
    """The wall time of that."""


ConsumerRecord = (
    ConsumerGroupRecord
    | PartitionMetadataRecord
    | ConsumerMemberRecord
    | TargetRecord
    | TargetMemberRecord
    | CurrentAssignmentRecord
    | PatternRecord
)

KeptT = TypeVar("KeptT")


@dataclass(slots=True)
class ConsumerGroupContent:
    """The newest records of one group up to some offset of the log."""

    group: ConsumerGroupRecord | None = None
    target: TargetRecord | None = None
    members: dict[str, ConsumerMemberRecord] = field(default_factory=dict)
    targets: dict[str, TargetMemberRecord] = field(default_factory=dict)
    """By member id, as `members` and `current`; each may have members that the others lack."""
    current: dict[str, CurrentAssignmentRecord] = field(default_factory=dict)
    patterns: dict[str, PatternRecord] = field(default_factory=dict)
    has_partition_metadata: bool = False
    unreadable: dict[ConsumerRecordKey, UnreadableRecord] = field(default_factory=dict)
    """The newest records that can't be decoded, which stand nowhere else here. They stay in the log
    until their keys are written again."""

    def __len__(self) -> int:
        """Return the number of keys in the log; 0: it has nothing of the group."""
        tables = self.members, self.targets, self.current, self.patterns, self.unreadable
        alone = self.group, self.target, self.has_partition_metadata or None
        return sum(len(table) for table in tables) + sum(each is not None for each in alone)

    def put(self, key: ConsumerRecordKey, record: ConsumerRecord | UnreadableRecord | None) -> None:
        self.unreadable.pop(key, None)
        if isinstance(record, UnreadableRecord):
            self.unreadable[key] = record
            record = None
        match key, record:
            case ConsumerGroupKey(), ConsumerGroupRecord() | None:
                self.group = record
            case TargetKey(), TargetRecord() | None:
                self.target = record
            case ConsumerMemberKey(), ConsumerMemberRecord() | None:
                _put(self.members, key.member_id, record)
            case TargetMemberKey(), TargetMemberRecord() | None:
                _put(self.targets, key.member_id, record)
            case CurrentAssignmentKey(), CurrentAssignmentRecord() | None:
                _put(self.current, key.member_id, record)
            case PatternKey(), PatternRecord() | None:
                _put(self.patterns, key.pattern, record)
            case PartitionMetadataKey(), PartitionMetadataRecord() | None:
                self.has_partition_metadata = record is not None
            case _:
                raise AssertionError(f"the record of {key} is of another kind: {record}")

    def entries(
        self, group_id: str
    ) -> Iterator[tuple[ConsumerRecordKey, ConsumerRecord | UnreadableRecord]]:
        """Yield each key in the log with its record."""
        if self.group is not None:
            yield ConsumerGroupKey(group_id), self.group
        if self.target is not None:
            yield TargetKey(group_id), self.target
        if self.has_partition_metadata:
            yield PartitionMetadataKey(group_id), PartitionMetadataRecord()
        for member_id, member in self.members.items():
            yield ConsumerMemberKey(group_id, member_id), member
        for member_id, target in self.targets.items():
            yield TargetMemberKey(group_id, member_id), target
        for member_id, current in self.current.items():
            yield CurrentAssignmentKey(group_id, member_id), current
        for pattern, resolved in self.patterns.items():
            yield PatternKey(group_id, pattern), resolved
        yield from self.unreadable.items()


def _put(table: dict[str, KeptT], name: str, record: KeptT | None) -> None:
    if record is None:
        table.pop(name, None)
    else:
        table[name] = record
