"""One group: its members, its generation, and the state of its rebalance. It is data, with queries
on the data; the transitions are in `rebalances`.

    EMPTY       no members                       -> PREPARING (a member joins)
    PREPARING   waiting for all members to join  -> COMPLETING | EMPTY (nobody is left)
    COMPLETING  waiting for the leader's word    -> STABLE | PREPARING
    STABLE      every member has its part        -> PREPARING

Source: Kafka's classic group protocol; KIP-62, KIP-345, KIP-394.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import JoinedMember, RequestingMember
from storage_engine.core.groups.offsets import CommittedOffsets
from storage_engine.core.groups.records import NO_TIME, GroupMemberRecord, GroupRecord
from storage_engine.core.groups.sizes import group_bytes, member_bytes
from storage_engine.core.groups.subscription import CONSUMER, subscribed_topics

RESTORED = 0
"""The record number of everything that a coordinator was restored from (see `state_log`)."""

Protocols = tuple[tuple[str, bytes], ...]


class GroupState(enum.Enum):
    """The states of a group, with their names in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True, kw_only=True)
class Member:
    """A member, known by its id and, if it is static, by an instance id that outlives it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    deadline_ms: int
    """When the session ends, unless the member is waiting for an answer."""
    assignment: bytes = b""
    joining: int | None = None
    """The number of its unanswered JoinGroup."""
    syncing: int | None = None
    """The number of its unanswered SyncGroup."""
    answer_number: int = RESTORED
    """The number of the record that its last answer waits for."""
    is_new: bool = False
    """True until it is part of a generation: its client may be gone without having received its
    member id, so its session also expires while it waits."""
    most_bytes: int = field(init=False, default=0)
    """The bytes that it takes in the group's record besides its assignment, with its largest
    protocol."""

    def __post_init__(self) -> None:
        self.measure()

    def measure(self) -> None:
        """Compute `most_bytes` anew after a change."""
        self.most_bytes = member_bytes(
            *self._texts(), data=max((len(metadata) for _, metadata in self.protocols), default=0)
        )

    def bytes_with(self, protocol: str | None, assignment: bytes) -> int:
        """Return the bytes that the member takes in the group's record."""
        return member_bytes(*self._texts(), data=len(self.metadata(protocol)) + len(assignment))

    def is_no_larger_than(self, other: "Member", protocol: str | None) -> bool:
        """Return True when it takes no more bytes than `other`, with that protocol and with any."""
        return self.most_bytes <= other.most_bytes and (
            self.bytes_with(protocol, b"") <= other.bytes_with(protocol, b"")
        )

    def _texts(self) -> tuple[str | None, ...]:
        return self.member_id, self.instance_id, self.client_id, self.client_host

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    @property
    def ends_ms(self) -> int | None:
        """When its session expires; None while it waits for an answer, which it can't do without a
        client."""
        waits = self.joining is not None or self.syncing is not None
        return None if waits and not self.is_new else self.deadline_ms

    def touch(self, now_ms: int) -> None:
        """Begin its session anew."""
        self.deadline_ms = now_ms + self.session_timeout_ms


@dataclass(slots=True, kw_only=True)
class Group:
    """Invariant: `instances` has each static member of `members` once, and nothing else."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """The member id of each static member, by instance id."""
    promised: dict[str, int] = field(default_factory=dict)
    """The member ids that were given out for a second JoinGroup (KIP-394), with the time of their
    expiry."""
    join_deadline_ms: int | None = None
    """While PREPARING: how long the group waits for members to join."""
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
    number: int = RESTORED
    """The number of the last record about the group."""
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)

    # --- members ---

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
            member = self.members.get(member_id)
            if member is not None and member.joining is not None:
                return False
            return self.joined_count >= max_size
        return member_id not in self.members and len(self.members) >= max_size

    @property
    def joined_count(self) -> int:
        return sum(member.joining is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.promised and self.joined_count == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The rebalance timeout of the slowest member."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def for_leader(self) -> tuple[JoinedMember, ...]:
        """Return all members, with their metadata for the chosen protocol."""
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol))
            for m in self.members.values()
        )

    # --- protocols ---

    def supports(self, protocol_type: str, protocols: Protocols, *, but_for: str = "") -> bool:
        """Return True when a member with these protocols could join; the member `but_for` is not
        counted."""
        if not protocol_type or not protocols:
            return False
        others = [m for m in self.members.values() if m.member_id != but_for]
        if not others:
            return True
        if protocol_type != self.protocol_type:
            return False
        common = _common(others)
        return any(name in common for name, _ in protocols)

    def choose_protocol(self) -> str:
        """Choose the protocol that most members prefer among those that all support."""
        return chosen_protocol(list(self.members.values()))

    def subscribed(self) -> frozenset[str] | None:
        """Return the topics that members subscribe to; None when that can't be decoded."""
        if self.protocol_type != CONSUMER or self.protocol is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            found = subscribed_topics(member.metadata(self.protocol))
            if found is None:
                return None
            topics |= found
        return frozenset(topics)

    # --- time ---

    def next_deadline_ms(self) -> int | None:
        """When the group has to be checked next, without any request; None: never."""
        times = [m.ends_ms for m in self.members.values()]
        times += [self.join_deadline_ms, self.sync_deadline_ms, *self.promised.values()]
        return min((each for each in times if each is not None), default=None)

    # --- the log ---

    def bytes_with(self, assignments: Mapping[str, bytes]) -> int:
        """Return the bytes of the group's record with these assignments, by member id."""
        members = sum(
            member.bytes_with(self.protocol, assignments.get(member.member_id, b""))
            for member in self.members.values()
        )
        texts = self.group_id, self.protocol_type or "", self.protocol, self.leader
        return group_bytes(*texts, members=members)

    def bytes_after(self, joining: Member, others: Iterable[Member]) -> int:
        """Return the most bytes of its record with the member `joining` and these others, before
        anything is assigned."""
        members = [*others, joining]
        leader = max((member.member_id for member in members), key=_length)
        protocol = max((name for name, _ in joining.protocols), key=_length, default="")
        texts = self.group_id, self.protocol_type, leader, protocol
        return group_bytes(*texts, members=sum(member.most_bytes for member in members))

    def to_record(self) -> GroupRecord:
        return GroupRecord(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_ms=self.state_ms,
            members=tuple(
                GroupMemberRecord(
                    member_id=m.member_id,
                    instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout_ms=m.rebalance_timeout_ms,
                    session_timeout_ms=m.session_timeout_ms,
                    subscription=m.metadata(self.protocol),
                    assignment=m.assignment,
                )
                for m in self.members.values()
            ),
        )

    @classmethod
    def of_record(cls, group_id: str, record: GroupRecord, now_ms: int) -> "Group":
        """Restore a group from the record of a former coordinator; every session begins anew."""
        members = {
            each.member_id: Member(
                member_id=each.member_id,
                instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                session_timeout_ms=each.session_timeout_ms,
                protocols=((record.protocol or "", each.subscription),),
                deadline_ms=now_ms + each.session_timeout_ms,
                assignment=each.assignment,
            )
            for each in record.members
        }
        return cls(
            group_id=group_id,
            state=GroupState.STABLE if members else GroupState.EMPTY,
            generation=record.generation,
            protocol_type=record.protocol_type or None,
            protocol=record.protocol,
            leader=record.leader,
            members=members,
            instances={
                m.instance_id: m.member_id for m in members.values() if m.instance_id is not None
            },
            state_ms=record.state_ms,
        )


def chosen_protocol(members: list[Member]) -> str:
    """Choose the protocol that most members prefer among those that all support."""
    common = _common(members)
    votes = Counter(
        next(name for name, _ in member.protocols if name in common) for member in members
    )
    most = max(votes.values())
    # Among protocols with equal votes, the preference of the oldest member decides.
    return next(name for name, _ in members[0].protocols if votes[name] == most)


def _length(text: str) -> int:
    """Return the length in bytes of UTF-8."""
    return len(text.encode())


def _common(members: list[Member]) -> set[str]:
    """Return the names of the protocols that all of the members support."""
    return set.intersection(*({name for name, _ in m.protocols} for m in members))
