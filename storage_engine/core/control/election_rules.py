"""Elections as pure functions: who leads a partition and who is in sync, given who lives.

The first rule of `due_election` that asks for a change decides. With unclean election off, only a
live member of the ISR becomes leader, and the ISR is never emptied.

A member may have lost the end of its log: a machine that loses its power loses what was not
flushed. Its broker registers with the number of its first incarnation since then
(`BrokerInfo.tail_lost_epoch`), in this and all later incarnations. A partition's state says with
which incarnation each member was last known to hold all that is committed
(`PartitionState.joined_epochs`): the leader sees it in the member's fetches, as it does before a
follower joins, and an elected leader holds by definition what is committed from then on. A member
that may have lost its tail after that incarnation is a suspect. This compares two numbers in
ZooKeeper, so that every controller decides alike.

Source: R-CTL2, R-CTL4, R-CTL7 to R-CTL9, R-REP7, R-REP9, KIP-903.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from storage_engine.core.control.cluster_state import BrokerInfo, PartitionState, Reassignment
from storage_engine.core.ids import NO_LEADER, NO_TAIL_LOST, BrokerEpoch, BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """The outcome of an election; leader -1 keeps the last ISR."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    retires: bool = False
    """True when from this write on only the targets of a reassignment count as replicas
    (R-CTL8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One partition as its controller sees it."""

    assigned: tuple[BrokerId, ...]
    state: PartitionState | None
    running: Set[BrokerId]
    """Brokers that are up and can serve their replica."""
    bounced: Set[BrokerId]
    """Brokers that have been restarted since the state was written: dead for this election."""
    suspect: Set[BrokerId] = frozenset()
    """Members of the ISR that may have lost the end of their log (`suspects`)."""
    leaving: Set[BrokerId]
    """Brokers in controlled shutdown."""
    unclean: bool
    preferring: bool
    """True when the election of the preferred replica was requested."""
    renewing: bool
    """True when leader and followers need a new leader epoch, because their assignment has
    changed."""
    move: Reassignment | None
    """The reassignment under way, as long as its old replicas count."""


def due_election(situation: Situation) -> Elected | None:
    """Return the leader and ISR to be written; None when both are as they should be."""
    assigned, state, leaving = situation.assigned, situation.state, situation.leaving
    live = situation.running - situation.bounced - situation.suspect
    if state is None:
        return first_election(assigned, live - leaving)
    if state.leader not in live:
        elected = _leaderless_election(situation, state, live)
        return None if elected.leader == NO_LEADER and state.leader == NO_LEADER else elected
    for broker in sorted(leaving & set(assigned)):
        moved = controlled_shutdown_election(
            assigned, state.leader, state.isr, live - leaving, broker
        )
        if moved is not None:
            return moved
    shrunk = shrink_to_live(state.leader, state.isr, live)
    if shrunk is not None:
        return shrunk
    move = situation.move
    if move is not None and move.is_caught_up(state.isr, situation.running):
        # No other replica is preferred any more, and this write renews the leader epoch as well.
        return reassignment_election(
            move, state.leader, state.isr, live=situation.running, candidates=live - leaving
        )
    if situation.renewing:
        return Elected(leader=state.leader, isr=state.isr)
    if situation.preferring:
        return preferred_election(assigned, state.leader, state.isr, live - leaving)
    return None


def restoring_election(situation: Situation, state: PartitionState) -> Elected:
    """Return the leader and ISR to be written where others removed the state or put an old one in
    its place. Its leader may have changed the ISR since the controller read it last, so a live
    leader, which holds all that is committed, stays alone and lets the others in again one by
    one."""
    live = situation.running - situation.bounced - situation.suspect
    if state.leader in live:
        return Elected(leader=state.leader, isr=(state.leader,))
    return due_election(situation) or Elected(leader=NO_LEADER, isr=state.isr)


def _leaderless_election(
    situation: Situation, state: PartitionState, live: Set[BrokerId]
) -> Elected:
    """Elect a leader where there is none. A broker that stays is preferred to one in controlled
    shutdown, both to one that has just come back, and any in-sync replica to an unclean leader.
    `live` is without those that have just come back."""
    assigned, leaving = situation.assigned, situation.leaving
    clean = situation.running - situation.suspect
    for candidates in (live - leaving, live, clean - leaving, clean):
        elected = offline_election(assigned, state.isr, candidates, unclean=False)
        if elected.leader != NO_LEADER:
            return elected
    return _election_with_loss(situation, state, live)


def _election_with_loss(
    situation: Situation, state: PartitionState, live: Set[BrokerId]
) -> Elected:
    """Elect where the only running members of the ISR may have lost the end of their log. One of
    these leads when all of the ISR have come back like that, since then no better one can be waited
    for, or when an unclean leader is allowed. The others differ from it, so it is alone in sync."""
    everybody, leaving = situation.running, situation.leaving
    if situation.unclean or everybody >= set(state.isr):
        for candidates in (everybody - leaving, everybody):
            elected = offline_election(situation.assigned, state.isr, candidates, unclean=False)
            if elected.leader != NO_LEADER:
                return Elected(leader=elected.leader, isr=(elected.leader,))
    if situation.unclean:
        for candidates in (live - leaving, live, everybody - leaving, everybody):
            elected = offline_election(situation.assigned, state.isr, candidates, unclean=True)
            if elected.leader != NO_LEADER:
                return elected
    return Elected(leader=NO_LEADER, isr=state.isr)


def _in_assignment_order(
    assigned: Sequence[BrokerId], isr: Collection[BrokerId], live: Collection[BrokerId]
) -> tuple[BrokerId, ...]:
    return tuple(r for r in assigned if r in isr and r in live)


def first_election(assigned: Sequence[BrokerId], live: Collection[BrokerId]) -> Elected | None:
    """Elect for a new partition: the first live replica leads, all live ones are in sync (R-CTL6).
    Return None when no replica is alive."""
    alive = tuple(r for r in assigned if r in live)
    return Elected(leader=alive[0], isr=alive) if alive else None


def offline_election(
    assigned: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    live: Collection[BrokerId],
    *,
    unclean: bool,
) -> Elected:
    """Elect after brokers died: the first live member of the ISR in assignment order leads
    (R-CTL2)."""
    in_sync = _in_assignment_order(assigned, isr, live)
    if in_sync:
        return Elected(leader=in_sync[0], isr=in_sync)
    if unclean:
        for replica in assigned:
            if replica in live:
                return Elected(leader=replica, isr=(replica,))
    return Elected(leader=NO_LEADER, isr=tuple(isr))


def shrink_to_live(
    leader: BrokerId, isr: Sequence[BrokerId], live: Collection[BrokerId]
) -> Elected | None:
    """Keep a live leader, and leave dead followers out of the ISR. Return None when there is
    nothing to change."""
    in_sync = tuple(r for r in isr if r == leader or r in live)
    return None if in_sync == tuple(isr) else Elected(leader=leader, isr=in_sync)


def controlled_shutdown_election(
    assigned: Sequence[BrokerId],
    leader: BrokerId,
    isr: Sequence[BrokerId],
    live: Collection[BrokerId],
    leaving: BrokerId,
) -> Elected | None:
    """Elect before `leaving` stops: another in-sync replica leads and `leaving` leaves the ISR
    (R-CTL9).

    Return None when there is nothing to do, or when `leaving` is the last in-sync replica alive."""
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
    """Make the first assigned replica the leader, if it is alive and in sync (R-CTL7). Return None
    when there is nothing to change."""
    preferred = assigned[0]
    if preferred == leader or preferred not in isr or preferred not in live:
        return None
    return Elected(leader=preferred, isr=tuple(isr))


def reassignment_election(
    move: Reassignment,
    leader: BrokerId,
    isr: Sequence[BrokerId],
    *,
    live: Collection[BrokerId],
    candidates: Collection[BrokerId],
) -> Elected | None:
    """Return the next of the two writes that end a reassignment: first a target leads, then only
    targets are in sync (R-CTL8).

    Return None while the targets are not caught up, or none of them may lead. The second is written
    even where it changes nothing: its acceptance makes void whatever the leader has proposed, and
    that leader learns from it that the others are no replicas any more, so that none of those can
    come into the ISR again once its files are deleted."""
    if not move.is_caught_up(isr, live):
        return None
    if leader not in move.target:
        for replica in move.target:
            if replica in isr and replica in candidates:
                return Elected(leader=replica, isr=tuple(isr))
        return None
    return Elected(leader=leader, isr=tuple(r for r in isr if r in move.target), retires=True)


def suspects(
    state: PartitionState | None, brokers: Mapping[BrokerId, BrokerInfo]
) -> frozenset[BrokerId]:
    """Return the registered members of the ISR whose logs may lack committed records."""
    if state is None:
        return frozenset()
    return frozenset(
        member
        for member in state.isr
        if member in brokers
        and state.joined_epochs.get(member, NO_TAIL_LOST) < brokers[member].tail_lost_epoch
    )


def joined_epochs_of(
    elected: Elected, state: PartitionState | None, brokers: Mapping[BrokerId, BrokerInfo]
) -> dict[BrokerId, BrokerEpoch]:
    """Return the joined epochs that a controller writes with an ISR. Followers keep their former
    entries. A partition that has just been created holds no records, so that all of its replicas
    hold everything."""
    joined = {}
    for member in elected.isr:
        if (state is None or member == elected.leader) and member in brokers:
            joined[member] = brokers[member].epoch
        elif state is not None and member in state.joined_epochs:
            joined[member] = state.joined_epochs[member]
    return joined
