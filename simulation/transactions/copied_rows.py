"""Checks a sink whose queries copy from one source (`idempotentKey`): it has every record of the
source, and none twice.

A row counts once its micro-batch is known to be committed, and only if a task attempt of the
micro-batch wrote it. There is no guarantee once all replicas of the coordinator's log lost their
power. Source: R-SPARK3.
"""

from collections.abc import Callable, Iterable

from simulation.checks.ledger import InvariantViolation
from simulation.transactions.ledger import MicroBatch, ObservedTransaction
from storage_engine.core.ids import TopicPartition

SOURCES = (TopicPartition("source", 0), TopicPartition("source", 1))

Ranges = dict[TopicPartition, range]
"""Offsets by source partition."""


class CopiedRows:
    """The copied rows of one sink."""

    def __init__(self, is_void: Callable[[], bool]) -> None:
        self._is_void = is_void
        self._written: dict[ObservedTransaction, Ranges] = {}
        self._writers: dict[tuple[TopicPartition, int], ObservedTransaction] = {}
        """The transaction of each committed row, by source partition and offset."""
        self._claims: list[tuple[str, dict[TopicPartition, int]]] = []

    @property
    def count(self) -> int:
        return len(self._writers)

    def writes(self, transaction: ObservedTransaction, rows: Ranges) -> None:
        """Record the rows of a task attempt, which leaves out those that the sink has."""
        self._written[transaction] = rows

    def on_won(self, batch: MicroBatch, members: Iterable[ObservedTransaction]) -> None:
        """Record the members of a micro-batch, when they are first known."""
        if self._is_void():
            return
        for member in sorted(members, key=lambda each: each.name):
            for source, offsets in self._written.get(member, {}).items():
                for offset in offsets:
                    other = self._writers.setdefault((source, offset), member)
                    if other is not member:
                        raise InvariantViolation(
                            "a sink has each record of its source once",
                            f"{source} at {offset}, in {batch}: by {member.name}, and by"
                            f" {other.name}",
                        )

    def claims(self, query: str, until: dict[TopicPartition, int]) -> None:
        """Record a query's checkpoint, which says that everything below these offsets is
        committed."""
        self._claims.append((query, until))

    def check_end(self, *, is_complete: bool) -> None:
        """Check the rows after all transactions have ended. `is_complete`: the sink's partitions
        have kept all that was committed there, so that all members are known."""
        if self._is_void() or not is_complete:
            return
        for query, until in self._claims:
            for source, end in until.items():
                for offset in range(end):
                    if (source, offset) not in self._writers:
                        raise InvariantViolation(
                            "no record of a source is left out",
                            f"{source} at {offset}: {query} has committed up to {end}",
                        )
