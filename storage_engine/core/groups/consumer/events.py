"""Events, effects and answers that only consumer groups have (KIP-848).

    the broker says              the coordinator wants        its answer comes as
    ConsumerHeartbeat            HeartbeatAnswer
    TopicShapesChanged                ResolvePattern               PatternResolved
    GroupSettingsChanged         ComputeAssignment            AssignmentComputed
    PatternsStale

Until the first TopicShapesChanged after its restore a coordinator computes no assignment, since it
would take every topic for deleted. The driver answers each ResolvePattern and each
ComputeAssignment once, however long that takes; an answer that comes too late is dropped. Source:
KIP-848.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple
from uuid import UUID

from storage_engine.core.coordinator_log import Answer, Moment
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.security.principal import Principal

JOINING_EPOCH = 0
"""The member epoch of a member that joins, or joins anew after it was fenced."""
LEAVING_EPOCH = -1
LEAVING_FOR_A_MOMENT_EPOCH = -2
"""The member epoch of a static member that leaves and will come back in time."""
NO_TIMEOUT = -1


class TopicShape(NamedTuple):
    topic_id: UUID
    partitions: int


class RequestingClient(NamedTuple):
    """The client behind a request, for the checks of its rights."""

    client_id: str = ""
    host: str = ""
    """The address as records have it, with a slash before."""
    principal: Principal | None = None
    """None: it has no right to any topic."""


UNKNOWN_CLIENT = RequestingClient()


class ConsumerHeartbeat(NamedTuple):
    """ConsumerGroupHeartbeat. None in an optional field says that it has not changed since the last
    heartbeat. A tuple: thousands come in a second, and a frozen dataclass takes three times as long
    to make."""

    request: int
    group_id: str
    member_id: str
    member_epoch: int
    at: Moment
    fresh_member_id: str = ""
    """An id for a member that joins without one, as version 0 allows; empty where it may not."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topics: frozenset[str] | None = None
    """The names that the member subscribes to."""
    pattern: str | None = None
    """The regular expression that it subscribes to, whose syntax has been checked; empty: none any
    more."""
    assignor: str | None = None
    owned: Assignment | None = None
    """The partitions that the member holds."""
    client: RequestingClient = UNKNOWN_CLIENT
    writes: bool = True
    """False while too few replicas are in sync: the session of the member goes on nevertheless, and
    it is answered where it has nothing new to say."""


@dataclass(slots=True, kw_only=True)
class HeartbeatAnswer(Answer):
    member_id: str = ""
    member_epoch: int = 0
    interval_ms: int = 0
    """When the next heartbeat is expected."""
    assignment: Assignment | None = None
    """The partitions that the member may hold now; None: those that it was told last."""
    message: str | None = None
    """The reason of an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShapesChanged:
    """Topics were created, deleted, made anew or have more partitions. The first one after the
    restore names every topic as changed."""

    writes: ClassVar[bool] = True
    topics: Mapping[str, TopicShape]
    """All topics as they are now; never changed afterwards, and kept until the next event."""
    changed: frozenset[str]
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternsStale:
    """Names that a client may see have changed by access rules, so that patterns are resolved again
    with the next heartbeats of their members."""

    writes: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternResolved:
    """The answer to ResolvePattern."""

    writes: ClassVar[bool] = True
    group_id: str
    pattern: str
    topics: frozenset[str] | None
    """The matching names; None: it could not be found out, and is asked again later."""
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentComputed:
    """The answer to ComputeAssignment."""

    writes: ClassVar[bool] = True
    group_id: str
    epoch: int
    """The epoch of the effect."""
    targets: Mapping[str, Assignment] | None
    """The result of `compute`; None: it has failed, and is asked again later."""
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettingsChanged:
    """The settings of a group as resource have changed, or are known for the first time. None is
    the broker's default."""

    writes: ClassVar[bool] = False
    group_id: str
    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None


ConsumerEvent = (
    ConsumerHeartbeat
    | TopicShapesChanged
    | PatternsStale
    | PatternResolved
    | AssignmentComputed
    | GroupSettingsChanged
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvePattern:
    """Have the driver find the topics that match a regular expression and that the client may
    describe."""

    group_id: str
    pattern: str
    client: RequestingClient


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAssignment:
    """Have the driver compute a target assignment beside the event loop."""

    group_id: str
    epoch: int
    members: int
    """How many there are."""
    compute: Callable[[], dict[str, Assignment]]
    """Returns the target of each member, which may be empty. It may be called in another thread,
    since nothing changes the data that it reads."""


ConsumerEffect = ResolvePattern | ComputeAssignment
