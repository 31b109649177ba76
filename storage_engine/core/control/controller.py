"""The controller's state machine: what the cluster should be, derived from what it is.

The machine is level-triggered: each event updates what is known and marks partitions as dirty;
every dirty partition is compared with what it should be (`partition_elections`). So a new
controller, a lost answer and a late event all end in the same state.

    event ──► what is known ──► elections ──► shutdowns, topics ready, deletions ──► deliveries
              ControlledCluster  WriteStates                                         Deliver

A step holds a bounded number of elections; the rest are held in later turns of the driver, each by
what is known then.

Source: R-CTL1 to R-CTL9.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from storage_engine.core.control.cluster_state import (
    BrokerInfo,
    ControlledCluster,
    ControlledPartition,
    ControlledTopic,
    PartitionAssignment,
    PartitionState,
    TopicInfo,
    led_elsewhere,
)
from storage_engine.core.control.controller_events import (
    AssignmentsWritten,
    BalanceChecked,
    BrokerReportsFailures,
    BrokersChanged,
    ContinueElections,
    ControlledShutdownRequested,
    DeliveryFailed,
    DeliveryMade,
    Effect,
    ElectionRequested,
    ElectionsContinued,
    Event,
    Loaded,
    News,
    ReassignmentRequested,
    ReplicasFailed,
    Request,
    StatesRead,
    StatesWritten,
    TopicDeleted,
    TopicDeletionRequested,
    TopicsRead,
    TopicsReady,
)
from storage_engine.core.control.deliveries import Deliveries
from storage_engine.core.control.partition_elections import PartitionElections
from storage_engine.core.control.planned_changes import (
    ControlledShutdowns,
    Reassignments,
    TopicDeletions,
)
from storage_engine.core.ids import BrokerId, ControllerEpoch, TopicPartition

ELECTIONS_PER_TURN = 128
"""Partitions that one turn of the driver compares with what they should be: with the writes that
follow some 15 ms of processor time. Those of a broker with 10,000 partitions took 0.5 s in one
turn, on a busy machine so much longer that the broker lost its session."""

TURNS_HELD_MAX = 16
"""The most turns for which deliveries are held back while elections are left: some 0.2 s. Each
broker hears of every partition, and fetches anew from each leader that an order names: what is sent
together costs a broker once what it would cost for each message."""


class Controller:
    """State of the acting controller. Every change goes through `step`."""

    def __init__(
        self,
        *,
        controller_epoch: ControllerEpoch,
        delete_topic_enable: bool = True,
        elections_per_turn: int = ELECTIONS_PER_TURN,
    ) -> None:
        self._elections_per_turn = elections_per_turn
        self._awaits_turn = False
        """True from ContinueElections until another turn has come."""
        self._turns_held = 0
        """Turns with elections since deliveries were made last."""
        self._cluster = ControlledCluster(controller_epoch=controller_epoch)
        self._deliveries = Deliveries(self._cluster)
        self._reassignments = Reassignments(self._cluster, self._deliveries)
        self._shutdowns = ControlledShutdowns(self._cluster, self._deliveries)
        self._elections = PartitionElections(
            self._cluster, self._deliveries, self._reassignments, self._shutdowns
        )
        self._deletions = TopicDeletions(
            self._cluster, self._deliveries, self._reassignments, enabled=delete_topic_enable
        )
        self._awaited = AwaitedTopics(self._cluster)

    def step(self, event: Event) -> list[Effect]:
        """Apply one event; the effects are for the driver to carry out, in order."""
        if isinstance(event, ElectionsContinued):
            self._awaits_turn = False
            self._turns_held += 1
            effects: list[Effect] = []
        else:
            effects = self._take(event)
        effects.extend(self._reassignments.next_effects())
        if not self._awaits_turn:
            effects.extend(self._hold_elections())
        effects.extend(self._shutdowns.progress())
        effects.extend(self._awaited.take_ready())
        effects.extend(self._deletions.finished())
        if not self._awaits_turn or self._turns_held >= TURNS_HELD_MAX:
            self._turns_held = 0
            effects.extend(self._deliveries.next_effects())
        return effects

    def _hold_elections(self) -> Iterator[Effect]:
        """Hold those that are due, and those of shutdowns, as many as one turn may."""
        dirty = self._cluster.dirty
        left = self._elections_per_turn
        while True:
            waiting = len(dirty)
            yield from self._elections.hold_due(left)
            left -= waiting - len(dirty)
            if not left:
                self._awaits_turn = True
                yield ContinueElections()
                return
            wave = self._shutdowns.next_wave()
            if not wave:
                return
            self._cluster.mark_names(wave)

    def _take(self, event: News) -> list[Effect]:
        match event:
            case Loaded():
                return self._on_loaded(event)
            case BrokersChanged():
                self._on_brokers_changed(event.brokers)
            case TopicsRead():
                return self._on_topics_read(event)
            case StatesRead():
                self._awaited.touch(name.topic for name in event.states)
                return self._elections.states_read(event)
            case StatesWritten():
                self._awaited.touch(name.topic for name in event.outcomes)
                return self._elections.states_written(event.outcomes)
            case AssignmentsWritten():
                self._on_assignments_written(event)
            case BrokerReportsFailures():
                if event.broker in self._cluster.brokers:
                    # The answer names the replicas that can't be served.
                    self._deliveries.everything_to(event.broker)
            case ReplicasFailed():
                self._on_replicas_failed(event)
            case TopicDeleted():
                self._awaited.touch((event.topic,))
                self._deletions.deleted(event.topic)
            case DeliveryMade() | DeliveryFailed():
                self._deliveries.settle(event)
            case _:
                return self._take_request(event)
        return []

    def _take_request(self, event: Request) -> list[Effect]:
        match event:
            case TopicDeletionRequested():
                return self._deletions.request(event.topics)
            case ControlledShutdownRequested():
                self._shutdowns.begin(event)
            case BalanceChecked():
                self._on_balance_checked(event.percentage)
            case ReassignmentRequested():
                self._reassignments.request(event.targets)
            case ElectionRequested():
                self._on_election_requested(event)
        return []

    @property
    def controller_epoch(self) -> ControllerEpoch:
        return self._cluster.controller_epoch

    @property
    def elections(self) -> PartitionElections:
        """The elections, for reading their counts only."""
        return self._elections

    def known_partitions(self) -> Iterable[ControlledPartition]:
        """All partitions, for reading only."""
        return self._cluster.partitions()

    def topic_sizes(self) -> list[tuple[str, int]]:
        return [(name, len(topic.partitions)) for name, topic in self._cluster.topics.items()]

    @property
    def brokers(self) -> Mapping[BrokerId, BrokerInfo]:
        return self._cluster.brokers

    def topic(self, name: str) -> TopicInfo | None:
        """Return a topic, also one that is being deleted; None when there is no such topic."""
        topic = self._cluster.topics.get(name)
        return None if topic is None else topic.info

    def is_deleting(self, topic: str) -> bool:
        return self._cluster.is_deleting(topic)

    def exists(self, partition: TopicPartition) -> bool:
        return self._cluster.partition(partition) is not None

    def state(self, partition: TopicPartition) -> PartitionState | None:
        """Return a partition's state; None when there is no such partition, or it has no state
        yet."""
        known = self._cluster.partition(partition)
        return None if known is None else known.state

    def states(self) -> dict[TopicPartition, PartitionState]:
        partitions = self._cluster.partitions()
        return {known.name: known.state for known in partitions if known.state is not None}

    def refusals(self, partition: TopicPartition) -> int:
        """Return how many writes of the partition's state were refused in a row, without any news
        about it."""
        known = self._cluster.partition(partition)
        return 0 if known is None else known.refusals

    def owed_now(self) -> dict[BrokerId, int]:
        """Return what brokers have yet to be told, for `are_settled`."""
        return self._deliveries.owed_now()

    def are_settled(self, owed: Mapping[BrokerId, int]) -> bool:
        """Return True when each broker has been told what it was owed, or could not be told."""
        return self._deliveries.are_settled(owed)

    def moves(self) -> dict[TopicPartition, PartitionAssignment]:
        """Return every partition that is being reassigned, with its present and its future
        replicas."""
        return dict(self._reassignments.under_way())

    def preferred_replica(self, partition: TopicPartition) -> BrokerId | None:
        """Return the preferred replica; None when there is no such partition, or it is being
        deleted."""
        known = self._cluster.partition(partition)
        if known is None or self.is_deleting(partition.topic) or not known.replicas:
            return None
        return known.replicas[0]

    def is_settled(self, partition: TopicPartition) -> bool:
        """Return True when nothing is decided or written about the partition's leader."""
        return self._cluster.is_settled(partition)

    def _on_loaded(self, event: Loaded) -> list[Effect]:
        cluster = self._cluster
        cluster.brokers = dict(event.brokers)
        cluster.unreadable_topics = set(event.unreadable)
        for topic, info in event.topics.items():
            cluster.topics[topic] = ControlledTopic(info=info)
            cluster.topics[topic].take(info)
        for partition in cluster.partitions():
            state = event.states.get(partition.name)
            if state is None:
                partition.unremembered = True
            else:
                partition.learn(state)
                partition.bounced = self._bounced_before_loading(state)
            # It is not known whether the former controller had sent the move to the replicas.
            partition.renewing = partition.assignment.reassignment is not None
        cluster.mark_dirty(cluster.partitions())
        self._hold_first_without_leader(cluster.partitions(), ended=())
        for broker in cluster.brokers:
            self._deliveries.everything_to(broker)
        # Somebody may wait for a topic that was written before this controller was elected.
        self._awaited.add(cluster.topics)
        return self._deletions.request(event.deleting)

    def _hold_first_without_leader(
        self, partitions: Iterable[ControlledPartition], ended: Collection[BrokerId]
    ) -> None:
        """Hold the elections of those that nobody leads before all others: nobody can write to
        them, while the others wait for a smaller ISR at most. `ended`: also of brokers that are
        there again."""
        brokers = self._cluster.brokers
        self._cluster.mark_first(
            partition
            for partition in partitions
            if partition.state is not None
            and (partition.state.leader not in brokers or partition.state.leader in ended)
        )

    def _bounced_before_loading(self, state: PartitionState) -> set[BrokerId]:
        """Return the replicas that were restarted after the state was written, that is, registered
        after it: the state was sent to a former incarnation. A leader is judged by the incarnation
        that was elected: one whose session expired may write its ISR after it has registered anew,
        and it has forgotten that it leads since then if a former controller has sent it
        everything."""
        brokers = self._cluster.brokers
        bounced = {
            b for b in state.isr if b in brokers and 0 < state.written_zxid < brokers[b].epoch
        }
        leader = brokers.get(state.leader)
        if leader is not None and 0 < state.joined_epochs.get(state.leader, 0) < leader.epoch:
            bounced.add(state.leader)
        return bounced

    def _on_brokers_changed(self, brokers: Mapping[BrokerId, BrokerInfo]) -> None:
        cluster = self._cluster
        old, cluster.brokers = cluster.brokers, dict(brokers)
        bounced = {b for b in brokers if b in old and old[b].epoch != brokers[b].epoch}
        ended = {b for b in old if b not in brokers} | bounced
        came = {b for b in brokers if b not in old} | bounced
        self._shutdowns.forget(ended)
        for broker in ended:
            self._deliveries.forget(broker)
            self._reassignments.broker_gone(broker)
        dirty = []
        for partition in cluster.partitions():
            if not ended.isdisjoint(partition.failed):
                partition.failed -= ended
                self._deliveries.metadata_to_all(partition)
            touched = (ended | came).intersection(partition.assignment.replicas)
            if touched:
                dirty.append(partition)
                # This includes a broker that was gone for a while: a write that was under way all
                # the time may have hidden that.
                partition.bounced |= touched & came
        cluster.mark_dirty(dirty)
        self._hold_first_without_leader(dirty, ended)
        for broker in came:
            self._deliveries.everything_to(broker)
            self._deletions.broker_came(broker)
        if ended or came or any(old[b] != brokers[b] for b in brokers if b in old):
            self._deliveries.brokers_to_all()

    def _on_topics_read(self, event: TopicsRead) -> list[Effect]:
        topics, unreadable = self._cluster.topics, self._cluster.unreadable_topics
        mended = event.topics.keys() & unreadable - topics.keys()
        self._take_topics(event.topics)
        for topic in mended:
            for partition in topics[topic].partitions.values():
                # It may have had leaders before this controller could see it.
                partition.unremembered = True
        known = event.topics.keys() | event.absent
        unreadable.difference_update(known)
        unreadable.update(event.unreadable)
        return self._deletions.topics_read(event)

    def _take_topics(self, topics: Mapping[str, TopicInfo]) -> None:
        """Take over topics that appeared, grew or changed; topics that are absent are left to
        deletion."""
        for name, read in topics.items():
            info = self._with_known_id(read)
            known = self._cluster.topics.get(name)
            if known is not None and _has_lost_partitions(known.info, info):
                # This was read before the topic grew; the reader is told of the growth, and reads
                # again.
                continue
            if known is None:
                known = self._cluster.topics[name] = ControlledTopic(info=info)
            changed = known.take(info)
            self._cluster.mark_dirty(known.partitions.values())
            if known.deleting:
                # Its replicas are to be deleted wherever they were to go.
                continue
            self._awaited.add((name,))
            for partition, former in changed:
                self._on_assignment_changed(partition, former)

    def _with_known_id(self, info: TopicInfo) -> TopicInfo:
        """Return a topic that was read, with the id that it is known by if its node has lost that.
        A known topic whose name another topic has by now is forgotten: the other one has another id
        or, where the id was lost, fewer partitions, and no topic ever loses partitions."""
        known = self._cluster.topics.get(info.topic)
        if known is None:
            return info
        if not info.topic_id.int:
            # Nobody else remembers it.
            return replace(info, topic_id=known.info.topic_id)
        if known.info.topic_id != info.topic_id and not known.deleting:
            if known.info.topic_id.int or not known.partitions.keys() <= info.assignment.keys():
                self._deletions.removed_by_others(info.topic)
            else:
                # The id was lost and is there again: replicas hear of it, and follow the one they
                # know.
                for partition in known.partitions.values():
                    partition.renewing = True
        return info

    def _on_assignment_changed(
        self, partition: ControlledPartition, former: PartitionAssignment
    ) -> None:
        """Send another assignment with another leader epoch (R-CTL8), except after the last step of
        a reassignment, which the brokers knew before."""
        has_arrived = partition.retired and former.finished() == partition.assignment
        self._reassignments.assignment_changed(partition, former)
        if has_arrived:
            self._deliveries.metadata_to_all(partition)
        else:
            partition.renewing = True

    def _on_assignments_written(self, event: AssignmentsWritten) -> None:
        self._reassignments.written(event.topic)
        if event.info is not None and event.topic in self._cluster.topics:
            self._take_topics({event.topic: event.info})

    def _on_replicas_failed(self, event: ReplicasFailed) -> None:
        broker = self._cluster.brokers.get(event.broker)
        if broker is None or broker.epoch != event.broker_epoch:
            return
        for name in event.partitions:
            partition = self._cluster.partition(name)
            if partition is not None and event.broker not in partition.failed:
                partition.failed.add(event.broker)
                self._deliveries.withdraw_stop(event.broker, name)
                self._cluster.mark_names((name,))
                self._deliveries.metadata_to_all(partition)

    def _on_election_requested(self, event: ElectionRequested) -> None:
        for name in event.partitions:
            partition = self._cluster.partition(name)
            if partition is None or partition.state is None:
                continue
            if event.unclean:
                partition.unclean = True
            else:
                partition.preferring = True
            self._cluster.mark_names((name,))

    def _on_balance_checked(self, percentage: int) -> None:
        """Have unbalanced partitions elect their preferred replicas. Partitions that are being
        reassigned are skipped: another replica is preferred after the move."""
        led = [
            (partition.name, partition.assignment.replicas[0], partition.state)
            for topic in self._cluster.topics.values()
            if not topic.deleting
            for partition in topic.partitions.values()
            if partition.state is not None and partition.assignment.reassignment is None
        ]
        self._on_election_requested(
            ElectionRequested(partitions=tuple(led_elsewhere(led, percentage)))
        )


class AwaitedTopics:
    """Topics whose creation somebody may wait for: they are ready once all partitions have a state.
    Each step looks at the topics that it has touched, and at those of their partitions that had no
    state before; a look at all of them would make a creation quadratic."""

    def __init__(self, cluster: ControlledCluster) -> None:
        """`cluster` is only read."""
        self._cluster = cluster
        self._without_state: dict[str, list[ControlledPartition]] = {}
        """By topic: its partitions, without those from the end that had a state at the last look;
        a state once known stays known."""
        self._touched: set[str] = set()

    def add(self, topics: Iterable[str]) -> None:
        """Await these, in which partitions may be new."""
        for name in topics:
            known = self._cluster.topics.get(name)
            if known is not None:
                self._without_state[name] = list(reversed(known.partitions.values()))
                self._touched.add(name)

    def touch(self, topics: Iterable[str]) -> None:
        """Look at these in this step: partitions may have got a state, or the topic may be gone."""
        self._touched.update(topics)

    def take_ready(self) -> list[TopicsReady]:
        """Return the topics that are ready since the last step."""
        ready = []
        for name in sorted(self._touched & self._without_state.keys()):
            topic = self._cluster.topics.get(name)
            if topic is None or topic.deleting:
                del self._without_state[name]
                continue
            left = self._without_state[name]
            while left and left[-1].state is not None:
                left.pop()
            if not left:
                del self._without_state[name]
                ready.append(name)
        self._touched.clear()
        return [TopicsReady(topics=tuple(ready))] if ready else []


def _has_lost_partitions(old: TopicInfo, new: TopicInfo) -> bool:
    """Return True when `new` has fewer partitions. A topic never loses any, so `new` was read
    earlier; a topic that was deleted and created again has another id."""
    return old.topic_id == new.topic_id and not old.assignment.keys() <= new.assignment.keys()
