"""The partitions that members of a group hold by what their coordinator acknowledged, and the check
that no two hold one.

A member holds a partition from the answer that gives it until it decides to give it up, or until
its session may have ended by its own clock: a session timeout after it sent the last heartbeat that
the present coordinator answered. The coordinator begins the session when it steps the heartbeat,
which is no sooner; the next coordinator begins it anew. So the rule never counts a member that the
coordinator may have fenced. Left out, since no broker could tell them from others:

- answers of brokers that have been replaced: their successor counts the session without them;
- partitions that a request lacks which its sender gave up, while it may arrive late: it says that
  the member has let go of them.

Source: KIP-848, KIP-62.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from uuid import UUID

from simulation.checks.ledger import InvariantViolation

Share = tuple[UUID, int]
"""A partition by the id of its topic, which a topic of the same name made later does not have."""
EXCLUSIVE = "no partition is held by two members at once"


@dataclass(frozen=True, slots=True)
class LateRequest:
    """A request that was given up, and may arrive yet."""

    named: frozenset[Share]
    """The partitions that it names as the member's."""
    may_arrive: Callable[[], bool]


@dataclass(slots=True, eq=False)
class MemberClaims:
    """The partitions that one member holds."""

    name: str
    held: set[Share] = field(default_factory=set)
    safe_until_ms: int = 0
    """The time at which its session may end."""
    late: list[LateRequest] = field(default_factory=list)

    def counts(self, share: Share, now_ms: int) -> bool:
        """Return True when the member surely holds the partition."""
        return (
            share in self.held
            and now_ms < self.safe_until_ms
            and not any(share not in each.named and each.may_arrive() for each in self.late)
        )


class GroupClaims:
    """The members of one group."""

    def __init__(self, now_ms: Callable[[], int], is_void: Callable[[], bool]) -> None:
        """`is_void` returns True once nothing is promised any more."""
        self._now_ms = now_ms
        self._is_void = is_void
        self._members: list[MemberClaims] = []
        self.taken = 0
        """How many partitions members have got."""

    def member(self, name: str) -> MemberClaims:
        """Return the claims of a member that holds nothing yet."""
        made = MemberClaims(name)
        self._members.append(made)
        return made

    def forget(self, member: MemberClaims) -> None:
        """Drop a member that is gone for good."""
        member.held.clear()
        self._members.remove(member)

    def take(self, member: MemberClaims, shares: Iterable[Share]) -> None:
        """Record partitions that the coordinator has given to the member."""
        now_ms = self._now_ms()
        for share in shares:
            if share in member.held:
                continue
            member.held.add(share)
            self.taken += 1
            if self._is_void() or not member.counts(share, now_ms):
                continue
            for other in self._members:
                if other is not member and other.counts(share, now_ms):
                    raise InvariantViolation(
                        EXCLUSIVE, f"{share} is {member.name}'s, and {other.name}'s until then"
                    )

    def holders(self, share: Share) -> list[str]:
        return [each.name for each in self._members if share in each.held]

    def unknown(self, shares: Set[Share]) -> list[str]:
        """Return who holds partitions that are not among these."""
        return [
            f"{each.name} holds {sorted(each.held - shares)}"
            for each in self._members
            if each.held - shares
        ]
