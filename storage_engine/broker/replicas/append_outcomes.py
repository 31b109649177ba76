"""Collects the outcomes of the appends of one produce request, which may come one by one.

An append counts only while the leadership lasts under which it was made. Between it and the last
append of its request there may be a wait; if another broker has led in the meantime, the records
may be gone, and others may be at their offsets. Source: R-REP3.
"""

from collections.abc import Callable, Iterable, Sequence

from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.replication.partition import LeaderPartition
from storage_engine.log.appending.append_result import AppendOutcome


class AppendOutcomes:
    """Waits for the outcome of every partition of a request."""

    __slots__ = ("_leaders", "_left", "_on_all", "_outcomes", "_partitions", "_replicas")

    def __init__(
        self,
        partitions: Sequence[TopicPartition],
        replicas: ReplicaManager,
        on_all: Callable[[Iterable[AppendOutcome]], None],
    ) -> None:
        """`on_all` gets the outcomes in the order of the partitions, each as of the time when it is
        taken out; at once when there is none."""
        self._partitions = partitions
        self._replicas = replicas
        self._on_all = on_all
        self._outcomes: list[AppendOutcome | None] = [None] * len(partitions)
        # At the time of each append.
        self._leaders: list[LeaderPartition | None] = [None] * len(partitions)
        self._left = len(partitions)
        if not self._left:
            on_all([])

    def settle(self, index: int, outcome: AppendOutcome) -> None:
        """The outcome of one partition, in the turn of its append."""
        assert self._outcomes[index] is None, "an append has one outcome"
        self._outcomes[index] = outcome
        self._leaders[index] = self._leader_of(index)
        self._left -= 1
        if not self._left:
            self._on_all(self._as_of_now(i, each) for i, each in enumerate(self._outcomes))

    def _as_of_now(self, index: int, outcome: AppendOutcome | None) -> AppendOutcome:
        assert outcome is not None
        if isinstance(outcome, KafkaError):
            return outcome
        if self._leader_of(index) is self._leaders[index]:
            return outcome
        return KafkaError(
            f"{self._partitions[index]} was led elsewhere before all of the request was stored",
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )

    def _leader_of(self, index: int) -> LeaderPartition | None:
        partition = self._replicas.get(self._partitions[index])
        return None if partition is None else partition.leader
