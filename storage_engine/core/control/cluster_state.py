"""The cluster as values: brokers, topics, their assignments, the states of partitions. They are
frozen, and shared by the controller, the brokers and the messages between them.

The controller's view is a record for each topic, with a record for each partition, which has all
that it knows of the partition: the deletion of a topic is one removal. Lists of work (`dirty`, and
those of other modules) hold names; a name without a record is skipped. Source: R-CTL2, R-CTL4,
R-CTL7, R-CTL8, R-CTL10.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from storage_engine.core.features import SUPPORTED_BY_FIRST_RELEASE, Supported
from storage_engine.core.ids import (
    NO_TAIL_LOST,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)


class BrokerEndpoint(NamedTuple):
    """The advertised address of one of a broker's listeners."""

    listener: str
    host: str
    port: int


ONLY_LISTENER = "PLAINTEXT"
"""The name of the listener of a broker that registers no endpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A registered broker. `epoch` is its incarnation (R-CTL4)."""

    broker_id: BrokerId
    host: str
    port: int
    """The address for other brokers."""
    epoch: BrokerEpoch
    rack: str | None = None
    endpoints: tuple[BrokerEndpoint, ...] = ()
    """The listeners; empty for a broker with ONLY_LISTENER alone, at `host` and `port`."""
    tail_lost_epoch: BrokerEpoch = NO_TAIL_LOST
    """The broker's first incarnation after the last stop that may have cut its logs
    (`partition_elections`)."""
    supported: Supported = field(default_factory=lambda: SUPPORTED_BY_FIRST_RELEASE, hash=False)
    """The levels of features that the broker supports."""

    def at(self, listener: str) -> "BrokerInfo | None":
        """The broker with the address of one of its listeners; None when it has no such one."""
        if not self.endpoints:
            return self if listener == ONLY_LISTENER else None
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return replace(self, host=endpoint.host, port=endpoint.port)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The content of a partition's state node; `partition_epoch` is the version of that node.

    `written_zxid` is the transaction that wrote it, comparable with brokers' epochs; 0: not known.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_epoch: ControllerEpoch
    partition_epoch: PartitionEpoch
    written_zxid: int = 0
    joined_epochs: Mapping[BrokerId, BrokerEpoch] = field(default_factory=dict)
    """By member of the ISR the incarnation of it that was last known to hold all that is committed;
    a member that nobody has vouched for has no entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A reassignment under way. Where original and target are equal, it is being cancelled."""

    original: tuple[BrokerId, ...]
    """The replicas before the first step."""
    target: tuple[BrokerId, ...]
    """The replicas after the last step, the preferred one first."""

    @property
    def is_cancellation(self) -> bool:
        return self.original == self.target

    def is_caught_up(self, isr: Collection[BrokerId], live: Collection[BrokerId]) -> bool:
        """Return True when every target is in sync, so that the old replicas can go.

        A reassignment that is being cancelled waits for the live originals only, and one is enough:
        a dead original that kept the reassignment from ending must not keep its cancellation from
        ending too."""
        if self.is_cancellation:
            back = [replica for replica in self.target if replica in live]
            return bool(back) and all(replica in isr for replica in back)
        return all(replica in isr for replica in self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAssignment:
    """The assignment of one partition in the topic's node.

    While the partition is being reassigned its replicas are original + target, and both stand
    beside them, so that any later controller can go on from what it reads.
    """

    replicas: tuple[BrokerId, ...]
    reassignment: Reassignment | None = None

    def towards(self, target: Sequence[BrokerId]) -> "PartitionAssignment":
        """Return the first step of a move to `target`, which may change the direction of a move
        under way.

        Replicas of an earlier direction stay until the end: one of them may lead, or be needed for
        min.insync.replicas."""
        under_way = self.reassignment
        original = self.replicas if under_way is None else under_way.original
        return PartitionAssignment(
            replicas=tuple(dict.fromkeys((*original, *target, *self.replicas))),
            reassignment=Reassignment(original=original, target=tuple(target)),
        )

    def finished(self) -> "PartitionAssignment":
        """Return the assignment after the last step of the move under way."""
        assert self.reassignment is not None
        return PartitionAssignment(replicas=self.reassignment.target)

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        """The replicas that were not there before, in the order of the target."""
        move = self.reassignment
        return () if move is None else tuple(r for r in move.target if r not in move.original)

    @property
    def removing(self) -> tuple[BrokerId, ...]:
        """The replicas that will not be there after the move."""
        move = self.reassignment
        return () if move is None else tuple(r for r in self.replicas if r not in move.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic's id, its assignment with the reassignments under way, and the one setting that
    elections need."""

    topic: str
    topic_id: UUID
    assignment: dict[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    unclean_election: bool = False
    reassignments: dict[int, Reassignment] = field(default_factory=dict)
    """The partitions that are being moved; their assignment is original + target."""

    def assigned(self, partition: int) -> PartitionAssignment | None:
        """Return the assignment of a partition; None when the topic has no such partition."""
        replicas = self.assignment.get(partition)
        if replicas is None:
            return None
        return PartitionAssignment(
            replicas=replicas, reassignment=self.reassignments.get(partition)
        )


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


def led_elsewhere(
    partitions: Iterable[tuple[TopicPartition, BrokerId, PartitionState]], percentage: int
) -> Iterator[TopicPartition]:
    """Return the partitions of each broker of which more than `percentage` are led by others, as
    Kafka does.

    `partitions` gives each partition with the broker that it prefers."""
    elsewhere: dict[BrokerId, list[TopicPartition]] = {}
    preferred_count: Counter[BrokerId] = Counter()
    for partition, preferred, state in partitions:
        preferred_count[preferred] += 1
        if state.leader != preferred:
            elsewhere.setdefault(preferred, []).append(partition)
    for broker, of_broker in elsewhere.items():
        if 100 * len(of_broker) > percentage * preferred_count[broker]:
            yield from of_broker


EPOCHS_PER_CONTROLLER = 1024
"""More leader epochs than a partition is likely to have under one controller, so that where its
state was removed, the epochs of a later controller are above the former ones."""

SPARSE_FROM = 2**30
"""From this leader epoch on there is less room for each controller. Only a controller epoch that
somebody wrote into /controller_epoch by hand leads here."""
EPOCHS_PER_LATE_CONTROLLER = 16
"""The leader epochs for each such late controller. A partition whose state was removed after more
elections than that may get a leader epoch that is not above its replicas' logs."""

MAX_FIRST_LEADER_EPOCH = 2**31 - 2**27
"""The largest first leader epoch; it leaves room for some hundred million elections. Controller
epochs above 59 million get there; from there on all controllers begin with this one."""


def first_leader_epoch(controller_epoch: ControllerEpoch) -> LeaderEpoch:
    """Return the first leader epoch under a controller; it is never lower for a later
    controller."""
    epoch = controller_epoch * EPOCHS_PER_CONTROLLER
    if epoch > SPARSE_FROM:
        late = controller_epoch - SPARSE_FROM // EPOCHS_PER_CONTROLLER
        epoch = min(SPARSE_FROM + late * EPOCHS_PER_LATE_CONTROLLER, MAX_FIRST_LEADER_EPOCH)
    return LeaderEpoch(epoch)
