"""The vocabulary that members of both group protocols share: what a member hears, what it wants,
and how `ConsumerCoordinator` drives it.

    MemberEvent -> MemberDriver -> steps: a request to send, a change for the consumer, a farewell

A `MemberDriver` joins a state machine without IO (`classic_membership`, `consumer_membership`) to
the requests of its protocol. A member has at most one request under way.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from storage_engine.client.consumer.coordinator_calls import Answer
from storage_engine.client.consumer.subscription import NO_TOPICS, Subscription
from storage_engine.client.groups.group_requests import GroupRequest, MemberIdentity
from storage_engine.core.errors import ErrorCode, HeadraceError
from storage_engine.core.ids import TopicPartition

NO_MEMBER = ""
NO_GENERATION = -1

ASK_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which a request is sent again, to whichever broker coordinates the group then."""

NO_LONGER_A_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Errors to a consumer that is not a member any more, or not in the present generation: others may
own its partitions."""


# --- events ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """The consumer has subscribed to topics, for the first time or to others than before."""

    now_ms: int
    subscription: Subscription = NO_TOPICS


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The member leaves; it has nothing to release any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The owner of the partitions is at work."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Released:
    """The owner reads nothing any more of what it had to release: one for each Release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAnswered:
    """An offset commit of that generation was refused."""

    error: ErrorCode
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipTick:
    now_ms: int


MemberEvent = Subscribed | Unsubscribed | Polled | Released | CommitAnswered | MembershipTick


# --- effects of both state machines ---


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Another coordinator is asked next; what failed is sent again to it, after a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The group refuses the member for good."""

    error: ErrorCode
    message: str | None = None
    """The coordinator's own words, where it has some."""


# --- steps: effects as the coordinator of a consumer carries them out ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A request to send; it takes the place of an earlier one."""

    make: Callable[[int], GroupRequest]
    """Makes the request, at a time in ms, when it can be sent. Raises KafkaError or
    DeadlineExceededError."""
    wait_ms: int
    """How long its answer may take."""
    answered: "Callable[[Answer | None, ErrorCode], list[Step]]"
    """Takes the answer, None where there is none, and its error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Farewell:
    """The last request of a member; its answer does not count."""

    request: GroupRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """A change: the consumer has to let go of partitions, None of all. `lost`: they may be
    another's already, so that commits are refused."""

    lost: bool
    partitions: Collection[TopicPartition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A change: these partitions are the consumer's, beside those that it has where they are
    `more`, and it commits as `caller`."""

    partitions: tuple[TopicPartition, ...]
    caller: MemberIdentity
    more: bool = False


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """A change: the group refuses the member."""

    error: HeadraceError


Step = Outgoing | Farewell | FindCoordinator | Revoked | Assigned | GroupFailed


class MemberDriver(Protocol):
    """One member of a group, in the thread of its consumer's loop."""

    @property
    def identity(self) -> MemberIdentity:
        """The member as the group knows it now."""
        ...

    @property
    def has_timed_out(self) -> bool:
        """Whether it has left because the consumer does not poll."""
        ...

    def step(self, event: MemberEvent) -> list[Step]:
        """The steps are carried out in order."""
        ...

    def look(self, now_ms: int) -> list[Step]:
        """Looks at metadata where it is time to."""
        ...

    def due_ms(self) -> int | None:
        """The time of the next MembershipTick or look; None while only answers and the owner can
        change anything."""
        ...
