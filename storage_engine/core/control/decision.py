"""What leader and ISR a partition should have, given everything that is known of it.

Rule: a pure function of the situation; the first rule that wants something wins. Source: R-CTL2,
R-CTL4, R-CTL7 to R-CTL9; ARCHITECTURE decision 4.
"""

from collections.abc import Set
from dataclasses import dataclass

from storage_engine.core.control.cluster_state import PartitionState
from storage_engine.core.control.election import (
    Elected,
    controlled_shutdown_election,
    first_election,
    offline_election,
    preferred_election,
    shrink_to_live,
)
from storage_engine.core.control.reassignment import Reassignment, reassignment_election
from storage_engine.core.ids import NO_LEADER, BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One partition as its controller sees it."""

    assigned: tuple[BrokerId, ...]
    state: PartitionState | None
    running: Set[BrokerId]
    """Brokers that run and can serve their replica."""
    bounced: Set[BrokerId]
    """Brokers that have been restarted since the state was written: dead for this decision."""
    suspect: Set[BrokerId] = frozenset()
    """Members of the ISR that may have lost the end of their log (`core.lost_tails`)."""
    leaving: Set[BrokerId]
    """Brokers in controlled shutdown."""
    unclean: bool
    preferring: bool
    """The preferred replica was asked for."""
    renewing: bool
    """Leader and followers have to hear of another assignment: a new leader epoch tells them."""
    move: Reassignment | None
    """The reassignment under way, as long as its old replicas count."""


def wanted(situation: Situation) -> Elected | None:
    """What should be written; None when leader and ISR are as they should be."""
    assigned, state, leaving = situation.assigned, situation.state, situation.leaving
    live = situation.running - situation.bounced - situation.suspect
    if state is None:
        return first_election(assigned, live - leaving)
    if state.leader not in live:
        elected = _offline_election(situation, state, live)
        return None if elected.leader == NO_LEADER and state.leader == NO_LEADER else elected
    for broker in sorted(leaving & set(assigned)):
        moved = controlled_shutdown_election(
            assigned, state.leader, state.isr, live - leaving, broker
        )
        if moved is not None:
            return moved
    shrunk = shrink_to_live(assigned, state.leader, state.isr, live)
    if shrunk is not None:
        return shrunk
    move = situation.move
    if move is not None and move.is_caught_up(state.isr, situation.running):
        # Nobody else is preferred any more, and what is written here renews as well.
        return reassignment_election(
            move, state.leader, state.isr, live=situation.running, candidates=live - leaving
        )
    if situation.renewing:
        return Elected(leader=state.leader, isr=state.isr)
    if situation.preferring:
        return preferred_election(assigned, state.leader, state.isr, live - leaving)
    return None


def restored(situation: Situation, state: PartitionState) -> Elected:
    """What should be written where others removed the state, or put an old one in its place. Its
    leader may have changed the ISR since that was told last, so a live leader, which holds all
    that is committed, lets the others in again one by one."""
    live = situation.running - situation.bounced - situation.suspect
    if state.leader in live:
        return Elected(leader=state.leader, isr=(state.leader,))
    return wanted(situation) or Elected(leader=NO_LEADER, isr=state.isr)


def _offline_election(situation: Situation, state: PartitionState, live: Set[BrokerId]) -> Elected:
    """Who stays is preferred to who is leaving, both to a broker that has just come back, and
    anyone in sync to an unclean leader. `live` is without those that have just come back."""
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
    """No member of the ISR runs but some that may have lost the end of their log. One of these
    leads when all of the ISR have come back so, for then no better one can be waited for; or when
    an unclean leader may. The others differ from it, so it is alone in sync."""
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
