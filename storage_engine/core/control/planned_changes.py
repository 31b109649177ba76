"""Changes that were asked for, from the request to the end: reassignments, deletions of topics,
controlled shutdowns. All are level-triggered, as the controller is.

Requests of reassignments are the content of the admin node, progress is the topics and states in
ZooKeeper; the only other memory is which partitions have retired their old replicas under this
controller. The old replicas go only when every target has been in the ISR and a write of the
partition's state has left the old ones out.

A topic is deleted when every broker that held a replica has confirmed it, dead brokers included;
then its nodes are removed, and its record. A request that can't be carried out is removed, since it
would delete a later topic of that name.

A broker in controlled shutdown gives its partitions up in waves, those that it leads first; a wave
begins when the leaders of the wave before know that they lead. So a partition is without a leader
for no longer than its wave takes. Source: R-CTL6, R-CTL8, R-CTL9, KIP-455.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from storage_engine.core.control.cluster_state import (
    ControlledCluster,
    ControlledPartition,
    ControlledTopic,
    PartitionAssignment,
)
from storage_engine.core.control.controller_events import (
    AssignmentChange,
    ControlledShutdownRequested,
    DeleteTopicNodes,
    DropDeletionRequests,
    DropReassignmentRequests,
    Effect,
    ShutdownProgress,
    TopicsRead,
    WriteAssignments,
)
from storage_engine.core.control.deliveries import Deliveries
from storage_engine.core.ids import BrokerId, TopicPartition

Target = tuple[BrokerId, ...]


class Reassignments:
    def __init__(self, cluster: ControlledCluster, deliveries: Deliveries) -> None:
        self._cluster = cluster
        self._deliveries = deliveries
        self._requested: dict[TopicPartition, Target] = {}
        self._retired: list[ControlledPartition] = []
        """Partitions whose `retired` was set; it may have been reset since the last step."""
        self._writing: set[str] = set()
        """Topics whose assignment is being written."""

    def request(self, targets: Mapping[TopicPartition, Target]) -> None:
        """Replace all requests by `targets`."""
        self._requested = dict(targets)

    def written(self, topic: str) -> None:
        """Record that the write of a topic's assignment has ended, successfully or not."""
        self._writing.discard(topic)

    def retire(self, partition: ControlledPartition) -> None:
        """Stop counting the old replicas; the live ones are to be deleted.

        A dead one deletes its log when it comes back and finds that it is no replica."""
        assert partition.assignment.reassignment is not None
        partition.retired = True
        self._retired.append(partition)
        for replica in partition.assignment.removing:
            if replica in self._cluster.brokers:
                self._deliveries.stop_replica(replica, partition.name)

    def assignment_changed(
        self, partition: ControlledPartition, former: PartitionAssignment
    ) -> None:
        """Record that the partition has another target, or that its move has ended."""
        partition.retired = False
        for replica in former.removing:
            self._deliveries.cancel_stop(replica, partition.name)

    def broker_gone(self, broker: BrokerId) -> None:
        for partition in self._retired:
            self._deliveries.cancel_stop(broker, partition.name)

    def topic_deleting(self, topic: ControlledTopic) -> None:
        for partition in topic.partitions.values():
            partition.retired = False

    def under_way(self) -> Iterator[tuple[TopicPartition, PartitionAssignment]]:
        """Return every partition that is being reassigned or about to be, with its present and its
        future replicas."""
        for topic in self._cluster.topics.values():
            for number in topic.info.reassignments:
                partition = topic.partitions[number]
                present = partition.assignment
                target = self._requested.get(partition.name)
                if target is not None and not _is_on_the_way(present, target):
                    present = present.towards(target)
                yield partition.name, present
        for name, target in self._requested.items():
            asked = self._cluster.partition(name)
            if asked is None or asked.assignment.reassignment is not None:
                continue
            if asked.assignment.replicas != target:
                yield name, asked.assignment.towards(target)

    def next_effects(self) -> Iterator[DropReassignmentRequests | WriteAssignments]:
        self._retired = [partition for partition in self._retired if partition.retired]
        changes: dict[str, list[AssignmentChange]] = {}
        dropped: dict[TopicPartition, tuple[Target, str | None]] = {}
        for name, target in self._requested.items():
            if self._is_waiting(name.topic):
                continue
            partition = self._cluster.partition(name)
            if partition is None or self._cluster.is_deleting(name.topic):
                dropped[name] = target, "there is no such partition"
            elif name.topic in self._writing:
                # What is known of this partition may be out of date.
                continue
            elif _is_at(partition.assignment, target):
                dropped[name] = target, None
            elif not _is_on_the_way(partition.assignment, target):
                problem = target_problem(
                    target, partition.assignment.replicas, self._cluster.brokers
                )
                if problem is not None:
                    dropped[name] = target, problem
                else:
                    change = _change(partition, partition.assignment.towards(target))
                    changes.setdefault(name.topic, []).append(change)
        for name in dropped:
            del self._requested[name]
        for partition in self._arrived():
            change = _change(partition, partition.assignment.finished())
            changes.setdefault(partition.name.topic, []).append(change)
        for topic, of_topic in changes.items():
            self._writing.add(topic)
            yield WriteAssignments(topic=topic, changes=tuple(of_topic))
        if dropped:
            yield DropReassignmentRequests(requests=dropped)

    def _is_waiting(self, topic: str) -> bool:
        """Return True while a read or write of the topic is under way."""
        cluster = self._cluster
        return topic in cluster.unreadable_topics and topic not in cluster.topics

    def _arrived(self) -> Iterator[ControlledPartition]:
        """Return the partitions that have retired and deleted their old replicas, and that have no
        further target."""
        for partition in self._retired:
            name, move = partition.name, partition.assignment.reassignment
            assert move is not None
            if name.topic in self._writing or self._deliveries.owes_stop(partition):
                continue
            if self._requested.get(name, move.target) == move.target:
                yield partition


def target_problem(
    target: Sequence[BrokerId], present: Collection[BrokerId], live: Collection[BrokerId]
) -> str | None:
    """Return why a partition with the replicas `present` can't be moved to `target`; None when it
    can.

    A broker that holds a replica may be dead; one that is to get its first replica must be
    alive."""
    if not target:
        return "needs at least one broker"
    if len(set(target)) != len(target):
        return f"names a broker twice: {list(target)}"
    absent = [replica for replica in target if replica not in present and replica not in live]
    if absent:
        names = ", ".join(map(str, absent))
        return f"names brokers that are not alive: {names}; alive are {sorted(live)}"
    return None


def _is_at(present: PartitionAssignment, target: Target) -> bool:
    return present.reassignment is None and present.replicas == target


def _is_on_the_way(present: PartitionAssignment, target: Target) -> bool:
    return present.reassignment is not None and present.reassignment.target == target


def _change(partition: ControlledPartition, wanted: PartitionAssignment) -> AssignmentChange:
    number = partition.name.partition
    return AssignmentChange(partition=number, expected=partition.assignment, wanted=wanted)


class TopicDeletions:
    """The deletions of one controller; the topics' records say which are in deletion."""

    def __init__(
        self,
        cluster: ControlledCluster,
        deliveries: Deliveries,
        reassignments: Reassignments,
        *,
        enabled: bool,
    ) -> None:
        self._cluster = cluster
        self._deliveries = deliveries
        self._reassignments = reassignments
        self._enabled = enabled
        self._postponed: set[str] = set()
        """Unreadable topics whose deletion was requested: it begins when they can be read."""

    def request(self, topics: Iterable[str]) -> list[Effect]:
        cluster = self._cluster
        void = []
        for topic in topics:
            if cluster.is_deleting(topic):
                continue
            is_known = topic in cluster.topics
            if self._enabled and not is_known and topic in cluster.unreadable_topics:
                self._postponed.add(topic)
            elif self._enabled and is_known:
                self._begin(topic)
            else:
                void.append(topic)
        return [DropDeletionRequests(topics=tuple(void))] if void else []

    def topics_read(self, event: TopicsRead) -> list[Effect]:
        """Begin postponed deletions of topics that could be read, and drop those of topics that are
        gone."""
        decided = self._postponed & (event.topics.keys() | event.absent)
        self._postponed -= decided
        return self.request(sorted(decided))

    def _begin(self, topic: str) -> None:
        record = self._cluster.topics[topic]
        record.deleting = True
        self._reassignments.topic_deleting(record)
        self._deliveries.stopping.add(topic)
        for partition in record.partitions.values():
            # Whatever the read of its state returns, it has no more elections.
            partition.reading = False
            self._cluster.dirty.pop(partition.name, None)
            for replica in partition.assignment.replicas:
                self._deliveries.stop_replica(replica, partition.name)
        for broker in self._cluster.brokers:
            self._deliveries.offer_stops(broker, topic)
        self._deliveries.removal_to_all(topic)

    def broker_came(self, broker: BrokerId) -> None:
        """Have a broker that has come (back) delete what it may hold of the topics in deletion."""
        for topic in self._deliveries.stopping:
            self._deliveries.offer_stops(broker, topic)

    def removed_by_others(self, topic: str) -> None:
        """Forget a topic that somebody else removed: another topic has its name by now, and orders
        for replicas of the old one must not reach those of the new one."""
        for partition in self._cluster.topics[topic].partitions.values():
            self._reassignments.assignment_changed(partition, partition.assignment)
        self.deleted(topic)
        self._deliveries.removal_to_all(topic)

    def deleted(self, topic: str) -> None:
        """Forget a topic whose nodes are gone."""
        if self._cluster.topics.pop(topic, None) is not None:
            self._deliveries.forget_topic(topic)

    def finished(self) -> Iterator[DeleteTopicNodes]:
        """Return the topics whose replicas are all deleted."""
        for topic in sorted(self._deliveries.stopping):
            record = self._cluster.topics.get(topic)
            if record is None or any(p.is_busy for p in record.partitions.values()):
                continue
            if self._deliveries.take_stopped(topic):
                yield DeleteTopicNodes(topic=topic, partitions=tuple(sorted(record.partitions)))


LEAST_IN_WAVE = 50
"""The smallest size of a wave: few enough that brokers take over these roles between two requests
of a producer."""

MOST_WAVES = 50
"""The most waves for one broker: one with very many partitions moves more of them at a time, since
somebody waits for its shutdown."""


@dataclass(slots=True)
class _Departure:
    waiting: deque[TopicPartition]
    """Partitions that no wave has had so far."""
    wave_size: int
    wave: set[TopicPartition] = field(default_factory=set)
    waiting_when_told: int = -1
    """The number of waiting partitions when the progress was reported last."""


class ControlledShutdowns:
    def __init__(self, cluster: ControlledCluster, deliveries: Deliveries) -> None:
        self._cluster = cluster
        self._deliveries = deliveries
        self._departures: dict[BrokerId, _Departure] = {}

    @property
    def leaving(self) -> Set[BrokerId]:
        return self._departures.keys()

    def begin(self, event: ControlledShutdownRequested) -> None:
        """Begin to move all replicas away from the broker. A repeated request begins again."""
        broker = self._cluster.brokers.get(event.broker)
        if broker is None or broker.epoch != event.broker_epoch:
            return
        held = [p for p in self._cluster.partitions() if event.broker in p.assignment.replicas]
        led = [p.name for p in held if p.state is not None and p.state.leader == event.broker]
        others = {p.name for p in held}.difference(led)
        waiting = deque([*led, *sorted(others)])
        size = max(LEAST_IN_WAVE, -(-len(waiting) // MOST_WAVES))
        self._departures[event.broker] = _Departure(waiting=waiting, wave_size=size)

    def forget(self, brokers: Iterable[BrokerId]) -> None:
        """Forget brokers that are gone, or that are back as other incarnations."""
        for broker in brokers:
            self._departures.pop(broker, None)

    def next_wave(self) -> list[TopicPartition]:
        """Return the partitions that begin to move now; none while a wave is under way."""
        begun: list[TopicPartition] = []
        for departure in self._departures.values():
            departure.wave = {p for p in departure.wave if not self._leadership_is_delivered(p)}
            if departure.wave:
                continue
            while departure.waiting and len(departure.wave) < departure.wave_size:
                departure.wave.add(departure.waiting.popleft())
            begun += sorted(departure.wave)
        return begun

    def progress(self) -> Iterator[ShutdownProgress]:
        """Return for each broker in controlled shutdown the partitions that it has not given up
        though another replica could lead them, or whose new leader does not know it; while some
        wait, once a wave only: all partitions are looked at for it."""
        for broker in sorted(self._departures):
            departure = self._departures[broker]
            if departure.waiting and len(departure.waiting) == departure.waiting_when_told:
                continue
            departure.waiting_when_told = len(departure.waiting)
            waiting = map(self._cluster.partition, departure.waiting)
            remaining = {p.name for p in waiting if p is not None and p.state is not None}
            remaining.update(p.name for p in self._cluster.partitions() if self._holds(broker, p))
            if not departure.waiting:
                # The broker stops when nothing remains. If it is the controller, nobody tells the
                # new leaders before there is another one.
                remaining.update(p for p in departure.wave if self._is_leader_untold(p))
            yield ShutdownProgress(broker=broker, remaining=tuple(sorted(remaining)))

    def _holds(self, broker: BrokerId, partition: ControlledPartition) -> bool:
        """Return True when the broker leads a partition that another replica could lead."""
        state = partition.state
        if state is None or state.leader != broker:
            return False
        if self._cluster.is_deleting(partition.name.topic):
            return False
        live = self._cluster.running(partition) - self.leaving
        return any(replica != broker and replica in live for replica in state.isr)

    def _leadership_is_delivered(self, name: TopicPartition) -> bool:
        """Return True when nothing is to be decided, written or sent about the partition's
        leadership."""
        if not self._cluster.is_settled(name):
            return False
        return not self._is_leader_untold(name)

    def _is_leader_untold(self, name: TopicPartition) -> bool:
        """Return True while the partition's leader has not confirmed its leadership."""
        partition = self._cluster.partition(name)
        if partition is None or partition.state is None:
            return False
        return self._deliveries.owes_leadership(partition.state.leader, name)
