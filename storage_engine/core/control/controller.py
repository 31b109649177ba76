"""The controller's state machine: what the cluster should be, derived from what it is.

Rule: level-triggered. Each event updates what is known and marks partitions as dirty; every dirty
partition without a write under way is compared with what it should be, and the difference becomes a
conditional write. Only an accepted write is told to brokers. So a new controller, a lost answer and
a late event all end in the same state. Source: R-CTL1 to R-CTL9; documents 000 and 001.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from storage_engine.core.control.cluster_state import BrokerInfo, PartitionState, TopicInfo
from storage_engine.core.control.controlled_shutdowns import ControlledShutdowns
from storage_engine.core.control.controller_events import (
    AssignmentsWritten,
    BalanceChecked,
    BrokerReportsFailures,
    BrokersChanged,
    ControlledShutdownRequested,
    DeleteTopicNodes,
    Deliver,
    Delivered,
    DeliveryFailed,
    DropDeletionRequests,
    Effect,
    ElectionRequested,
    Event,
    Loaded,
    NoReplicaOnline,
    ReadStates,
    ReassignmentRequested,
    ReplicasFailed,
    Request,
    ShutdownProgress,
    StatesRead,
    StatesWritten,
    StateWrite,
    TopicDeleted,
    TopicDeletionRequested,
    TopicsChanged,
    TopicsReady,
    WriteOutcome,
    WriteStates,
)
from storage_engine.core.control.decision import Situation, restored, wanted
from storage_engine.core.control.deliveries import Deliveries
from storage_engine.core.control.election import Elected
from storage_engine.core.control.first_leader_epoch import first_leader_epoch
from storage_engine.core.control.imbalance import led_elsewhere
from storage_engine.core.control.lost_tails import joined_epochs_of, suspects
from storage_engine.core.control.reassigner import Reassigner
from storage_engine.core.control.reassignment import Assigned
from storage_engine.core.control.undecided import Decision, Undecided
from storage_engine.core.ids import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)


@dataclass(slots=True)
class Controller:
    """State of the acting controller. Every change goes through `step`."""

    controller_epoch: ControllerEpoch
    delete_topic_enable: bool = True
    brokers: dict[BrokerId, BrokerInfo] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    _unreadable: set[str] = field(default_factory=set)
    """Topics that are there, though nobody can tell what they are: requests about them wait."""
    _deleting_later: set[str] = field(default_factory=set)
    """Those of them whose deletion was asked for."""
    _remade: dict[TopicPartition, PartitionEpoch | None] = field(default_factory=dict)
    """States that others removed (None) or put back in an older version: what is known of them is
    to be written over what is there."""
    _unremembered: set[TopicPartition] = field(default_factory=set)
    """Partitions that had no state at the start, or were of topics that nobody could read then: new
    ones, or others have removed it."""
    _headless: set[TopicPartition] = field(default_factory=set)
    """Partitions whose node seems to be there without a state: one with it could not be made."""
    _failed: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    """Replicas that live brokers can't serve: dead until their broker has been restarted."""
    _unready: set[str] = field(default_factory=set)
    _undecided: Undecided = field(default_factory=Undecided)
    _shutdowns: ControlledShutdowns = field(default_factory=ControlledShutdowns)
    _reassigner: Reassigner = field(default_factory=Reassigner)
    _deliveries: Deliveries = field(default_factory=Deliveries)

    def step(self, event: Event) -> list[Effect]:
        """Apply one event; the effects are for the driver to carry out, in order."""
        effects = self._take(event)
        effects.extend(self._reassignments())
        effects.extend(self._reconcile())
        while wave := self._shutdowns.next_wave(self._leader_knows):
            self._undecided.look_at(wave)
            effects.extend(self._reconcile())
        effects.extend(self._shutdown_progress())
        effects.extend(self._ready_topics())
        effects.extend(self._finished_deletions())
        effects.extend(self._flush())
        return effects

    def _take(self, event: Event) -> list[Effect]:
        match event:
            case Loaded():
                return self._on_loaded(event)
            case BrokersChanged():
                self._on_brokers_changed(event.brokers)
            case TopicsChanged():
                return self._on_topics_read(event)
            case StatesRead():
                return self._on_states_read(event)
            case StatesWritten():
                return self._on_states_written(event.outcomes)
            case AssignmentsWritten():
                self._on_assignments_written(event)
            case BrokerReportsFailures() | ReplicasFailed():
                self._on_failures(event)
            case TopicDeleted():
                self._on_topic_deleted(event.topic)
            case Delivered() | DeliveryFailed():
                self._deliveries.settle(event)
            case _:
                return self._take_request(event)
        return []

    def _take_request(self, event: Request) -> list[Effect]:
        match event:
            case TopicDeletionRequested():
                return self._on_deletion_requested(event.topics)
            case ControlledShutdownRequested():
                self._on_controlled_shutdown(event)
            case BalanceChecked():
                self._on_balance_checked(event.percentage)
            case ReassignmentRequested():
                self._reassigner.request(event.targets)
            case ElectionRequested():
                self._on_election_requested(event)
        return []

    # --- what others may ask ---

    def moves(self) -> dict[TopicPartition, Assigned]:
        """Every partition that is being reassigned, with what it has and will have."""
        return dict(self._reassigner.under_way(self.topics))

    def exists(self, partition: TopicPartition) -> bool:
        info = self.topics.get(partition.topic)
        return info is not None and partition.partition in info.assignment

    def preferred_replica(self, partition: TopicPartition) -> BrokerId | None:
        """None: there is no such partition, or it is being deleted."""
        info = self.topics.get(partition.topic)
        if info is None or partition.topic in self.deleting:
            return None
        replicas = self._reassigner.replicas(partition, info)
        return replicas[0] if replicas else None

    def is_settled(self, partition: TopicPartition) -> bool:
        """Whether nothing is being decided or written about the partition's leader."""
        return self._undecided.is_settled(partition)

    # --- what events change ---

    def _on_loaded(self, event: Loaded) -> list[Effect]:
        self.brokers = dict(event.brokers)
        self.topics = dict(event.topics)
        self.states = dict(event.states)
        self._unreadable = set(event.unreadable)
        self._undecided.look_at(self._all_partitions())
        self._unremembered = set(self._all_partitions()) - self.states.keys()
        for broker in self.brokers:
            self._deliveries.everything_to(broker)
        self._note_bounces_before_loading()
        # Somebody may wait for a topic that was written before this controller knew anything.
        self._unready.update(self.topics)
        # Whether the former controller had told the replicas of it is not known.
        self._undecided.renewing.update(self._moving())
        return self._on_deletion_requested(event.deleting)

    def _note_bounces_before_loading(self) -> None:
        """Who registered after a state was written has been restarted since: that state was told to
        a former incarnation. A leader counts by what it was elected as: one whose session expired
        may write its ISR after it has registered anew, and has forgotten that it leads since then
        if a former controller has told it everything."""
        for partition, state in self.states.items():
            bounced = {
                b
                for b in state.isr
                if b in self.brokers and 0 < state.written_zxid < self.brokers[b].epoch
            }
            leader = self.brokers.get(state.leader)
            if leader is not None and 0 < state.joined_epochs.get(state.leader, 0) < leader.epoch:
                bounced.add(state.leader)
            if bounced:
                self._undecided.bounced[partition] = bounced

    def _on_brokers_changed(self, brokers: Mapping[BrokerId, BrokerInfo]) -> None:
        old = self.brokers
        self.brokers = dict(brokers)
        gone = {b for b in old if b not in brokers}
        bounced = {b for b in brokers if b in old and old[b].epoch != brokers[b].epoch}
        fresh = {b for b in brokers if b not in old} | bounced
        moved = {b for b in brokers if b in old and old[b] != brokers[b]}
        self._shutdowns.forget(gone | bounced)
        for broker in gone | bounced:
            self._deliveries.forget(broker)
            self._deliveries.withdraw_stops(broker)
            self._reassigner.broker_gone(broker, self._deliveries)
            for partition in self._failed.pop(broker, ()):
                self._metadata_changed(partition)
        affected = gone | fresh
        for partition, replicas in self._assignments():
            touched = affected.intersection(replicas)
            if not touched:
                continue
            self._undecided.look_at([partition])
            # Also one that was gone for a while: its going may have been hidden by a write that
            # was under way all the time.
            if restarted := fresh.intersection(replicas):
                self._undecided.bounced.setdefault(partition, set()).update(restarted)
        for broker in fresh:
            self._deliveries.everything_to(broker)
            for topic in self.deleting:
                self._offer_stops(broker, topic)
        if gone or fresh or moved:
            for broker in brokers:
                self._deliveries.brokers_to(broker)

    def _on_topics_read(self, event: TopicsChanged) -> list[Effect]:
        mended = event.topics.keys() & self._unreadable - self.topics.keys()
        # They may have been led before this controller could know of it.
        self._unremembered.update(
            TopicPartition(topic, number)
            for topic in mended
            for number in event.topics[topic].assignment
        )
        self._on_topics_changed(event.topics)
        known = event.topics.keys() | event.absent
        self._unreadable = (self._unreadable - known) | event.unreadable
        decided = self._deleting_later & known
        self._deleting_later -= decided
        return self._on_deletion_requested(sorted(decided))

    def _on_topics_changed(self, topics: Mapping[str, TopicInfo]) -> None:
        """Topics that appeared, grew or changed; absent ones are dealt with by deletion only."""
        for topic, info in topics.items():
            old = self.topics.get(topic)
            if old is not None and not info.topic_id.int:
                # Its node lost the id, and nobody else remembers it.
                info = replace(info, topic_id=old.topic_id)
            if old is not None and old.topic_id != info.topic_id and topic not in self.deleting:
                # Also one whose id was lost never loses partitions.
                if old.topic_id.int or not old.assignment.keys() <= info.assignment.keys():
                    self._on_removed_by_others(topic)
                    old = None
                else:
                    # It was lost, and is there again: replicas are told, and go by what they know.
                    self._undecided.renewing.update(
                        TopicPartition(topic, number) for number in old.assignment
                    )
            if old is not None and _has_lost_partitions(old, info):
                # Read before it grew; who read it is told of the growth, and reads again.
                continue
            self.topics[topic] = info
            if topic not in self.deleting:
                self._unready.add(topic)
            for number in info.assignment:
                partition = TopicPartition(topic, number)
                self._undecided.look_at([partition])
                before = old.assigned(number) if old is not None else None
                after = info.assigned(number)
                if before is not None and after is not None and before != after:
                    self._on_assignment_changed(partition, before, after)

    def _on_assignment_changed(
        self, partition: TopicPartition, before: Assigned, after: Assigned
    ) -> None:
        """Another assignment is told with another leader epoch (R-CTL8, step 2), except for the
        last step of a reassignment: there the brokers have known it before."""
        if partition.topic in self.deleting:
            # Its replicas are to be deleted wherever they were to go.
            return
        arrived = after.reassignment is None and after.replicas == self._reassigner.retired_to(
            partition
        )
        self._reassigner.assignment_changed(partition, before, self._deliveries)
        if arrived:
            self._metadata_changed(partition)
        else:
            self._undecided.renewing.add(partition)

    def _on_assignments_written(self, event: AssignmentsWritten) -> None:
        self._reassigner.written(event.topic)
        if event.info is not None and event.topic in self.topics:
            self._on_topics_changed({event.topic: event.info})

    def _on_election_requested(self, event: ElectionRequested) -> None:
        known = [tp for tp in event.partitions if tp in self.states]
        undecided = self._undecided
        (undecided.unclean if event.unclean else undecided.preferring).update(known)
        undecided.look_at(known)

    def _on_states_read(self, event: StatesRead) -> list[Effect]:
        doubtful = []
        for partition, state in event.states.items():
            known = self.states.get(partition)
            if state is not None and not event.no_successor and self._is_of_successor(state, known):
                # If it was asked for it counts as not read: nothing is decided on it here.
                continue
            is_newest = partition in self._undecided.reading
            self._undecided.reading.discard(partition)
            if not self.exists(partition):
                continue
            if state is not None and _is_newer(state, known):
                self._remade.pop(partition, None)
                self.states[partition] = state
                self._announce(partition)
            elif is_newest:
                self._on_state_not_newer(partition, state, known)
            elif known is not None and (
                state is None or state.partition_epoch < known.partition_epoch
            ):
                # It may have been read before it was written from here.
                doubtful.append(partition)
            self._undecided.look_at([partition])
        return self._read_again(doubtful)

    def _read_again(self, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """Nothing of them is decided or written before they are read; a write under way that is
        refused leads to the same."""
        wanted = tuple(
            tp
            for tp in partitions
            if tp.topic not in self.deleting and not self._undecided.is_writing(tp)
        )
        self._undecided.reading.update(wanted)
        return [ReadStates(partitions=wanted)] if wanted else []

    def _on_state_not_newer(
        self,
        partition: TopicPartition,
        state: PartitionState | None,
        known: PartitionState | None,
    ) -> None:
        """What there is now, with nothing of ours under way."""
        if state is None:
            # Neither with nor without the partition's node is a guess that can be wrong for long.
            self._headless ^= {partition}
            if known is not None:
                self._remade[partition] = None
        elif known is not None and state.partition_epoch < known.partition_epoch:
            if state.leader_epoch > known.leader_epoch:
                self._remade.pop(partition, None)
                self.states[partition] = state
                self._announce(partition)
            else:
                self._remade[partition] = state.partition_epoch

    def _is_of_successor(self, state: PartitionState, known: PartitionState | None) -> bool:
        """Whether a later controller wrote it. Told from here, it would go with the assignment that
        is known here, and a leader takes a leader epoch only once: it could let in a replica that
        the successor has retired. Epochs that were higher at the start say nothing: the node that
        counts them may have been lost."""
        seen = self.controller_epoch if known is None else known.controller_epoch
        return state.controller_epoch > max(self.controller_epoch, seen)

    def _on_states_written(
        self, outcomes: Mapping[TopicPartition, tuple[WriteOutcome, PartitionState]]
    ) -> list[Effect]:
        unclear = []
        for partition, (outcome, state) in outcomes.items():
            decision = self._undecided.written(partition)
            if not self.exists(partition):
                continue
            if outcome is WriteOutcome.ACCEPTED:
                self._remade.pop(partition, None)
                self._headless.discard(partition)
                self._unremembered.discard(partition)
                self.states[partition] = state
                if decision is not None:
                    self._settle(partition, decision)
                self._announce(partition)
            elif partition.topic not in self.deleting:
                unclear.append(partition)
                self._undecided.refuse(partition, decision)
        return [ReadStates(partitions=tuple(unclear))] if unclear else []

    def _settle(self, partition: TopicPartition, decision: Decision) -> None:
        self._undecided.accept(partition, decision)
        present = self.topics[partition.topic].assigned(partition.partition)
        if present != decision.assigned or present is None:
            return
        self._undecided.renewing.discard(partition)
        if decision.retires and partition.topic not in self.deleting:
            self._reassigner.retire(partition, present, self.brokers, self._deliveries)

    def _on_controlled_shutdown(self, event: ControlledShutdownRequested) -> None:
        broker = self.brokers.get(event.broker)
        if broker is None or broker.epoch != event.broker_epoch:
            return
        held = [tp for tp, replicas in self._assignments() if event.broker in replicas]
        led = [tp for tp in held if tp in self.states and self.states[tp].leader == event.broker]
        others = set(held).difference(led)
        self._shutdowns.begin(event.broker, [*led, *sorted(others)])

    def _leader_knows(self, partition: TopicPartition) -> bool:
        """Whether nothing is decided, written or to be told about the partition's leadership."""
        if not self._undecided.is_settled(partition):
            return False
        state = self.states.get(partition)
        return state is None or not self._deliveries.owes_leadership(state.leader, partition)

    def _on_failures(self, event: BrokerReportsFailures | ReplicasFailed) -> None:
        if isinstance(event, BrokerReportsFailures):
            if event.broker in self.brokers:
                # The answer tells what can't be served.
                self._deliveries.everything_to(event.broker)
            return
        broker = self.brokers.get(event.broker)
        if broker is None or broker.epoch != event.broker_epoch:
            return
        failed = self._failed.setdefault(event.broker, set())
        for partition in event.partitions:
            if partition not in failed and self.exists(partition):
                failed.add(partition)
                self._deliveries.withdraw_stop(event.broker, partition)
                self._undecided.look_at([partition])
                self._metadata_changed(partition)

    def _on_balance_checked(self, percentage: int) -> None:
        """What is on the move is left alone: another replica is preferred afterwards."""
        led = [
            (partition, assigned[0], self.states[partition])
            for partition, assigned in self._assignments()
            if partition in self.states
            and partition.topic not in self.deleting
            and partition.partition not in self.topics[partition.topic].reassignments
        ]
        returned = list(led_elsewhere(led, percentage))
        self._undecided.preferring.update(returned)
        self._undecided.look_at(returned)

    def _on_deletion_requested(self, topics: Iterable[str]) -> list[Effect]:
        """A request that can't be carried out is taken away: left behind, it would delete a later
        topic of that name."""
        void = []
        for topic in topics:
            if topic in self.deleting:
                continue
            if self.delete_topic_enable and topic in self._unreadable - self.topics.keys():
                self._deleting_later.add(topic)
                continue
            if not self.delete_topic_enable or topic not in self.topics:
                void.append(topic)
                continue
            self.deleting.add(topic)
            self._unready.discard(topic)
            info = self.topics[topic]
            self._reassigner.forget_topic(topic)
            self._deliveries.begin_stopping(topic)
            for partition, replicas in info.assignment.items():
                tp = TopicPartition(topic, partition)
                self._undecided.set_aside(tp)
                for replica in replicas:
                    self._deliveries.stop_replica(replica, tp)
            for broker in self.brokers:
                self._offer_stops(broker, topic)
                self._deliveries.removal_to(broker, topic)
        return [DropDeletionRequests(topics=tuple(void))] if void else []

    def _offer_stops(self, broker: BrokerId, topic: str) -> None:
        """A broker that was dead when its replica went elsewhere would find that out from the
        topic's metadata, which nobody is told any more."""
        failed = self._failed.get(broker, set())
        for number in self.topics[topic].assignment:
            partition = TopicPartition(topic, number)
            if partition not in failed:
                self._deliveries.offer_stop(broker, partition)

    def _on_removed_by_others(self, topic: str) -> None:
        """Not by a deletion of ours: another topic has its name by now. What is owed to replicas of
        the old one, or known of it, is not meant for those of the new one."""
        info = self.topics[topic]
        for number in info.assignment:
            partition = TopicPartition(topic, number)
            self._reassigner.assignment_changed(partition, info.assigned(number), self._deliveries)
        self._on_topic_deleted(topic)
        for broker in self.brokers:
            self._deliveries.removal_to(broker, topic)

    def _on_topic_deleted(self, topic: str) -> None:
        info = self.topics.pop(topic, None)
        self.deleting.discard(topic)
        self._unready.discard(topic)
        if info is None:
            return
        for partition in info.assignment:
            tp = TopicPartition(topic, partition)
            self.states.pop(tp, None)
            self._remade.pop(tp, None)
            self._headless.discard(tp)
            self._unremembered.discard(tp)
            self._undecided.forget(tp)
            for failed in self._failed.values():
                failed.discard(tp)
        self._deliveries.forget_topic(topic)

    # --- what follows from it ---

    def _reconcile(self) -> list[Effect]:
        writes = []
        offline = []
        for partition in self._undecided.take_due():
            if partition.topic in self.deleting or not self.exists(partition):
                continue
            state = self.states.get(partition)
            elected = self._elected(partition, state)
            if elected is None and partition in self._undecided.bounced:
                # The restarted broker mattered to nobody: it counts as alive from here on.
                del self._undecided.bounced[partition]
                elected = wanted(self._situation(partition, state))
            if elected is None:
                self._undecided.nothing_to_do(partition)
                continue
            if elected.leader == -1 and (state is None or state.leader != -1):
                offline.append(partition)
            writes.append(self._write(partition, state, elected))
            assigned = self.topics[partition.topic].assigned(partition.partition)
            self._undecided.begin(partition, elected, assigned)
        effects: list[Effect] = []
        if offline:
            effects.append(NoReplicaOnline(partitions=tuple(offline)))
        if writes:
            effects.append(WriteStates(writes=tuple(writes)))
        return effects

    def _elected(self, partition: TopicPartition, state: PartitionState | None) -> Elected | None:
        situation = self._situation(partition, state)
        if state is not None and partition in self._remade:
            return restored(situation, state)
        return wanted(situation)

    def _write(
        self, partition: TopicPartition, state: PartitionState | None, elected: Elected
    ) -> StateWrite:
        expected = None if state is None else state.partition_epoch
        expected = self._remade.get(partition, expected)
        is_headless = partition in self._headless
        if state is not None:
            leader_epoch = LeaderEpoch(state.leader_epoch + 1)
        elif is_headless or partition in self._unremembered:
            # Its replicas may have had leaders that nobody remembers.
            leader_epoch = first_leader_epoch(self.controller_epoch)
        else:
            leader_epoch = LeaderEpoch(0)
        return StateWrite(
            partition=partition,
            state=PartitionState(
                leader=elected.leader,
                leader_epoch=leader_epoch,
                isr=elected.isr,
                controller_epoch=self.controller_epoch,
                partition_epoch=PartitionEpoch(0 if expected is None else expected + 1),
                joined_epochs=joined_epochs_of(elected, state, self.brokers),
            ),
            expected_partition_epoch=expected,
            partition_exists=is_headless,
        )

    def _situation(self, partition: TopicPartition, state: PartitionState | None) -> Situation:
        info = self.topics[partition.topic]
        replicas = self._reassigner.replicas(partition, info)
        assert replicas is not None
        undecided = self._undecided
        return Situation(
            assigned=replicas,
            state=state,
            running=self._live(partition),
            bounced=undecided.bounced.get(partition, set()),
            suspect=suspects(state, self.brokers),
            leaving=self._shutdowns.leaving,
            unclean=info.unclean_election or partition in undecided.unclean,
            preferring=partition in undecided.preferring,
            renewing=partition in undecided.renewing,
            move=self._reassigner.unfinished(partition, info),
        )

    def _reassignments(self) -> list[Effect]:
        return list(
            self._reassigner.effects(
                self.topics,
                self.brokers,
                self.deleting,
                self._unreadable,
                lambda partition: self._deliveries.owes_stop(partition, self._failed),
            )
        )

    def _shutdown_progress(self) -> list[Effect]:
        """For each broker that is leaving: which partitions it has not given up though another
        could lead them."""
        leaving = self._shutdowns.leaving
        effects: list[Effect] = []
        for broker in sorted(leaving):
            remaining = {tp for tp in self._shutdowns.waiting(broker) if tp in self.states}
            for partition, state in self.states.items():
                if broker != state.leader or partition.topic in self.deleting:
                    continue
                live = self._live(partition) - leaving
                if any(r != broker and r in live for r in state.isr):
                    remaining.add(partition)
            effects.append(ShutdownProgress(broker=broker, remaining=tuple(sorted(remaining))))
        return effects

    def _ready_topics(self) -> list[Effect]:
        ready = tuple(
            topic
            for topic in sorted(self._unready)
            if all(TopicPartition(topic, p) in self.states for p in self.topics[topic].assignment)
        )
        self._unready.difference_update(ready)
        return [TopicsReady(topics=ready)] if ready else []

    def _finished_deletions(self) -> list[Effect]:
        """A topic is gone when every broker that held a replica has said so; dead ones are waited
        for (R-CTL6)."""
        return [
            DeleteTopicNodes(topic=topic, partitions=tuple(sorted(self.topics[topic].assignment)))
            for topic in sorted(self.deleting)
            if not self._undecided.is_busy(topic) and self._deliveries.take_stopped(topic)
        ]

    def _flush(self) -> list[Effect]:
        return [
            Deliver(broker=broker, delivery=delivery)
            for broker, delivery in self._deliveries.next_for(
                self.brokers,
                self.topics,
                self.states,
                self.deleting,
                replicas=self._reassigner.replicas,
                unled=self._unled(),
                failed=self._failed,
            )
        ]

    def _unled(self) -> set[TopicPartition]:
        """Partitions whose leader has bounced: their state is not to be told to it as if it led on.

        It would take the ISR of that state, which may be old, for the present one, and write under
        an epoch that its log may have been cut in.
        """
        return {
            partition
            for partition, bounced in self._undecided.bounced.items()
            if partition in self.states and self.states[partition].leader in bounced
        }

    # --- small helpers ---

    def _announce(self, partition: TopicPartition) -> None:
        info = self.topics[partition.topic]
        for replica in self._reassigner.replicas(partition, info) or ():
            if replica in self.brokers:
                self._deliveries.leadership_to(replica, partition)
        self._metadata_changed(partition)

    def _metadata_changed(self, partition: TopicPartition) -> None:
        for broker in self.brokers:
            self._deliveries.metadata_to(broker, partition)

    def _live(self, partition: TopicPartition) -> set[BrokerId]:
        """Brokers that run and can serve their replica of the partition, if they have one."""
        live = set(self.brokers)
        for broker, failed in self._failed.items():
            if partition in failed:
                live.discard(broker)
        return live

    def _moving(self) -> Iterable[TopicPartition]:
        return (
            TopicPartition(topic, partition)
            for topic, info in self.topics.items()
            for partition in info.reassignments
        )

    def _all_partitions(self) -> Iterable[TopicPartition]:
        return (partition for partition, _ in self._assignments())

    def _assignments(self) -> Iterable[tuple[TopicPartition, tuple[BrokerId, ...]]]:
        for topic, info in self.topics.items():
            for partition, replicas in info.assignment.items():
                yield TopicPartition(topic, partition), replicas


def _is_newer(state: PartitionState, known: PartitionState | None) -> bool:
    return known is None or state.partition_epoch > known.partition_epoch


def _has_lost_partitions(old: TopicInfo, new: TopicInfo) -> bool:
    """A topic never does: `new` is older. One that was made anew has another id."""
    return old.topic_id == new.topic_id and not old.assignment.keys() <= new.assignment.keys()
