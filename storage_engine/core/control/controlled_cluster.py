"""What a controller knows of its cluster: a record for each topic, and in it one for each of its
partitions.

Rule: a partition's record is the only place of what is known of it, so that the deletion of a topic
is one removal. Lists of work (`dirty`, and those of other modules) hold names; a name whose record
is gone means nothing. Source: R-CTL2, R-CTL4, R-CTL8.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from storage_engine.core.control.cluster_state import (
    BrokerInfo,
    PartitionAssignment,
    PartitionState,
    Reassignment,
    TopicInfo,
)
from storage_engine.core.ids import BrokerId, ControllerEpoch, PartitionEpoch, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingElection:
    """What the write of a partition's state that is under way was decided on: what happens after
    the decision is for the next one, whatever becomes of this write."""

    left_out: frozenset[BrokerId]
    """Bounced brokers that it takes for dead."""
    assignment: PartitionAssignment
    retires: bool
    preferring: bool


@dataclass(slots=True, eq=False, kw_only=True)
class ControlledPartition:
    """All that the controller knows of one partition, and what its next election must regard."""

    name: TopicPartition
    assignment: PartitionAssignment
    """The entry in the topic's node."""
    retired: bool = False
    """An accepted write has left out the old replicas of the reassignment under way, so that only
    its targets count. Never True without a reassignment under way."""

    state: PartitionState | None = None
    """The newest state that was read or written; never unknown again once it is known."""
    stored_epoch: PartitionEpoch | None = None
    """The version that the next write expects in ZooKeeper; None: no state is there. It differs
    from the version of `state` as long as others have removed that or put an older one back."""
    unremembered: bool = False
    """There was no state when this controller began, or nobody could read the topic then. Either
    the partition is new, or others removed its state: its replicas may have had leaders that nobody
    remembers. Counts while `state` is None."""
    node_lacks_state: bool = False
    """The partition's node seems to be there without a state: one with it could not be made."""
    refusals: int = 0
    """Writes that were refused in a row, while nothing new became known of the state."""

    failed: set[BrokerId] = field(default_factory=set)
    """Live brokers that can't serve their replica: dead until they have been restarted."""
    bounced: set[BrokerId] = field(default_factory=set)
    """Brokers that came (back): dead for the next election, alive for the one after (R-CTL4)."""
    preferring: bool = False
    """The preferred replica shall lead, at the next election."""
    unclean: bool = False
    """An unclean leader may be elected, at the next election."""
    renewing: bool = False
    """The replicas have to hear of another assignment, by a new leader epoch."""

    reading: bool = False
    """The state is being read, and nothing is decided before it is."""
    writing: PendingElection | None = None
    """The election whose write is under way; nothing is decided before its outcome is known."""

    @property
    def replicas(self) -> tuple[BrokerId, ...]:
        """The replicas that count, the preferred one first."""
        move = self.assignment.reassignment
        return move.target if self.retired and move is not None else self.assignment.replicas

    @property
    def unfinished_move(self) -> Reassignment | None:
        """The reassignment under way, as long as its old replicas count."""
        return None if self.retired else self.assignment.reassignment

    @property
    def is_busy(self) -> bool:
        """Whether the state is being written or read."""
        return self.reading or self.writing is not None

    @property
    def was_overwritten(self) -> bool:
        """Whether `state` is to be written over what others have left in its place."""
        return self.state is not None and self.stored_epoch != self.state.partition_epoch

    @property
    def leader_has_bounced(self) -> bool:
        """Whether the state is not to be sent to its leader as if that led on: it would take the
        ISR of that state, which may be old, for the present one, and write under an epoch that its
        log may have been cut in."""
        return self.state is not None and self.state.leader in self.bounced

    def learn(self, state: PartitionState) -> None:
        """This is the partition's state, and what ZooKeeper holds."""
        self.state, self.stored_epoch, self.refusals = state, state.partition_epoch, 0


@dataclass(slots=True, eq=False, kw_only=True)
class ControlledTopic:
    """All that the controller knows of one topic."""

    info: TopicInfo
    partitions: dict[int, ControlledPartition] = field(default_factory=dict)
    """Exactly those of `info.assignment`."""
    deleting: bool = False
    """Its replicas are being deleted, and nothing is decided on its partitions any more."""

    def take(self, info: TopicInfo) -> list[tuple[ControlledPartition, PartitionAssignment]]:
        """The topic as it is now; the partitions that have another assignment than before, each
        with the former one."""
        known, self.partitions = self.partitions, {}
        changed = []
        for number in info.assignment:
            assignment = info.assigned(number)
            assert assignment is not None
            partition = known.pop(number, None)
            if partition is None:
                name = TopicPartition(info.topic, number)
                partition = ControlledPartition(name=name, assignment=assignment)
            elif partition.assignment != assignment:
                changed.append((partition, partition.assignment))
                partition.assignment = assignment
            self.partitions[number] = partition
        for gone in known.values():
            gone.retired = False
        self.info = info
        return changed


@dataclass(slots=True, eq=False, kw_only=True)
class ControlledCluster:
    """Brokers and topics as one controller knows them."""

    controller_epoch: ControllerEpoch
    brokers: dict[BrokerId, BrokerInfo] = field(default_factory=dict)
    topics: dict[str, ControlledTopic] = field(default_factory=dict)
    unreadable_topics: set[str] = field(default_factory=set)
    """Topics that are there, though their nodes can't be decoded: requests about them wait. What
    was known of one before goes on being true."""
    dirty: set[TopicPartition] = field(default_factory=set)
    """Partitions to be compared with what they should be."""

    def partition(self, name: TopicPartition) -> ControlledPartition | None:
        topic = self.topics.get(name.topic)
        return None if topic is None else topic.partitions.get(name.partition)

    def partitions(self) -> Iterator[ControlledPartition]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def is_deleting(self, topic: str) -> bool:
        known = self.topics.get(topic)
        return known is not None and known.deleting

    def mark_dirty(self, partitions: Iterable[ControlledPartition]) -> None:
        self.dirty.update(partition.name for partition in partitions)

    def take_due(self) -> list[ControlledPartition]:
        """The dirty partitions that can be decided on now, sorted; they are dirty no more."""
        due = []
        for name in sorted(self.dirty):
            partition = self.partition(name)
            if partition is None or self.topics[name.topic].deleting:
                self.dirty.discard(name)
            elif not partition.is_busy:
                self.dirty.discard(name)
                due.append(partition)
        return due

    def is_settled(self, name: TopicPartition) -> bool:
        """Whether nothing is being decided, written or asked for about the partition's leader."""
        partition = self.partition(name)
        if partition is None:
            return True
        asked = partition.preferring or partition.unclean
        return not (asked or partition.is_busy or name in self.dirty)

    def running(self, partition: ControlledPartition) -> set[BrokerId]:
        """Brokers that run and can serve their replica of the partition, if they have one."""
        return set(self.brokers) - partition.failed
