"""Events and effects of a group coordinator.

A request carries a number that the driver has given it, and gets exactly one answer with that
number, at once, when a record is replicated, or when the group's rebalance is complete. `writes`
says whether an event may append records: the others are stepped also while too few replicas are in
sync. `consumer/events` has those of consumer groups alone. Source: the group APIs of the Kafka
protocol; KIP-62, KIP-98, KIP-345, KIP-394, KIP-496, KIP-511.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from storage_engine.core.coordinator_log import (
    Answer,
    AnswerEach,
    AppendRecord,
    CountAppended,
    Moment,
    Replicated,
    StateLog,
    TickAgain,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer.events import ConsumerEffect, ConsumerEvent
from storage_engine.core.groups.records import GroupEntry, OffsetRecord
from storage_engine.core.ids import TopicPartition

NO_GENERATION = -1
NO_MEMBER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestingMember:
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    writes: ClassVar[bool] = True
    request: int
    group_id: str
    member_id: str
    fresh_member_id: str
    """A member id that was never given out before; used when the member needs one."""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """The name and metadata of each protocol, in the member's order of preference."""
    asks_for_id: bool = True
    """True when the client understands MEMBER_ID_REQUIRED (KIP-394)."""
    skips_assignment: bool = False
    """True when the client understands that a leader may have nothing to assign (KIP-814)."""
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    writes: ClassVar[bool] = True
    request: int
    group_id: str
    caller: RequestingMember
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    """The assignments by member id; only the leader sends them."""
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat:
    writes: ClassVar[bool] = False
    request: int
    group_id: str
    caller: RequestingMember
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """LeaveGroup of one or several members (KIP-345)."""

    writes: ClassVar[bool] = True
    request: int
    group_id: str
    members: tuple[RequestingMember, ...]
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """OffsetCommit; with a producer, TxnOffsetCommit, whose transaction has been verified."""

    writes: ClassVar[bool] = True
    request: int
    group_id: str
    caller: RequestingMember
    offsets: Mapping[TopicPartition, OffsetRecord]
    producer: tuple[int, int] | None = None
    """The id and epoch of a transactional producer."""
    knows_epochs: bool = False
    """True for OffsetCommit from version 9 on, whose clients understand STALE_MEMBER_EPOCH and
    GROUP_ID_NOT_FOUND."""
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOffsets:
    """OffsetFetch of one group."""

    writes: ClassVar[bool] = False
    request: int
    group_id: str
    partitions: Sequence[TopicPartition] | None
    """The requested partitions; None asks for all offsets of the group."""
    require_stable: bool = False
    caller: RequestingMember = RequestingMember()
    """The member that asks and its epoch, as OffsetFetch has them from version 9 on; only consumer
    groups check them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """OffsetDelete (KIP-496)."""

    writes: ClassVar[bool] = True
    request: int
    group_id: str
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """DeleteGroups, of one group (KIP-229)."""

    writes: ClassVar[bool] = True
    request: int
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """A transaction marker was appended to the coordinator's log."""

    writes: ClassVar[bool] = False
    producer_id: int
    commits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDeadlines:
    """Time has passed: sessions and rebalances may have expired."""

    writes: ClassVar[bool] = True
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOffsets:
    """Offsets may have expired (KIP-211)."""

    writes: ClassVar[bool] = True
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeleted:
    """Topics were deleted, so that their offsets mean nothing to later topics of the same names."""

    writes: ClassVar[bool] = True
    topics: frozenset[str]


Event = (
    Join
    | Sync
    | MemberHeartbeat
    | Leave
    | CommitOffsets
    | ReadOffsets
    | DeleteOffsets
    | DeleteGroup
    | TransactionEnded
    | CheckDeadlines
    | ExpireOffsets
    | TopicsDeleted
    | ConsumerEvent
    | Replicated
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Have the driver send a CheckDeadlines when the monotonic clock shows this time; earlier such
    requests are void."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDeletedTopics:
    """Have the driver check which of these topics, for which there are offsets, are gone, and send
    TopicsDeleted: a coordinator that was not leading when a topic was deleted has not heard of
    it."""

    topics: frozenset[str]


GroupEffect = WakeAt | CheckDeletedTopics | ConsumerEffect
Effect = (
    AppendRecord[GroupEntry] | CountAppended | Answer | AnswerEach[Answer] | TickAgain | GroupEffect
)
GroupLog = StateLog[GroupEntry, Answer | AnswerEach[Answer] | TickAgain | GroupEffect]


class JoinedMember(NamedTuple):
    """A member as JoinGroup describes it to the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(slots=True, kw_only=True)
class Joined(Answer):
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """All members; only the leader gets them."""


@dataclass(slots=True, kw_only=True)
class Synced(Answer):
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, kw_only=True)
class Left(Answer):
    """The answer to Leave: an error code for each member, in the order of the request."""

    codes: tuple[ErrorCode, ...] = ()


@dataclass(slots=True, kw_only=True)
class OffsetsRead(Answer):
    offsets: Mapping[TopicPartition, OffsetRecord] = field(default_factory=dict)
    unstable: frozenset[TopicPartition] = frozenset()
    """Partitions with an offset in an open transaction: the client asks again when that has
    ended."""
    unreadable: frozenset[TopicPartition] = frozenset()
    """Partitions whose record this version can't read, until another offset is committed."""


@dataclass(slots=True, kw_only=True)
class OffsetsDeleted(Answer):
    refused: frozenset[TopicPartition] = frozenset()
    """Partitions of topics that a member subscribes to."""
