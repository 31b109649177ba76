"""A streaming query that writes under several sinks, one after the other: whatever driver is
killed at whatever step, and whatever request of it comes late, a micro-batch is committed under one
sink at most. Source: R-SPARK2."""

import itertools

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.tests.core.transactions.coordinator_bench import (
    OUT0,
    CoordinatorBench,
    error,
)

QUERY = "q"
SINKS = (QUERY, "s", "t")
SUCCESS = (ErrorCode.NONE, ErrorCode.ALREADY_COMMITTED)
STEPS = 4


class Driver:
    """A driver with its task, step by step: join, note the sink, commit."""

    def __init__(self, bench: CoordinatorBench, sink: str, *, notes: bool = True) -> None:
        self._bench, self._sink, self._notes = bench, sink, notes
        self.member: int | None = None
        self._is_drained = False
        self.has_failed = self.has_succeeded = False
        self._at = 0

    def step(self) -> None:
        if self.has_failed or self.has_succeeded:
            return
        told = (self._join, self._enlist, self._note, self._commit)[self._at]()
        self._at += 1
        self.has_failed = told not in SUCCESS
        self.has_succeeded = self._at == STEPS and not self.has_failed
        self._bench.settle()

    def _join(self) -> ErrorCode | None:
        joined = self._bench.join(7, sink=self._sink, query=QUERY)
        self._is_drained = joined.error is ErrorCode.ALREADY_COMMITTED
        self.member = None if joined.error else joined.producer_id
        return joined.error

    def _enlist(self) -> ErrorCode | None:
        if self.member is None:
            return ErrorCode.NONE
        return error(self._bench.enlist(self.member, OUT0))

    def _note(self) -> ErrorCode | None:
        if self._sink == QUERY or not self._notes:
            return ErrorCode.NONE
        return error(self._bench.commit(7, sink=QUERY, query=QUERY, owner=self._sink))

    def _commit(self) -> ErrorCode | None:
        members = () if self.member is None else (self.member,)
        return error(
            self._bench.commit(
                7, *members, sink=self._sink, query=QUERY, drained=int(self._is_drained)
            )
        )


def committed(bench: CoordinatorBench, drivers: list[Driver]) -> int:
    return sum(bench.outcome(each.member) == {True} for each in drivers if each.member is not None)


def worlds(notes: bool):
    """Two drivers, of which the first is killed after some steps; what it has sent may come at any
    time, and a third driver follows."""
    for sinks in itertools.product(SINKS, repeat=3):
        for first, late, second in itertools.product(
            range(STEPS + 1), range(STEPS + 1), range(STEPS + 1)
        ):
            bench = CoordinatorBench()
            drivers = [Driver(bench, sink, notes=notes) for sink in sinks]
            for _ in range(first):
                drivers[0].step()
            for at in range(STEPS):
                if at == late:
                    drivers[0].step()  # the network has kept it
                if at < second:
                    drivers[1].step()
            for _ in range(STEPS):
                drivers[2].step()
            yield sinks, bench, drivers


def test_a_micro_batch_is_committed_under_one_sink_at_most():
    succeeded = 0
    for sinks, bench, drivers in worlds(notes=True):
        count = committed(bench, drivers)
        assert count <= 1, sinks
        if any(each.has_succeeded for each in drivers):
            assert count == 1, sinks
            succeeded += 1
        if len(set(sinks)) == 1:
            assert drivers[2].has_succeeded, "nothing changes, nothing is refused"
    assert succeeded > 1000


def test_without_the_note_it_is_committed_twice():
    assert any(committed(bench, drivers) > 1 for _, bench, drivers in worlds(notes=False))


def test_the_sink_may_change_when_a_micro_batch_has_ended():
    bench = CoordinatorBench()
    for batch, sink in enumerate((QUERY, "s", "t", "s", QUERY)):
        if sink != QUERY:
            assert error(bench.commit(batch, sink=QUERY, query=QUERY, owner=sink)) is ErrorCode.NONE
        member = bench.attempt(batch, OUT0, sink=sink, query=QUERY)
        assert error(bench.commit(batch, member, sink=sink, query=QUERY)) is ErrorCode.NONE
        bench.settle()
    assert bench.coordinator.batches.committed == 5, "the notes are no micro-batches"


@pytest.mark.parametrize("batch", [0, 3])
def test_a_note_of_a_checkpoint_that_was_put_back_is_repeated(batch):
    bench = CoordinatorBench()
    for each in range(4):
        bench.commit(each, sink=QUERY, query=QUERY, owner="s")
    told = bench.commit(batch, sink=QUERY, query=QUERY, owner="s")
    assert error(told) is ErrorCode.ALREADY_COMMITTED
