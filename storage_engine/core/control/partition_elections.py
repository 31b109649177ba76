"""Elections of partitions: the decisions, their writes to ZooKeeper, and the outcomes of the
writes.

A dirty partition of which nothing is being written or read is compared with what it should be, and
the difference becomes a conditional write. Only an accepted write is sent to brokers. After a
refused one, or one without an answer, the state is read before the next decision. Source: R-CTL1,
R-CTL2, R-CTL4, R-CTL10.
"""

from collections.abc import Iterable, Mapping

from storage_engine.core.control.cluster_state import PartitionState
from storage_engine.core.control.controlled_cluster import (
    ControlledCluster,
    ControlledPartition,
    PendingElection,
)
from storage_engine.core.control.controlled_shutdowns import ControlledShutdowns
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
from storage_engine.core.control.election_rules import (
    Elected,
    Situation,
    due_election,
    joined_epochs_of,
    restoring_election,
    suspects,
)
from storage_engine.core.control.first_leader_epoch import first_leader_epoch
from storage_engine.core.control.reassignments import Reassignments
from storage_engine.core.ids import NO_LEADER, LeaderEpoch, PartitionEpoch, TopicPartition


class PartitionElections:
    """The elections of one controller."""

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

    # --- decisions ---

    def hold_due(self) -> list[Effect]:
        """Hold an election for every dirty partition that can have one."""
        writes = []
        offline = []
        for partition in self._cluster.take_due():
            state = partition.state
            elected = self._elected(partition)
            if elected is None and partition.bounced:
                # The restarted broker had no role here: it counts as alive from now on.
                partition.bounced.clear()
                elected = self._elected(partition)
            if elected is not None:
                if elected.leader == NO_LEADER and (state is None or state.leader != NO_LEADER):
                    offline.append(partition.name)
                write = self._write(partition, elected)
                writes.append(write)
                partition.writing = PendingElection(
                    state=write.state,
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

    # --- answers of ZooKeeper ---

    def states_written(
        self, outcomes: Mapping[TopicPartition, tuple[WriteOutcome, PartitionState]]
    ) -> list[Effect]:
        unclear = []
        for name, (outcome, state) in outcomes.items():
            partition = self._cluster.partition(name)
            if partition is None:
                continue
            election, partition.writing = partition.writing, None
            self._cluster.dirty.add(name)
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
            self._cluster.dirty.add(name)
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
