"""One group: its members, its generation, and the state of its rebalance. It is data, with queries
on the data; the transitions are in `rebalances`.

    EMPTY       no members                       -> PREPARING (a member joins)
    PREPARING   waiting for all members to join  -> COMPLETING | EMPTY (nobody is left)
    COMPLETING  waiting for the leader's plan    -> STABLE | PREPARING
    STABLE      all members are assigned         -> PREPARING

Whatever a request asks of the group as a whole is counted as members come and go, so that a request
costs the same in a group of any size; only the turn from one generation to the next looks at all.

A request that would make the group's record larger than a batch of the log may be is refused before
anything has changed: a coordinator whose record can't be stored is restored from the log, and would
fail in the same way again. The lengths are those of GroupMetadataKey and GroupMetadataValue, which
`protocol.state.group_records` writes. Source: Kafka's classic group protocol,
ConsumerProtocolSubscription.json, KIP-62, KIP-345, KIP-394.
"""

import enum
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.offers import Offer, Offers
from storage_engine.core.groups.consumer_protocol import subscribed_topics, topic_count
from storage_engine.core.groups.events import (
    NO_MEMBER,
    CommitOffsets,
    JoinedMember,
    RequestingMember,
)
from storage_engine.core.groups.group import CONSUMER, RESTORED, Group, GroupType
from storage_engine.core.groups.records import (
    NO_TIME,
    GroupEntry,
    GroupKey,
    GroupMemberRecord,
    GroupRecord,
)
from storage_engine.core.ids import TopicPartition

GROUP_FIXED_BYTES = 2 + 2 + 4 + 8 + 4
"""The versions of key and value, the generation, the time, and the number of members."""
MEMBER_FIXED_BYTES = 2 * 4 + 2 * 4
"""Both timeouts, and the length fields of subscription and assignment."""
LENGTH_BYTES = 2
"""The length field of a string, which null has too."""


def group_bytes(*texts: str | None, members: int) -> int:
    """Return the size of a record. `texts` are group id, protocol type, protocol and leader,
    `members` is the size of all members."""
    return GROUP_FIXED_BYTES + _texts_bytes(texts) + members


def member_bytes(*texts: str | None, data: int) -> int:
    """Return the size of a member. `texts` are member id, instance id, client id and host, `data`
    is the size of subscription and assignment."""
    return MEMBER_FIXED_BYTES + _texts_bytes(texts) + data


def _texts_bytes(texts: tuple[str | None, ...]) -> int:
    lengths = (
        0 if text is None else len(text) if text.isascii() else len(text.encode()) for text in texts
    )
    return LENGTH_BYTES * len(texts) + sum(lengths)


SUBSCRIBED_MAX_BYTES = 1 << 20
SUBSCRIBED_MAX_TOPICS = 20_000
"""The most distinct metadata of a group from which its topics are decoded, in bytes and in topic
names; it is done in one go."""


class GroupState(enum.Enum):
    """The states of a group, with their names in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True, kw_only=True)
class Member:
    """A member, known by its id and, if it is static, by an instance id that outlives it. Its group
    counts what it offers: it is changed through the group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    offer: Offer
    deadline_ms: int
    """When the session ends, unless the member is waiting for an answer."""
    assignment: bytes = b""
    answer_number: int = RESTORED
    """The number of the record that its last answer waits for."""
    fixed_bytes: int = field(init=False, default=0)
    """The bytes that it takes in the group's record besides metadata and assignment."""
    most_bytes: int = field(init=False, default=0)
    """The bytes that it takes in the group's record besides its assignment, with its largest
    protocol."""

    def __post_init__(self) -> None:
        self.measure()

    def measure(self) -> None:
        """Compute the sizes anew after a change."""
        texts = self.member_id, self.instance_id, self.client_id, self.client_host
        self.fixed_bytes = member_bytes(*texts, data=0)
        self.most_bytes = self.fixed_bytes + max(map(len, self.offer.metadata), default=0)

    def is_no_larger_than(self, other: "Member", protocol: str | None) -> bool:
        """Return True when it takes no more bytes than `other`, with that protocol and with any."""
        return self.most_bytes <= other.most_bytes and (
            self.fixed_bytes + len(self.metadata(protocol))
            <= other.fixed_bytes + len(other.metadata(protocol))
        )

    def metadata(self, protocol: str | None) -> bytes:
        return self.offer.of(protocol)

    def touch(self, now_ms: int) -> None:
        """Begin its session anew."""
        self.deadline_ms = now_ms + self.session_timeout_ms


@dataclass(slots=True, kw_only=True)
class ClassicGroup(Group):
    """Invariant: `instances` has each static member of `members` once, and nothing else; `joining`,
    `syncing`, `newcomers` and `unsynced` have members alone, and all newcomers are joining."""

    type: ClassVar[GroupType] = GroupType.CLASSIC
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    """By member id; changed only by `add`, `drop` and `change`, which update the counts."""
    instances: dict[str, str] = field(default_factory=dict)
    """The member id of each static member, by instance id."""
    joining: dict[str, int] = field(default_factory=dict)
    """The number of the unanswered JoinGroup of a member, by member id; set by `wait_to_join`."""
    syncing: dict[str, int] = field(default_factory=dict)
    """The number of the unanswered SyncGroup of a member, by member id."""
    newcomers: dict[str, None] = field(default_factory=dict)
    """Members that are not part of a generation yet, in the order in which they came: their clients
    may be gone without having received their member ids, so their sessions also expire while they
    wait."""
    promised: dict[str, int] = field(default_factory=dict)
    """The member ids that were given out for a second JoinGroup (KIP-394), with the time of their
    expiry."""
    join_deadline_ms: int | None = None
    """While PREPARING: the time until which the group waits for members to join."""
    is_gathering: bool = False
    """While PREPARING out of EMPTY: True when the group waits for more members, however many have
    come."""
    gathering_left_ms: int = 0
    """How much longer the group may wait for its first members, if members keep coming."""
    newcomer: bool = False
    """True when a member has come since the last extension of that wait."""
    sync_deadline_ms: int | None = None
    unsynced: set[str] = field(default_factory=set)
    """Members that have the answer to JoinGroup and have not sent SyncGroup."""
    state_ms: int = NO_TIME
    """The wall time of the last recorded change."""
    offers: Offers = field(init=False, default_factory=Offers)
    sizes: "MemberSizes" = field(init=False, default_factory=lambda: MemberSizes())
    _subscribed: tuple[str, frozenset[str] | None] | None = field(init=False, default=None)
    """The protocol and answer of `subscribed`, until a member changes."""

    def __post_init__(self) -> None:
        for member in self.members.values():
            self._count(member)

    def add(self, member: Member) -> None:
        """Add a member, as the youngest."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self._count(member)

    def drop(self, member: Member) -> None:
        """Remove a member; the caller has to answer its requests."""
        member_id = member.member_id
        self._uncount(member)
        del self.members[member_id]
        if member.instance_id is not None and self.instances[member.instance_id] == member_id:
            del self.instances[member.instance_id]
        self.joining.pop(member_id, None)
        self.syncing.pop(member_id, None)
        self.newcomers.pop(member_id, None)
        self.unsynced.discard(member_id)
        if not self.members:
            self.sizes.longest_id = 0

    def change(self, member: Member, change: Callable[[Member], None]) -> None:
        """Apply `change` to a member's offer or names, and update the counts of the group."""
        self._uncount(member)
        change(member)
        member.measure()
        self._count(member)

    def wait_to_join(self, member: Member, request: int) -> None:
        """Record the JoinGroup of a member for the next generation."""
        if member.member_id not in self.joining and member.instance_id is None:
            self.sizes.joining += member.most_bytes
        self.joining[member.member_id] = request

    def no_longer_joins(self, member: Member) -> int | None:
        """Forget the member's JoinGroup and return its number; None if there is none."""
        request = self.joining.pop(member.member_id, None)
        if request is not None and member.instance_id is None:
            self.sizes.joining -= member.most_bytes
        return request

    def take_joined(self) -> dict[str, int]:
        """Return the JoinGroup numbers by member id; these members now are in a generation."""
        joined, self.joining = self.joining, {}
        self.newcomers = {}
        self.sizes.joining = self.sizes.newcomers = 0
        return joined

    def note_new(self, member: Member) -> None:
        """Count a member that is not part of a generation yet."""
        self.newcomers[member.member_id] = None
        self.sizes.newcomers += member.most_bytes

    def _count(self, member: Member, sign: int = 1) -> None:
        self._subscribed = None
        sizes, most = self.sizes, sign * member.most_bytes
        sizes.members += most
        if member.instance_id is not None:
            sizes.static += most
        elif member.member_id in self.joining:
            sizes.joining += most
        if member.member_id in self.newcomers:
            sizes.newcomers += most
        if sign > 0:
            sizes.longest_id = max(sizes.longest_id, _length(member.member_id))
            self.offers.add(member.offer)
        else:
            self.offers.remove(member.offer)

    def _uncount(self, member: Member) -> None:
        self._count(member, -1)

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        return self.is_empty and not self.offsets and not self.promised

    def check_commit(self, event: CommitOffsets) -> ErrorCode:
        caller = event.caller
        if self.is_empty and caller.generation < 0:
            return ErrorCode.NONE
        is_anonymous = (
            caller.generation < 0 and caller.member_id == NO_MEMBER and caller.instance_id is None
        )
        if event.producer is not None and is_anonymous:
            # Clients from before KIP-447 name no member: their transactional id alone fences them.
            return ErrorCode.NONE
        code = self.check_generation(caller)
        is_joining = self.state is GroupState.COMPLETING and event.producer is None
        return ErrorCode.REBALANCE_IN_PROGRESS if code is ErrorCode.NONE and is_joining else code

    def check_read(self, caller: RequestingMember) -> ErrorCode:
        return ErrorCode.NONE

    def note_commit(self, caller: RequestingMember, now_ms: int) -> None:
        member = self.members.get(caller.member_id)
        if member is not None:
            member.touch(now_ms)

    def expired(
        self, among: Collection[TopicPartition], wall_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        if self.is_empty:
            since_ms = self.state_ms
            return self.offsets.expired(among, wall_ms, retention_ms, unused_since_ms=since_ms)
        if self.state is GroupState.STABLE:
            subscribed = self.subscribed()
            if subscribed is not None:
                return self.offsets.expired(among, wall_ms, retention_ms, but_for=subscribed)
        return []

    def tombstones(self) -> Iterator[GroupEntry]:
        if self.generation > 0:
            yield GroupKey(self.group_id), None

    def check(self, caller: RequestingMember) -> ErrorCode:
        """Return NONE when the caller is a member, of whatever generation."""
        if caller.instance_id is not None:
            member_id = self.instances.get(caller.instance_id)
            if member_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id != caller.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if caller.member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_generation(self, caller: RequestingMember) -> ErrorCode:
        """Return NONE when the caller is a member of the present generation."""
        code = self.check(caller)
        if code is ErrorCode.NONE and caller.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return code

    def is_full(self, max_size: int, member_id: str) -> bool:
        """Return True when another member would be too many; a member of the group never is."""
        if self.state is GroupState.PREPARING:
            return member_id not in self.joining and len(self.joining) >= max_size
        return member_id not in self.members and len(self.members) >= max_size

    @property
    def all_joined(self) -> bool:
        return not self.promised and len(self.joining) == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The rebalance timeout of the slowest member."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def for_leader(self) -> tuple[JoinedMember, ...]:
        """Return all members, with their metadata for the chosen protocol."""
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.offer.of(self.protocol))
            for m in self.members.values()
        )

    def has_left(self, *, leader: str | None) -> None:
        """Choose another leader when that one is no member any more."""
        if leader not in self.members:
            self.leader = next(iter(self.members), None)

    def supports(self, protocol_type: str, offer: Offer, *, but_for: str = "") -> bool:
        """Return True when a member with this offer could join; the member `but_for` is not
        counted."""
        if not protocol_type or not offer.metadata:
            return False
        before = self.members.get(but_for)
        if len(self.members) == (before is not None):
            return True
        return protocol_type == self.protocol_type and self.offers.supports(
            offer.names.names, but_for=None if before is None else before.offer
        )

    def choose_protocol(self) -> str:
        """Choose the protocol that most members prefer among those that all support."""
        return self.offers.chosen(next(iter(self.members.values())).offer)

    def chosen_with(self, offer: Offer, *, instead_of: Member) -> str:
        """Return the protocol that the group would have with a youngest member of this offer in the
        place of another member."""
        others = (each.offer for each in self.members.values() if each is not instead_of)
        oldest = next(others, offer)
        self.offers.remove(instead_of.offer)
        self.offers.add(offer)
        chosen = self.offers.chosen(oldest)
        self.offers.remove(offer)
        self.offers.add(instead_of.offer)
        return chosen

    def subscribed(self) -> frozenset[str] | None:
        """Return the topics that members subscribe to; None when that can't be decoded, or is too
        much for one go."""
        if self.protocol_type != CONSUMER or self.protocol is None:
            return None
        if self._subscribed is None or self._subscribed[0] != self.protocol:
            self._subscribed = self.protocol, self._decode_subscribed()
        return self._subscribed[1]

    def _decode_subscribed(self) -> frozenset[str] | None:
        different = {member.metadata(self.protocol) for member in self.members.values()}
        if sum(map(len, different)) > SUBSCRIBED_MAX_BYTES:
            return None
        if sum(map(topic_count, different)) > SUBSCRIBED_MAX_TOPICS:
            return None
        topics: set[str] = set()
        for metadata in different:
            found = subscribed_topics(metadata)
            if found is None:
                return None
            topics |= found
        return frozenset(topics)

    def ends_ms(self, member: Member) -> int | None:
        """When the session of a member expires; None while it waits for an answer, which it can't
        do without a client."""
        member_id = member.member_id
        waits = member_id in self.joining or member_id in self.syncing
        return None if waits and member_id not in self.newcomers else member.deadline_ms

    def bytes_with(self, assignments: Mapping[str, bytes]) -> int:
        """Return the bytes of the group's record with these assignments, by member id."""
        members = sum(
            member.fixed_bytes
            + len(member.offer.of(self.protocol))
            + len(assignments.get(member.member_id, b""))
            for member in self.members.values()
        )
        texts = self.group_id, self.protocol_type or "", self.protocol, self.leader
        return group_bytes(*texts, members=members)

    def bytes_after(self, joining: Member, others_bytes: int) -> int:
        """Return the most bytes of its record with the member `joining` and others of that size,
        before anything is assigned."""
        leader = max(self.sizes.longest_id, _length(joining.member_id))
        protocol = max(map(_length, joining.offer.names.names), default=0)
        texts = group_bytes(self.group_id, self.protocol_type, "", "", members=leader + protocol)
        return texts + others_bytes + joining.most_bytes

    def to_record(self) -> GroupRecord:
        return GroupRecord(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_ms=self.state_ms,
            members=tuple(
                GroupMemberRecord(
                    m.member_id,
                    m.instance_id,
                    m.client_id,
                    m.client_host,
                    m.rebalance_timeout_ms,
                    m.session_timeout_ms,
                    m.offer.of(self.protocol),
                    m.assignment,
                )
                for m in self.members.values()
            ),
        )

    @classmethod
    def of_record(cls, group_id: str, record: GroupRecord) -> "ClassicGroup":
        """Restore a group from the record of a former coordinator, without its members."""
        return cls(
            group_id=group_id,
            state=GroupState.STABLE if record.members else GroupState.EMPTY,
            generation=record.generation,
            protocol_type=record.protocol_type or None,
            protocol=record.protocol,
            leader=record.leader,
            state_ms=record.state_ms,
        )

    def restore(self, record: GroupMemberRecord, now_ms: int) -> Member:
        """Add a member of the recorded generation; its session begins anew."""
        member = Member(
            member_id=record.member_id,
            instance_id=record.instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            session_timeout_ms=record.session_timeout_ms,
            offer=Offer([(self.protocol or "", record.subscription)]),
            deadline_ms=now_ms + record.session_timeout_ms,
            assignment=record.assignment,
        )
        self.add(member)
        return member


@dataclass(slots=True)
class MemberSizes:
    """The bytes of members of a group, each with its largest protocol and without assignment."""

    members: int = 0
    """All members."""
    static: int = 0
    joining: int = 0
    """Members that have joined for the next generation, without the static ones."""
    newcomers: int = 0
    longest_id: int = 0
    """The length of the longest id that a member has had."""

    @property
    def sure(self) -> int:
        """Members that are sure to be in the next generation: the others may be dead."""
        return self.static + self.joining


def _length(text: str) -> int:
    """Return the length in bytes of UTF-8."""
    return len(text.encode())
