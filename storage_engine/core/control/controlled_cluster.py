"""The controller's view of its cluster: a record for each topic, with a record for each partition.

Everything that the controller knows of a partition is in its record, so that the deletion of a
topic is one removal. Lists of work (`dirty`, and those of other modules) hold names; a name without
a record is skipped. Source: R-CTL2, R-CTL4, R-CTL8.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

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
    """The knowledge on which the write of a partition's state that is under way was decided.
    Whatever happens after the decision is for the next election, whether this write is accepted or
    not."""

    left_out: frozenset[BrokerId]
    """Bounced brokers that the election counts as dead."""
    assignment: PartitionAssignment
    retires: bool
    preferring: bool


@dataclass(slots=True, eq=False, kw_only=True)
class ControlledPartition:
    """All that the controller knows of one partition, and what its next election must take into
    account."""

    name: TopicPartition
    assignment: PartitionAssignment
    """The entry in the topic's node."""
    retired: bool = False
    """True when an accepted write has left out the old replicas of the reassignment under way, so
    that only its targets count. Never True without a reassignment under way."""

    state: PartitionState | None = None
    """The newest state that was read or written. Once known, it stays known."""
    stored_epoch: PartitionEpoch | None = None
    """The version that the next write expects in ZooKeeper; None when there is no state node. It
    differs from the version of `state` while somebody else has removed the node or put an older
    state into it."""
    unremembered: bool = False
    """True when there was no state at the start of this controller, or the topic could not be read
    then. Either the partition is new, or others removed its state, and its replicas may have had
    leaders that nobody remembers. Only meaningful while `state` is None."""
    node_lacks_state: bool = False
    """True when the partition's node seems to exist without a state node: the creation of both was
    refused."""
    refusals: int = 0
    """The number of writes in a row that were refused without any news about the state."""

    failed: set[BrokerId] = field(default_factory=set)
    """Live brokers that can't serve their replica: they count as dead until they are restarted."""
    bounced: set[BrokerId] = field(default_factory=set)
    """Brokers that were (re)started: they count as dead in the next election, and as alive in the
    one after it (R-CTL4)."""
    preferring: bool = False
    """True when the next election shall make the preferred replica the leader."""
    unclean: bool = False
    """True when the next election may make a replica outside the ISR the leader."""
    renewing: bool = False
    """True when the replicas need another leader epoch, because their assignment has changed."""

    reading: bool = False
    """True while the state is being read; no election takes place meanwhile."""
    writing: PendingElection | None = None
    """The election whose write is under way; no other takes place until its outcome is known."""

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
        """True while the state is being written or read."""
        return self.reading or self.writing is not None

    @property
    def was_overwritten(self) -> bool:
        """True when `state` has to be written again over what others left in its place."""
        return self.state is not None and self.stored_epoch != self.state.partition_epoch

    @property
    def leader_has_bounced(self) -> bool:
        """True when the state must not be sent to its leader as if that one had led all the time:
        it would take the ISR of that state, which may be old, for the present one, and write under
        an epoch in which its log may have been cut."""
        return self.state is not None and self.state.leader in self.bounced

    def learn(self, state: PartitionState) -> None:
        """Record `state` as the partition's state and as the content of its node."""
        self.state, self.stored_epoch, self.refusals = state, state.partition_epoch, 0


@dataclass(slots=True, eq=False, kw_only=True)
class ControlledTopic:
    """All that the controller knows of one topic."""

    info: TopicInfo
    partitions: dict[int, ControlledPartition] = field(default_factory=dict)
    """The records of exactly the partitions of `info.assignment`."""
    deleting: bool = False
    """True when the topic's replicas are being deleted: its partitions have no more elections."""

    def take(self, info: TopicInfo) -> list[tuple[ControlledPartition, PartitionAssignment]]:
        """Take over the topic as it is now. Return the partitions whose assignment has changed,
        each with its former assignment."""
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
    """Topics that exist but whose nodes can't be decoded: requests about them wait. What was known
    of such a topic before stays valid."""
    dirty: dict[TopicPartition, None] = field(default_factory=dict)
    """Partitions that have to be compared with what they should be, in the order in which they were
    marked. One that is being written or read is marked again when that ends."""

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
        self.mark_names(partition.name for partition in partitions)

    def mark_names(self, names: Iterable[TopicPartition]) -> None:
        """Mark partitions as dirty; one that is marked already keeps its place."""
        self.dirty.update(dict.fromkeys(names))

    def mark_first(self, partitions: Iterable[ControlledPartition]) -> None:
        """Mark partitions as dirty, before all others."""
        first = dict.fromkeys(partition.name for partition in partitions)
        if first:
            self.dirty = first | self.dirty

    def take_due(self, limit: int) -> list[ControlledPartition]:
        """Take the first `limit` dirty partitions off the list, and return those of them that can
        have an election now, sorted."""
        taken = list(islice(self.dirty, limit))
        due = []
        for name in sorted(taken):
            del self.dirty[name]
            partition = self.partition(name)
            if partition is None or self.topics[name.topic].deleting or partition.is_busy:
                continue
            due.append(partition)
        return due

    def is_settled(self, name: TopicPartition) -> bool:
        """Return True when nothing is decided, written or requested about the partition's
        leader."""
        partition = self.partition(name)
        if partition is None:
            return True
        asked = partition.preferring or partition.unclean
        return not (asked or partition.is_busy or name in self.dirty)

    def running(self, partition: ControlledPartition) -> set[BrokerId]:
        """Brokers that run and can serve their replica of the partition, if they have one."""
        return set(self.brokers) - partition.failed
