"""Elections of partitions: the decisions, as pure functions; their writes to ZooKeeper, and the
outcomes of the writes.

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

A dirty partition of which nothing is being written or read is compared with what it should be, and
the difference becomes a conditional write. Only an accepted write is sent to brokers. After a
refused one, or one without an answer, the state is read before the next decision. Source: R-CTL1,
R-CTL2, R-CTL4, R-CTL7 to R-CTL10, R-REP7, R-REP9, KIP-903.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from storage_engine.core.control.cluster_state import (
    BrokerInfo,
    ControlledCluster,
    ControlledPartition,
    PartitionState,
    PendingElection,
    Reassignment,
    first_leader_epoch,
)
from storage_engine.core.control.controller_events import (
    Effect,
    NoReplicaOnline,
    ReadStates,
    StatesRead,
    StateWrite,
    WriteOutcome,
    WriteStates,
)
from storage_engine.core.control.deliveries import Deliveries
from storage_engine.core.control.planned_changes import ControlledShutdowns, Reassignments
from storage_engine.core.ids import (
    NO_LEADER,
    NO_TAIL_LOST,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)


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


class PartitionElections:
    def __init__(
        self,
        cluster: ControlledCluster,
        deliveries: Deliveries,
        reassignments: Reassignments,
        shutdowns: ControlledShutdowns,
    ) -> None:
        self._cluster = cluster
        self._deliveries = deliveries
        self._reassignments = reassignments
        self._shutdowns = shutdowns
        self.leaders_elected = 0
        """Accepted changes of a leader, and below those to a replica that was not in sync."""
        self.unclean_elections = 0

    def hold_due(self, limit: int) -> list[Effect]:
        """Hold an election for those of the first `limit` dirty partitions that can have one."""
        writes = []
        offline = []
        for partition in self._cluster.take_due(limit):
            state = partition.state
            elected = self._elected(partition)
            if elected is None and partition.bounced:
                # The restarted broker had no role here: it counts as alive from now on.
                partition.bounced.clear()
                elected = self._elected(partition)
            if elected is not None:
                if elected.leader == NO_LEADER and (state is None or state.leader != NO_LEADER):
                    offline.append(partition.name)
                writes.append(self._write(partition, elected))
                partition.writing = PendingElection(
                    left_out=frozenset(partition.bounced),
                    assignment=partition.assignment,
                    retires=elected.retires,
                    preferring=partition.preferring,
                )
            partition.preferring = partition.unclean = False
        effects: list[Effect] = []
        if offline:
            effects.append(NoReplicaOnline(partitions=tuple(offline)))
        if writes:
            effects.append(WriteStates(writes=tuple(writes)))
        return effects

    def _elected(self, partition: ControlledPartition) -> Elected | None:
        situation = self._situation(partition)
        if partition.state is not None and partition.was_overwritten:
            return restoring_election(situation, partition.state)
        return due_election(situation)

    def _situation(self, partition: ControlledPartition) -> Situation:
        topic = self._cluster.topics[partition.name.topic]
        return Situation(
            assigned=partition.replicas,
            state=partition.state,
            running=self._cluster.running(partition),
            bounced=partition.bounced,
            suspect=suspects(partition.state, self._cluster.brokers),
            leaving=self._shutdowns.leaving,
            unclean=topic.info.unclean_election or partition.unclean,
            preferring=partition.preferring,
            renewing=partition.renewing,
            move=partition.unfinished_move,
        )

    def _write(self, partition: ControlledPartition, elected: Elected) -> StateWrite:
        state, expected = partition.state, partition.stored_epoch
        if state is not None:
            leader_epoch = LeaderEpoch(state.leader_epoch + 1)
        elif partition.node_lacks_state or partition.unremembered:
            # Its replicas may have had leaders that nobody remembers.
            leader_epoch = first_leader_epoch(self._cluster.controller_epoch)
        else:
            leader_epoch = LeaderEpoch(0)
        return StateWrite(
            partition=partition.name,
            state=PartitionState(
                leader=elected.leader,
                leader_epoch=leader_epoch,
                isr=elected.isr,
                controller_epoch=self._cluster.controller_epoch,
                partition_epoch=PartitionEpoch(0 if expected is None else expected + 1),
                joined_epochs=joined_epochs_of(elected, state, self._cluster.brokers),
            ),
            expected_partition_epoch=expected,
            partition_exists=partition.node_lacks_state,
        )

    def states_written(
        self, outcomes: Mapping[TopicPartition, tuple[WriteOutcome, PartitionState]]
    ) -> list[Effect]:
        unclear = []
        for name, (outcome, state) in outcomes.items():
            partition = self._cluster.partition(name)
            if partition is None:
                continue
            election, partition.writing = partition.writing, None
            self._cluster.mark_names((name,))
            if outcome is WriteOutcome.ACCEPTED:
                self._count(partition.state, state)
                partition.learn(state)
                partition.node_lacks_state = partition.unremembered = False
                if election is not None:
                    self._settle(partition, election)
                self._deliveries.announce(partition)
            elif not self._cluster.is_deleting(name.topic):
                unclear.append(name)
                partition.reading = True
                partition.refusals += outcome is WriteOutcome.CONFLICT
                partition.preferring |= election is not None and election.preferring
        return [ReadStates(partitions=tuple(unclear))] if unclear else []

    def _count(self, before: PartitionState | None, state: PartitionState) -> None:
        if before is not None and state.leader not in (NO_LEADER, before.leader):
            self.leaders_elected += 1
            self.unclean_elections += state.leader not in before.isr

    def _settle(self, partition: ControlledPartition, election: PendingElection) -> None:
        """Apply an election whose write was accepted; what happened after its decision is left to
        the next election."""
        partition.bounced -= election.left_out
        if partition.assignment != election.assignment:
            return
        partition.renewing = False
        if election.retires and not self._cluster.is_deleting(partition.name.topic):
            self._reassignments.retire(partition)

    def states_read(self, event: StatesRead) -> list[Effect]:
        doubtful = []
        for name, state in event.states.items():
            partition = self._cluster.partition(name)
            if partition is None:
                continue
            known = partition.state
            if state is not None and not event.no_successor and self._is_of_successor(state, known):
                # A requested state counts as not read: the partition has no election here.
                continue
            is_newest, partition.reading = partition.reading, False
            if state is not None and (known is None or _is_older(known, state)):
                partition.learn(state)
                self._deliveries.announce(partition)
            elif is_newest:
                self._state_not_newer(partition, state)
            elif known is not None and (state is None or _is_older(state, known)):
                # The state may have been read before this controller wrote it.
                doubtful.append(partition)
            self._cluster.mark_names((name,))
        return self._read_again(doubtful)

    def _read_again(self, partitions: Iterable[ControlledPartition]) -> list[Effect]:
        """Have the states read before anything is decided or written on these partitions; a write
        under way that is refused leads to the same."""
        wanted = [
            partition
            for partition in partitions
            if partition.writing is None and not self._cluster.is_deleting(partition.name.topic)
        ]
        for partition in wanted:
            partition.reading = True
        return [ReadStates(partitions=tuple(p.name for p in wanted))] if wanted else []

    def _state_not_newer(
        self, partition: ControlledPartition, state: PartitionState | None
    ) -> None:
        """Take over `state` as the present content of the node; no write of this controller is
        under way."""
        known = partition.state
        if state is None:
            # Neither with nor without the partition's node is a guess that can be wrong for long.
            partition.node_lacks_state = not partition.node_lacks_state
            partition.stored_epoch = None
        elif known is not None and _is_older(state, known):
            if state.leader_epoch > known.leader_epoch:
                partition.learn(state)
                self._deliveries.announce(partition)
            else:
                partition.stored_epoch = state.partition_epoch

    def _is_of_successor(self, state: PartitionState, known: PartitionState | None) -> bool:
        """Return True when a later controller wrote the state. This controller would send it with
        the assignment that it knows itself, and a leader takes a leader epoch only once: it could
        let in a replica that the successor has retired. A controller epoch that was higher at the
        start says nothing, since the node that counts controller epochs may have been lost."""
        own = self._cluster.controller_epoch
        seen = own if known is None else known.controller_epoch
        return state.controller_epoch > max(own, seen)


def _is_older(state: PartitionState, other: PartitionState) -> bool:
    return state.partition_epoch < other.partition_epoch
