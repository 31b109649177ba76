"""The knowledge behind the invariants: the committed batches, the leaders of each epoch, and the
states in ZooKeeper.

It only grows. A batch is committed once some leader's high watermark has passed it; with unclean
election off it stays so for ever, and every member of the true ISR holds it (StrongIsr). Source:
R-REP5, R-REP7.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.checks.copies import BatchNote, NotedLog
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import BatchHeader
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode

OnCommitted = Callable[[TopicPartition, BatchNote, int], None]


class InvariantViolation(Exception):
    """The cluster violated an invariant."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        """The name of the invariant, the same for all of its violations."""


class ExpectedTopic(NamedTuple):
    """A topic that may be created."""

    unclean: bool
    min_in_sync: int
    is_durable: bool
    """True when the topic loses nothing when the power is lost."""
    is_compacted: bool


@dataclass(slots=True)
class PartitionRecord:
    """All knowledge about one partition."""

    partition: TopicPartition
    unclean: bool
    """True when committed batches may be lost: the topic allows unclean election, or all of an ISR
    lost their power."""
    min_in_sync: int
    is_compacted: bool = False
    on_committed: "Sequence[OnCommitted]" = ()
    """Called with each committed batch, in order, and the broker that leads."""
    state: PartitionStateZNode | None = None
    """The state in ZooKeeper."""
    assigned: tuple[int, ...] = ()
    move: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """The (original, target) of the reassignment under way."""
    caught_up: bool = False
    """True when all replicas that it waits for have been in the ISR since it began."""
    committed: NotedLog = field(default_factory=NotedLog)
    copies: dict[int, NotedLog] = field(default_factory=dict)
    """The log of each broker; for a dead one, as it was last seen."""
    cut: set[int] = field(default_factory=set)
    """Brokers whose logs may lack committed records, since they lost their power; until a state
    names a later incarnation that joined the ISR."""
    before_cut: dict[int, list[NotedLog]] = field(default_factory=dict)
    """For brokers in `cut`, their logs as they were when the power was lost."""
    leaders: dict[int, int] = field(default_factory=dict)
    """The broker that has led under each leader epoch."""
    chains: dict[tuple[int, int], int] = field(default_factory=dict)
    """(base offset, leader epoch) -> chain, which is equal in all logs that have such a batch."""
    next_sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    """(producer id, producer epoch) -> the first sequence of the producer's next committed
    batch."""
    last_ends: dict[tuple[int, int], int] = field(default_factory=dict)
    """(producer id, producer epoch) -> the end offset of the producer's last committed batch."""

    def history(self) -> NotedLog | None:
        """Everything that was ever committed, where replicas may lack some of it because they are
        compacted. None also where that is unknown."""
        return self.committed if self.is_compacted and not self.unclean else None

    def copy(self, broker: int) -> NotedLog:
        return self.copies.setdefault(broker, NotedLog())

    def lose_power(self, broker: int) -> None:
        """Record that the broker's log may be shorter from now on, or gone."""
        self.cut.add(broker)
        if broker in self.copies:
            self.before_cut.setdefault(broker, []).append(self.copies[broker])

    def holders(self, note: BatchNote) -> int:
        """Return how many replicas have a batch, or had it and lost it with their power: the latter
        could not be known when the batch was acknowledged."""
        logs = {broker: [copy] for broker, copy in self.copies.items()}
        for broker, before in self.before_cut.items():
            logs.setdefault(broker, []).extend(before)
        return sum(any(copy.has(note) for copy in copies) for copies in logs.values())

    def committed_at(self, offset: int) -> BatchNote | None:
        """Return the committed batch that begins at an offset."""
        place = self.committed.place_of_end.get(offset)
        if place is None or place + 1 >= len(self.committed.notes):
            return None
        return self.committed.notes[place + 1]

    def check_served(self, header: BatchHeader) -> None:
        """Check a batch that a reader got."""
        note, there = self.committed_at(header.base_offset), header.partition_leader_epoch
        if note is None or (note.crc, note.leader_epoch) != (header.crc, there):
            raise InvariantViolation(
                "no offset is served with two contents, nor before it is committed",
                f"{self.partition} at {header.base_offset}, committed is {note} up to"
                f" {self.committed.end_offset}",
            )

    def lead(self, leader_epoch: int, broker: int) -> None:
        """Check that one broker at most leads, or is to lead, under an epoch."""
        other = self.leaders.setdefault(leader_epoch, broker)
        if other != broker:
            raise InvariantViolation(
                "one leader per epoch",
                f"{self.partition} has brokers {other} and {broker} in epoch {leader_epoch}",
            )

    def note_chain(self, broker: int, note: BatchNote) -> None:
        """Record a batch that was appended to some log."""
        if self.unclean and self.is_compacted:
            # The content of the batch before compaction is unknown.
            return
        key = note.base_offset, note.leader_epoch
        if self.chains.setdefault(key, note.chain) != note.chain:
            raise InvariantViolation(
                "logs that share a batch agree below it",
                f"{self.partition} on broker {broker} has another log up to {note} than others",
            )

    def check_replica(self, broker: int, high_watermark: int) -> None:
        """Check that a replica has all committed batches below its high watermark."""
        place = self.committed.place_of_end.get(high_watermark)
        notes = self.copy(broker).notes
        if place == -1:
            return
        if (
            place is None
            or place >= len(notes)
            or notes[place].chain != self.committed.notes[place].chain
        ):
            raise InvariantViolation(
                "logs are equal below the high watermark",
                f"{self.partition} on broker {broker} differs below {high_watermark} from what was"
                f" committed up to {self.committed.end_offset}",
            )

    def commit(self, broker: int, high_watermark: int) -> None:
        """Record a leader's new high watermark."""
        copy = self.copy(broker)
        if not copy.holds(self.committed):
            raise InvariantViolation(
                "logs are equal below the high watermark",
                f"{self.partition} is led by broker {broker} with the high watermark"
                f" {high_watermark}, but it does not hold all that was committed up to"
                f" {self.committed.end_offset}",
            )
        for note in copy.notes[len(self.committed.notes) :]:
            if note.end_offset > high_watermark:
                break
            self._check_sequence(note, copy)
            self.committed.add(note)
            for hear in self.on_committed:
                hear(self.partition, note, broker)
        if self.committed.end_offset != high_watermark:
            raise InvariantViolation(
                "a high watermark is the end of a batch in the log",
                f"{self.partition} on broker {broker}: {high_watermark}, the log ends at"
                f" {copy.end_offset}",
            )
        self.check_in_sync()

    def assign(
        self, assigned: tuple[int, ...], move: tuple[tuple[int, ...], tuple[int, ...]] | None
    ) -> None:
        """Record other replicas in ZooKeeper. A reassignment ends when its targets have all been in
        sync (R-CTL8), one that is being cancelled when one of them has."""
        if self.move is not None and move is None and not self.caught_up:
            raise InvariantViolation(
                "a reassignment ends when its targets have been in sync",
                f"{self.partition} went from {list(self.move[0])} to {list(self.move[1])}",
            )
        if move != self.move:
            self.caught_up = False
        self.assigned, self.move = assigned, move
        if self.state is not None:
            self.note_isr(self.state.isr)

    def note_isr(self, isr: tuple[int, ...]) -> None:
        """Record the ISR in ZooKeeper."""
        if not isr or not {*isr} <= {*self.assigned}:
            raise InvariantViolation(
                "the ISR is a part of the replicas, never empty",
                f"{self.partition} has ISR {list(isr)}, replicas {list(self.assigned)}",
            )
        if self.move is not None:
            original, target = self.move
            needed = {*target} & {*isr} if original == target else {*target}
            self.caught_up |= bool(needed) and needed <= {*isr}

    def check_in_sync(self) -> None:
        """Check StrongIsr: every broker that may be elected holds all committed batches."""
        if self.state is None or self.unclean:
            return
        for broker in self.state.isr:
            if broker in self.cut:
                continue
            if not self.copy(broker).holds(self.committed):
                raise InvariantViolation(
                    "every member of the ISR holds what is committed",
                    f"{self.partition} is committed up to {self.committed.end_offset}, broker"
                    f" {broker} of the ISR {list(self.state.isr)} ends at"
                    f" {self.copy(broker).end_offset} or differs",
                )

    def vouch(
        self, members: Collection[int], old: PartitionStateZNode | None, new: PartitionStateZNode
    ) -> None:
        """Record a state in which members of the ISR count as whole, though they had lost their
        power: they have joined since, or one leads from now on."""
        if new.leader in members and old is not None and not self.unclean:
            better = set(old.isr) - self.cut
            if better:
                raise InvariantViolation(
                    "who lost its power leads only when all of the ISR did",
                    f"{self.partition}: broker {new.leader} is elected in epoch {new.leader_epoch},"
                    f" after the ISR {list(old.isr)} of which {sorted(better)} lost nothing",
                )
            self.unclean = True
        for member in members:
            self.cut.discard(member)
            self.before_cut.pop(member, None)

    def _check_sequence(self, note: BatchNote, leader: NotedLog) -> None:
        """Check that no batch of an idempotent producer is committed twice or out of order
        (R-CLI7). As in Kafka, a leader whose log began behind deleted records does not know the
        producers that wrote nothing since, and takes a batch of theirs again."""
        producer_id, producer_epoch, sequence = note.producer
        if producer_id < 0 or note.marker_commits is not None:
            return
        key = producer_id, producer_epoch
        expected = self.next_sequences.get(key, 0)
        is_forgotten = self.last_ends.get(key, 0) <= leader.begun_at
        if sequence > expected or (sequence < expected and not is_forgotten):
            raise InvariantViolation(
                "an idempotent producer's batches are committed once and in order",
                f"{self.partition} at {note}: producer {producer_id} has sequence {sequence},"
                f" {expected} comes next",
            )
        self.next_sequences[key] = sequence + note.end_offset - note.base_offset
        self.last_ends[key] = note.end_offset
