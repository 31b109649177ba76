"""A transaction coordinator with a state log that can lose what is not replicated."""

from collections.abc import Callable

from storage_engine.core.coordinator_log import AppendRecord, Moment, Replicated, UnreadableRecord
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_events import (
    AbortMembers,
    CheckTimeouts,
    CommitMicroBatch,
    Effect,
    EnlistPartitions,
    Event,
    JoinMicroBatch,
    MarkersWritten,
    SendMarkers,
    TransactionAnswer,
)
from storage_engine.core.transactions.transaction_state import NO_ROWS, StateKey, StateRecord
from storage_engine.core.transactions.transactions import TransactionCoordinator
from storage_engine.tests.core.outcome import outcome

TIMEOUT_MS = 1000
OUT0, OUT1 = TopicPartition("out", 0), TopicPartition("out", 1)

Factory = Callable[[], TransactionCoordinator]
Entry = tuple[StateKey, StateRecord | UnreadableRecord | None]


class CoordinatorBench:
    """Carries out the effects as a driver does, except for the markers, which the test writes.

    The log is always read as compaction leaves it at its hardest: the newest record of each key.
    """

    def __init__(self, factory: Factory = TransactionCoordinator) -> None:
        self.factory = factory
        self.log: list[Entry] = []
        self.replicated = 0
        """Length of the part of the log that no failover loses."""
        self.now_ms = 0
        self.answers: dict[int, TransactionAnswer] = {}
        self.markers: dict[tuple[int, TopicPartition], bool] = {}
        """Sent and not written: (producer id, partition) -> commits."""
        self.written: dict[tuple[int, TopicPartition], set[bool]] = {}
        self.unreadable: set[StateKey] = set()
        """The keys whose records the next coordinator can't read."""
        self._requests = 0
        self._producer_ids = 100
        self._start()

    def _start(self) -> None:
        self.coordinator = self.factory()
        self._base = len(self.log)
        content: dict[StateKey, StateRecord | UnreadableRecord] = {}
        for key, record in self.log:
            if record is None:
                content.pop(key, None)
            else:
                content[key] = record
        for key in self.unreadable:
            content[key] = UnreadableRecord("its version 1 is not known")
        self.markers = {}
        self._run(outcome(self.coordinator.restore(content, self.at)))

    def _run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecord():
                    assert effect.number == len(self.log) - self._base + 1
                    self.log.append(effect.entry)
                case SendMarkers():
                    for tp in effect.partitions:
                        self.markers[effect.producer_id, tp] = effect.commits
                case TransactionAnswer():
                    assert effect.request not in self.answers, "answered twice"
                    self.answers[effect.request] = effect

    @property
    def at(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    def step(self, event: Event) -> None:
        self._run(self.coordinator.step(event))

    def replicate(self, length: int | None = None) -> None:
        """Markers and records that follow from it are replicated only by a later call."""
        self.replicated = len(self.log) if length is None else length
        if self.replicated >= self._base:
            self.step(Replicated(number=self.replicated - self._base))

    def fail_over(self, *, keep: int | None = None) -> None:
        """Another broker takes over, with `keep` records more than were replicated (None: none)."""
        del self.log[self.replicated + (keep or 0) :]
        self._start()

    def write_markers(self, *keys: tuple[int, TopicPartition]) -> None:
        """Write these, or all that were sent, and acknowledge them."""
        for producer_id, tp in keys or tuple(self.markers):
            commits = self.markers.pop((producer_id, tp))
            self.written.setdefault((producer_id, tp), set()).add(commits)
            self.step(
                MarkersWritten(
                    producer_id=producer_id,
                    producer_epoch=self.marker_epoch(producer_id),
                    partitions=frozenset({tp}),
                    now_ms=self.now_ms,
                )
            )

    def marker_epoch(self, producer_id: int) -> int:
        for _, record in self.coordinator.producers:
            if record.producer_id == producer_id:
                return record.producer_epoch
        return 0

    def settle(self) -> None:
        """Replicate and write until nothing more follows."""
        size = -1
        while size != len(self.log) or self.markers:
            size = len(self.log)
            self.replicate()
            if self.markers:
                self.write_markers()

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.step(CheckTimeouts(at=self.at))

    # --- requests ---

    def request(self) -> int:
        self._requests += 1
        return self._requests

    def fresh_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    def ask(
        self, make: Callable[[int], Event], *, replicate: bool = True
    ) -> TransactionAnswer | None:
        """The answer, if there is one (after replication, if that is allowed)."""
        request = self.request()
        self.step(make(request))
        if replicate:
            self.replicate()
        return self.answers.get(request)

    def join(
        self, batch: int, *, sink="s", query="q", owner="", run=None, claim=None, replicate=True
    ) -> TransactionAnswer | None:
        return self.ask(
            lambda request: JoinMicroBatch(
                request=request,
                sink=sink,
                query=query,
                batch=batch,
                timeout_ms=TIMEOUT_MS,
                now_ms=self.now_ms,
                fresh_producer_id=self.fresh_producer_id(),
                owner=owner,
                run=run,
                claim=claim,
            ),
            replicate=replicate,
        )

    def enlist(self, producer_id: int, *partitions: TopicPartition) -> TransactionAnswer | None:
        return self.ask(
            lambda request: EnlistPartitions(
                request=request,
                producer_id=producer_id,
                producer_epoch=0,
                partitions=frozenset(partitions),
                now_ms=self.now_ms,
            )
        )

    def attempt(self, batch: int, *partitions: TopicPartition, sink="s", query="q", **who) -> int:
        """The producer id of a task attempt that has done its work."""
        joined = self.join(batch, sink=sink, query=query, **who)
        assert joined is not None and not joined.error, joined
        enlisted = self.enlist(joined.producer_id, *(partitions or (OUT0, OUT1)))
        assert enlisted is not None and not enlisted.error, enlisted
        return joined.producer_id

    def commit(
        self,
        batch: int,
        *members: int,
        drained=0,
        origins=None,
        sink="s",
        query="q",
        owner="",
        run=None,
        claim=None,
        rows=NO_ROWS,
        replicate=True,
    ) -> TransactionAnswer | None:
        return self.ask(
            lambda request: CommitMicroBatch(
                request=request,
                sink=sink,
                query=query,
                batch=batch,
                members=frozenset((each, 0) for each in members),
                drained=drained,
                now_ms=self.now_ms,
                origins=origins or {},
                owner=owner,
                run=run,
                claim=claim,
                rows=rows,
            ),
            replicate=replicate,
        )

    def give_up(self, write, *members: int, sink="s", query="q") -> TransactionAnswer | None:
        return self.ask(
            lambda request: AbortMembers(
                request=request,
                sink=sink,
                query=query,
                members=frozenset((each, 0) for each in members),
                write=write,
            )
        )

    # --- what came of it ---

    def outcome(self, producer_id: int) -> set[bool]:
        """How its transaction ended, in the partitions that have a marker: {True} is committed."""
        ends = [end for (each, _), end in self.written.items() if each == producer_id]
        return set().union(*ends)


def error(answer) -> ErrorCode | None:
    return None if answer is None else answer.error
