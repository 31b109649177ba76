"""One consumer group: the newest records about it, and what follows from them, which is counted as
records come, so that a request costs the same in a group of any size.

    EMPTY        no members
    ASSIGNING    the targets are those of an older epoch of the group
    RECONCILING  some member is on its way to its target
    STABLE       all members are there

All changes are records first: a group is changed by `apply` alone, live and when it is restored, so
that both end in the same state. Sessions and the work under way are in no record. Source: KIP-848.
"""

import enum
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar
from uuid import UUID

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.consumer.reconciliation import NEW_MEMBER
from storage_engine.core.groups.consumer.records import (
    ConsumerGroupContent,
    ConsumerGroupKey,
    ConsumerMemberKey,
    ConsumerMemberRecord,
    ConsumerRecord,
    ConsumerRecordKey,
    CurrentAssignmentKey,
    CurrentAssignmentRecord,
    MemberState,
    PatternKey,
    PatternRecord,
    TargetKey,
)
from storage_engine.core.groups.consumer.topics import SeenTopics, Topics, seen
from storage_engine.core.groups.events import CommitOffsets, RequestingMember
from storage_engine.core.groups.group import CONSUMER, RESTORED, Group, GroupType
from storage_engine.core.groups.records import GroupEntry
from storage_engine.core.ids import TopicPartition


class ConsumerGroupState(enum.Enum):
    """The states of a group, with their names in ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True, kw_only=True)
class MemberSession:
    """The time that a member has, on the monotonic clock."""

    deadline_ms: int
    timeout_ms: int
    revoke_by_ms: int | None = None
    """When it must have given up its partitions."""
    join_by_ms: int | None = None
    """When a member of the classic protocol that was told so must have joined anew."""
    sync_by_ms: int | None = None
    """When a member of the classic protocol that has joined must have sent SyncGroup."""
    number: int = RESTORED
    """The number of the last record about the member: its answers wait for that."""

    def touch(self, now_ms: int) -> None:
        self.deadline_ms = now_ms + self.timeout_ms

    def begin_anew(self, now_ms: int) -> None:
        """Give all times anew that are over."""
        until_ms = now_ms + self.timeout_ms
        self.deadline_ms = max(self.deadline_ms, until_ms)
        if self.revoke_by_ms is not None:
            self.revoke_by_ms = max(self.revoke_by_ms, until_ms)
        if self.join_by_ms is not None:
            self.join_by_ms = max(self.join_by_ms, until_ms)
        if self.sync_by_ms is not None:
            self.sync_by_ms = max(self.sync_by_ms, until_ms)

    @property
    def first_ms(self) -> int:
        """Return when the first of these times is over."""
        times = self.deadline_ms, self.revoke_by_ms, self.join_by_ms, self.sync_by_ms
        return min(each for each in times if each is not None)


@dataclass(slots=True)
class AskedPattern:
    """The last time that a pattern was asked for."""

    asked_ms: int
    version: int
    """The version of the topics at that time."""
    is_open: bool = True
    """True while no answer has come."""


@dataclass(slots=True)
class SharedTopics:
    names: frozenset[str]
    members: int = 0


@dataclass(slots=True, kw_only=True)
class ConsumerGroup(Group):
    """Invariant: `instances`, `owners` and all counts are those of `content`, and of its members
    alone; no partition has two owners."""

    type: ClassVar[GroupType] = GroupType.CONSUMER
    protocol_type: ClassVar[str] = CONSUMER
    topics: Topics
    content: ConsumerGroupContent = field(default_factory=ConsumerGroupContent)
    members: dict[str, ConsumerMemberRecord] = field(init=False)
    """The members in `content`."""
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    instances: dict[str, str] = field(default_factory=dict)
    """The member id of each static member, by instance id."""
    owners: dict[UUID, dict[int, str]] = field(default_factory=dict)
    """The member that holds a partition or has yet to give it up."""
    subscriptions: dict[frozenset[str], SharedTopics] = field(default_factory=dict)
    """The different lists of topics of members. Those with the same list share it, so that it is
    kept and counted once, however many they are."""
    subscribers: dict[str, int] = field(default_factory=dict)
    """How many of these lists, and of the patterns, name a topic."""
    with_pattern: dict[str, int] = field(default_factory=dict)
    """How many members have a pattern."""
    with_assignor: dict[str, int] = field(default_factory=dict)
    """How many members ask for an assignor."""
    with_protocol: dict[str, int] = field(default_factory=dict)
    """How many members of the classic protocol offer an assignor of theirs."""
    classic_count: int = 0
    """The members that speak the classic protocol."""
    protocols_bytes: int = 0
    """All protocols of those members, with their names."""
    named_count: int = 0
    """The names in all lists of topics."""
    reconciled_count: int = 0
    """The members that have their target of the newest target epoch."""
    sessions: dict[str, MemberSession] = field(default_factory=dict)
    """By member id, of all members."""
    asked: dict[str, AskedPattern] = field(default_factory=dict)
    """The patterns that were asked for, by pattern; no others than those of members."""
    computing: int | None = None
    """The epoch whose targets are computed, or written in pieces."""
    _topics_seen: SeenTopics | None = None
    """None: they have to be looked up."""

    def __post_init__(self) -> None:
        self.members = self.content.members

    # --- what the records say ---

    def current(self, member_id: str) -> CurrentAssignmentRecord:
        return self.content.current.get(member_id, NEW_MEMBER)

    def target(self, member_id: str) -> Assignment:
        target = self.content.targets.get(member_id)
        return {} if target is None else target.assignment

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if self.reconciled_count < len(self.members):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    def is_reconciled(self, current: CurrentAssignmentRecord) -> bool:
        """Return True when this is a member's target of the newest target epoch."""
        return current.state is MemberState.STABLE and current.member_epoch == self.target_epoch

    def is_free_for(self, member_id: str, topic_id: UUID, partition: int) -> bool:
        """Return True when no other member holds the partition."""
        return self.owners.get(topic_id, {}).get(partition, member_id) == member_id

    def preferred_assignor(self, known: Collection[str]) -> str:
        """Return the assignor among these that most members ask for; the first where none does."""
        return max(known, key=lambda name: self.with_assignor.get(name, 0))

    # --- what follows from the topics ---

    def note_topics_changed(self) -> None:
        """Have the topics looked up anew."""
        self._topics_seen = None

    def topics_seen(self) -> SeenTopics:
        if self._topics_seen is None:
            self._topics_seen = seen(self.topics.of(self.subscribers).values())
        return self._topics_seen

    # --- changes ---

    def apply(self, key: ConsumerRecordKey, record: ConsumerRecord | None) -> None:
        """Take up the next record about the group; None: a tombstone."""
        content = self.content
        if isinstance(key, ConsumerMemberKey):
            assert record is None or isinstance(record, ConsumerMemberRecord)
            if record is not None:
                record = self._sharing(record)
            self._count_member(key.member_id, content.members.get(key.member_id), record)
        elif isinstance(key, CurrentAssignmentKey):
            assert record is None or isinstance(record, CurrentAssignmentRecord)
            self._count_current(key.member_id, content.current.get(key.member_id), record)
        elif isinstance(key, PatternKey):
            assert record is None or isinstance(record, PatternRecord)
            before = content.patterns.get(key.pattern)
            self._count_names(frozenset() if record is None else record.topics, 1)
            self._count_names(frozenset() if before is None else before.topics, -1)
        content.put(key, record)
        if isinstance(key, ConsumerGroupKey):
            group = content.group
            self.epoch = 0 if group is None else group.epoch
            self.metadata_hash = 0 if group is None else group.metadata_hash
        elif isinstance(key, TargetKey):
            self.target_epoch = 0 if content.target is None else content.target.epoch
            # No member can have the new epoch yet.
            self.reconciled_count = 0

    def _count_member(
        self,
        member_id: str,
        before: ConsumerMemberRecord | None,
        record: ConsumerMemberRecord | None,
    ) -> None:
        if record is not None:
            self._count_one(member_id, record, 1)
        if before is not None:
            self._count_one(member_id, before, -1)
        if before is not None and before.instance_id is not None:
            instance = before.instance_id
            is_other = record is None or record.instance_id != instance
            if is_other and self.instances.get(instance) == member_id:
                del self.instances[instance]

    def _count_one(self, member_id: str, record: ConsumerMemberRecord, sign: int) -> None:
        self._count_topics(record.topics, sign)
        if record.pattern is not None:
            _count(self.with_pattern, record.pattern, sign)
        if record.assignor is not None:
            _count(self.with_assignor, record.assignor, sign)
        if record.classic is not None:
            self.classic_count += sign
            self.protocols_bytes += sign * protocols_bytes(record.classic.protocols)
            for name in {name for name, _ in record.classic.protocols}:
                _count(self.with_protocol, name, sign)
        if sign > 0 and record.instance_id is not None:
            self.instances[record.instance_id] = member_id

    def _sharing(self, record: ConsumerMemberRecord) -> ConsumerMemberRecord:
        """Return the same record with the list of topics that other members have."""
        shared = self.subscriptions.get(record.topics)
        if shared is None or shared.names is record.topics:
            return record
        return replace(record, topics=shared.names)

    def _count_topics(self, topics: frozenset[str], sign: int) -> None:
        shared = self.subscriptions.get(topics)
        if shared is None:
            shared = self.subscriptions[topics] = SharedTopics(topics)
        is_other = not shared.members
        shared.members += sign
        if not shared.members:
            del self.subscriptions[topics]
            is_other = True
        if is_other:
            self.named_count += sign * len(topics)
            self._count_names(topics, sign)

    def _count_names(self, names: Set[str], sign: int) -> None:
        for name in names:
            before = self.subscribers.get(name, 0)
            _count(self.subscribers, name, sign)
            if before and before + sign:
                continue
            self._topics_seen = None
            if before:
                self.topics.unsubscribe(self.group_id, name)
            else:
                self.topics.subscribe(self.group_id, name)

    def _count_current(
        self,
        member_id: str,
        before: CurrentAssignmentRecord | None,
        record: CurrentAssignmentRecord | None,
    ) -> None:
        for each, sign in ((before, -1), (record, 1)):
            if each is None or (sign > 0 and member_id not in self.members):
                continue
            if self.is_reconciled(each):
                self.reconciled_count += sign
            for partitions in (each.assigned, each.pending_revocation):
                for topic_id, numbers in partitions.items():
                    if sign > 0:
                        self._hold(member_id, topic_id, numbers)
                    else:
                        self._let_go(member_id, topic_id, numbers)

    def _hold(self, member_id: str, topic_id: UUID, numbers: frozenset[int]) -> None:
        owners = self.owners.setdefault(topic_id, {})
        for number in numbers:
            owners[number] = member_id

    def _let_go(self, member_id: str, topic_id: UUID, numbers: frozenset[int]) -> None:
        owners = self.owners.get(topic_id, {})
        for number in numbers:
            if owners.get(number) == member_id:
                del owners[number]
        if not owners:
            self.owners.pop(topic_id, None)

    # --- what every group answers ---

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_unused(self) -> bool:
        return self.is_empty and not self.offsets

    def check_commit(self, event: CommitOffsets) -> ErrorCode:
        caller, is_transactional = event.caller, event.producer is not None
        if self.is_empty and caller.generation < 0:
            return ErrorCode.NONE
        member = self.members.get(caller.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and not is_transactional and not event.knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        code = self._check_epoch(member, caller)
        if code is ErrorCode.STALE_MEMBER_EPOCH and is_transactional:
            return ErrorCode.ILLEGAL_GENERATION
        return code

    def check_read(self, caller: RequestingMember) -> ErrorCode:
        if not caller.member_id and caller.generation < 0:
            return ErrorCode.NONE
        member = self.members.get(caller.member_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else self._check_epoch(member, caller)

    def _check_epoch(self, member: ConsumerMemberRecord, caller: RequestingMember) -> ErrorCode:
        if self.current(caller.member_id).member_epoch == caller.generation:
            return ErrorCode.NONE
        is_classic = member.classic is not None
        return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def note_commit(self, caller: RequestingMember, now_ms: int) -> None:
        # Only members of the classic protocol show by a commit that they are there.
        member = self.members.get(caller.member_id)
        if member is not None and member.classic is not None:
            self.sessions[caller.member_id].touch(now_ms)

    def subscribed(self) -> Set[str]:
        return self.subscribers.keys()

    def expired(
        self, among: Collection[TopicPartition], wall_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        subscribed = self.subscribed()
        return self.offsets.expired(among, wall_ms, retention_ms, but_for=subscribed)

    def tombstones(self) -> Iterator[GroupEntry]:
        for key, _ in list(self.content.entries(self.group_id)):
            yield key, None


def protocols_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def _count(counts: dict[str, int], name: str, sign: int) -> None:
    """Add one or take one away; no count is 0."""
    count = counts.get(name, 0) + sign
    if count:
        counts[name] = count
    else:
        del counts[name]
