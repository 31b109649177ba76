"""Partitions whose state has to be looked at, and what the next decision on each must regard.

Rule: what happens after a decision was made is regarded by the one after it, whatever becomes of
the first. Source: R-CTL2, R-CTL4, R-CTL8.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from storage_engine.core.control.election import Elected
from storage_engine.core.control.reassignment import Assigned
from storage_engine.core.ids import BrokerId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a write under way was decided on."""

    left_out: frozenset[BrokerId]
    """Bounced brokers that it leaves out."""
    assigned: Assigned | None
    retires: bool
    preferring: bool


@dataclass(slots=True)
class Undecided:
    """Open questions of a controller."""

    bounced: dict[TopicPartition, set[BrokerId]] = field(default_factory=dict)
    """Brokers that came (back): dead for the next decision on the partition, alive for the one
    after (R-CTL4)."""
    preferring: set[TopicPartition] = field(default_factory=set)
    """Partitions whose preferred replica shall lead, at their next decision."""
    unclean: set[TopicPartition] = field(default_factory=set)
    """Partitions that may have an unclean leader, at their next decision."""
    renewing: set[TopicPartition] = field(default_factory=set)
    """Partitions whose replicas have to hear of another assignment, by a new leader epoch."""
    reading: set[TopicPartition] = field(default_factory=set)
    _dirty: set[TopicPartition] = field(default_factory=set)
    _writing: dict[TopicPartition, Decision] = field(default_factory=dict)

    def look_at(self, partitions: Iterable[TopicPartition]) -> None:
        self._dirty.update(partitions)

    def take_due(self) -> list[TopicPartition]:
        """Partitions to be decided on now: nothing of them is being written or read."""
        due = sorted(self._dirty - self._writing.keys() - self.reading)
        self._dirty.difference_update(due)
        return due

    def begin(self, partition: TopicPartition, elected: Elected, assigned: Assigned | None) -> None:
        """A decision is about to be written."""
        self._writing[partition] = Decision(
            left_out=frozenset(self.bounced.get(partition, ())),
            assigned=assigned,
            retires=elected.retires,
            preferring=partition in self.preferring,
        )
        self._asked(partition)

    def nothing_to_do(self, partition: TopicPartition) -> None:
        """Everything is as it should be, whatever was asked for."""
        self._asked(partition)

    def written(self, partition: TopicPartition) -> Decision | None:
        """The write is over; the partition has to be looked at again."""
        self._dirty.add(partition)
        return self._writing.pop(partition, None)

    def accept(self, partition: TopicPartition, decision: Decision) -> None:
        """The decision has become true; what happened after it was made has still to be dealt
        with."""
        if bounced := self.bounced.pop(partition, set()) - decision.left_out:
            self.bounced[partition] = bounced

    def refuse(self, partition: TopicPartition, decision: Decision | None) -> None:
        """The decision may not have become true: it is read, and decided anew."""
        self.reading.add(partition)
        if decision is not None and decision.preferring:
            self.preferring.add(partition)

    def is_settled(self, partition: TopicPartition) -> bool:
        """Whether nothing is being decided or written."""
        return not any(
            partition in pending
            for pending in (
                self._dirty,
                self._writing,
                self.reading,
                self.preferring,
                self.unclean,
            )
        )

    def is_writing(self, partition: TopicPartition) -> bool:
        return partition in self._writing

    def is_busy(self, topic: str) -> bool:
        """Whether the state of a partition of a topic is being written or read."""
        return any(tp.topic == topic for tp in self._writing.keys() | self.reading)

    def set_aside(self, partition: TopicPartition) -> None:
        """The partition is not to be decided on any more, whatever a read of its state brings."""
        self._dirty.discard(partition)
        self.reading.discard(partition)

    def forget(self, partition: TopicPartition) -> None:
        """The partition is gone."""
        self.bounced.pop(partition, None)
        self._writing.pop(partition, None)
        for pending in (
            self._dirty,
            self.reading,
            self.preferring,
            self.unclean,
            self.renewing,
        ):
            pending.discard(partition)

    def _asked(self, partition: TopicPartition) -> None:
        self.preferring.discard(partition)
        self.unclean.discard(partition)
