"""Elections as pure functions: who leads a partition, given who lives.

Rule: with unclean election off, only a live member of the ISR becomes leader, and the ISR is never
emptied. Source: R-CTL2, R-CTL7, R-CTL9, R-REP9; documents 000 and 001 (broker failover, step 3.2).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from storage_engine.core.ids import NO_LEADER, BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """Outcome of an election; leader -1 keeps the last ISR."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    retires: bool = False
    """True when from this write on only the targets of a reassignment are replicas (R-CTL8)."""


def _in_assignment_order(
    assigned: Sequence[BrokerId], isr: Collection[BrokerId], live: Collection[BrokerId]
) -> tuple[BrokerId, ...]:
    return tuple(r for r in assigned if r in isr and r in live)


def first_election(assigned: Sequence[BrokerId], live: Collection[BrokerId]) -> Elected | None:
    """For a new partition: the first live replica leads, all live ones are in sync (R-CTL6). None:
    nobody lives."""
    alive = tuple(r for r in assigned if r in live)
    return Elected(leader=alive[0], isr=alive) if alive else None


def offline_election(
    assigned: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    live: Collection[BrokerId],
    *,
    unclean: bool,
) -> Elected:
    """After brokers died: the first live member of the ISR in assignment order (R-CTL2)."""
    in_sync = _in_assignment_order(assigned, isr, live)
    if in_sync:
        return Elected(leader=in_sync[0], isr=in_sync)
    if unclean:
        for replica in assigned:
            if replica in live:
                return Elected(leader=replica, isr=(replica,))
    return Elected(leader=NO_LEADER, isr=tuple(isr))


def shrink_to_live(
    assigned: Sequence[BrokerId],
    leader: BrokerId,
    isr: Sequence[BrokerId],
    live: Collection[BrokerId],
) -> Elected | None:
    """Where the leader lives: the same leader without the dead followers. None: nothing to
    change."""
    in_sync = tuple(r for r in isr if r == leader or r in live)
    return None if in_sync == tuple(isr) else Elected(leader=leader, isr=in_sync)


def controlled_shutdown_election(
    assigned: Sequence[BrokerId],
    leader: BrokerId,
    isr: Sequence[BrokerId],
    live: Collection[BrokerId],
    leaving: BrokerId,
) -> Elected | None:
    """Before `leaving` stops: another in-sync replica leads and `leaving` leaves the ISR (R-CTL9).

    None when there is nothing to do, or when `leaving` is the last in-sync replica alive.
    """
    if leaving not in isr:
        return None
    others = _in_assignment_order(assigned, isr, set(live) - {leaving})
    if not others:
        return None
    new_leader = leader if leader != leaving and leader in others else others[0]
    return Elected(leader=new_leader, isr=tuple(r for r in isr if r != leaving))


def preferred_election(
    assigned: Sequence[BrokerId],
    leader: BrokerId,
    isr: Sequence[BrokerId],
    live: Collection[BrokerId],
) -> Elected | None:
    """The first assigned replica leads, if it lives and is in sync (R-CTL7). None: nothing to
    change."""
    preferred = assigned[0]
    if preferred == leader or preferred not in isr or preferred not in live:
        return None
    return Elected(leader=preferred, isr=tuple(isr))
