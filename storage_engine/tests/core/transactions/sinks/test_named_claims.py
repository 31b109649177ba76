"""Several named writes in one call of `foreachBatch`, and in its repetitions: each name is written,
or repeated, once in each call. Source: R-SPARK2."""

from uuid import UUID

import pytest

from storage_engine.client.micro_batches import origins_note_query
from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions import named_claims
from storage_engine.core.transactions.transaction_state import NumberClaim, named_write
from storage_engine.tests.core.transactions.coordinator_bench import (
    OUT0,
    CoordinatorBench,
    error,
)

OK, ALREADY = ErrorCode.NONE, ErrorCode.ALREADY_COMMITTED
TAKEN, CHANGED = ErrorCode.BATCH_ID_TAKEN, ErrorCode.BATCH_IDS_CHANGED


class Call:
    """One call of `foreachBatch` for a micro-batch, whose number is that of its writes."""

    def __init__(self, bench: CoordinatorBench, number: int, attempt: int, *, spark: int = -1):
        self.bench, self.number = bench, number
        self.spark = number if spark < 0 else spark
        self.attempt = UUID(int=attempt)
        self._writes = 0

    def write(self) -> NumberClaim:
        self._writes += 1
        return NumberClaim(
            self.spark, self.attempt, UUID(int=self.attempt.int * 100 + self._writes)
        )

    def who(self, claim: NumberClaim, part: str) -> dict:
        return {"query": named_write(part, self.number), "owner": "q", "claim": claim}

    def asks(self, claim: NumberClaim, part: str = "t") -> ErrorCode | None:
        return error(self.bench.join(self.number, **self.who(claim, part)))

    def opens(self, claim: NumberClaim, part: str = "t") -> int:
        return self.bench.attempt(self.number, OUT0, **self.who(claim, part))

    def ends(
        self, claim: NumberClaim, *members: int, part: str = "t", drained=0
    ) -> ErrorCode | None:
        told = error(
            self.bench.commit(self.number, *members, drained=drained, **self.who(claim, part))
        )
        self.bench.settle()
        return told

    def writes(self, part: str = "t") -> ErrorCode | None:
        """Return the outcome of a whole write."""
        claim = self.write()
        joined = self.bench.join(self.number, **self.who(claim, part))
        if joined.error is ALREADY:
            return self.ends(claim, part=part, drained=1)
        if joined.error:
            return joined.error
        return self.ends(claim, joined.producer_id, part=part)

    def gives_up(self, claim: NumberClaim, *members: int, part: str = "t") -> None:
        query = named_write(part, self.number)
        assert error(self.bench.give_up(claim.write, *members, query=query)) is OK
        self.bench.settle()


@pytest.fixture(params=[False, True], ids=["", "coordinators-fail"])
def between(request):
    """The event between two steps."""

    def nothing_or_failover(bench: CoordinatorBench) -> None:
        if request.param:
            bench.fail_over()
            bench.settle()

    return nothing_or_failover


def test_a_second_write_under_one_name_is_refused_before_its_rows(between):
    bench = CoordinatorBench()
    call = Call(bench, 7, attempt=1)
    assert call.writes() is OK
    between(bench)
    second = call.write()
    assert call.asks(second) is TAKEN
    assert call.ends(second) is TAKEN, "without rows, too"
    assert call.writes("u") is OK, "another part"


def test_of_two_writes_at_once_under_one_name_only_the_first_succeeds(between):
    bench = CoordinatorBench()
    call = Call(bench, 7, attempt=1)
    first, second = call.write(), call.write()
    members = call.opens(first), call.opens(second)
    assert call.ends(second, members[1]) is OK
    between(bench)
    assert call.ends(first, members[0]) is TAKEN
    assert [bench.outcome(each) for each in members] == [{False}, {True}]


def test_a_repetition_repeats_each_name_once(between):
    bench = CoordinatorBench()
    for attempt in (1, 2, 3):
        call = Call(bench, 7, attempt)
        for part in "tu":
            assert call.writes(part) is (OK if attempt == 1 else ALREADY)
            between(bench)
        assert call.writes("t") is TAKEN


def test_a_repetition_goes_on_where_the_first_call_was_killed(between):
    bench = CoordinatorBench()
    assert Call(bench, 7, attempt=1).writes("t") is OK
    between(bench)
    again = Call(bench, 7, attempt=2)
    assert [again.writes(part) for part in "tuv"] == [ALREADY, OK, OK]


def test_the_same_write_may_ask_again(between):
    """Its answer was lost; its tasks that still run are told to drop their rows."""
    bench = CoordinatorBench()
    call = Call(bench, 7, attempt=1)
    claim = call.write()
    member = call.opens(claim)
    assert call.ends(claim, member) is OK
    between(bench)
    assert call.ends(claim, member) is ALREADY
    assert call.asks(claim) is ALREADY


@pytest.mark.parametrize("committed", [True, False])
def test_a_write_that_was_given_up_may_be_tried_again_in_the_same_call(between, committed):
    bench = CoordinatorBench()
    call = Call(bench, 7, attempt=1)
    claim = call.write()
    member = call.opens(claim)
    if committed:
        assert call.ends(claim, member) is OK
    between(bench)
    call.gives_up(claim, member)
    between(bench)
    assert call.writes() is (ALREADY if committed else OK)
    assert call.writes() is TAKEN


def test_a_write_gives_up_only_itself():
    bench = CoordinatorBench()
    call = Call(bench, 7, attempt=1)
    other = call.write()
    assert call.writes() is OK
    call.gives_up(other)
    assert call.writes() is TAKEN


def test_micro_batches_with_gaps_note_moved_origins_without_end():
    bench = CoordinatorBench()

    def notes(micro_batch: int, attempt: int, write: int) -> ErrorCode | None:
        claim = NumberClaim(micro_batch, UUID(int=attempt), UUID(int=write))
        query = origins_note_query("q", micro_batch)
        told = error(bench.commit(0, query=query, owner="q", claim=claim))
        bench.settle()
        return told

    most = named_claims.MOST_PIECES + 1
    assert {notes(2 * each, each, each) for each in range(most)} == {OK}
    last = 2 * most
    assert [notes(last, 1, 1), notes(last, 1, 1)] == [OK, ALREADY], "the answer was lost"
    assert notes(last, 1, 2) is TAKEN
    assert [notes(last, 2, 3), notes(last, 2, 4)] == [ALREADY, TAKEN]


def test_names_that_changed_wait_for_the_former_ones(between):
    bench = CoordinatorBench()
    first = Call(bench, 7, attempt=1)
    assert first.writes("t") is OK
    between(bench)
    again = Call(bench, 7, attempt=2)
    new = again.write()
    member = again.opens(new, "u")
    assert again.ends(new, member, part="u") is CHANGED
    between(bench)
    assert again.asks(again.write(), "t") is ALREADY, "a task repeats the former one"
    assert again.ends(new, member, part="u") is OK
    assert Call(bench, 8, attempt=3).writes("u") is OK, "the next micro-batch"


def test_a_number_of_another_micro_batch_of_the_query_is_refused(between):
    """As with the same number in each call."""
    bench = CoordinatorBench()
    assert Call(bench, 0, attempt=1, spark=0).writes() is OK
    between(bench)
    assert Call(bench, 0, attempt=2, spark=1).writes() is TAKEN


def test_claims_are_kept_as_long_as_ledgers(monkeypatch):
    monkeypatch.setattr(named_claims, "LEDGERS_KEPT", 2)
    bench = CoordinatorBench()
    for number in range(20):
        assert Call(bench, number, attempt=number + 1).writes() is OK
    assert len(bench.coordinator.batches._ledgers.claims) == 1
    assert Call(bench, 3, attempt=50).writes() is ALREADY, "a checkpoint that was put back"
    for number in range(20, 40):
        assert Call(bench, number, attempt=60, spark=20).writes() is OK
    assert len(bench.coordinator.batches._ledgers.claims) < 6
