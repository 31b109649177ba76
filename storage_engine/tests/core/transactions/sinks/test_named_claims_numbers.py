"""Named batch writes at the coordinator: each number of each part counts by itself, and for ever,
whoever is first. Source: R-SPARK2."""

from uuid import UUID

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions import named_claims
from storage_engine.core.transactions.named_claims import RUNS_KEPT
from storage_engine.core.transactions.transaction_state import (
    NO_QUERY,
    ONCE_PREFIX,
    LedgerKey,
    LedgerRecord,
    NumberInterval,
    NumbersKey,
    named_write,
)
from storage_engine.tests.core.transactions.coordinator_bench import (
    OUT0,
    TIMEOUT_MS,
    CoordinatorBench,
    error,
)

OK, ALREADY = ErrorCode.NONE, ErrorCode.ALREADY_COMMITTED


RUNS = [UUID(int=number) for number in range(1, 100)]


PART = NumbersKey("s", "t")


class Jobs(CoordinatorBench):
    """The requests of jobs that write to one sink."""

    def opens(self, number: int, *, part="t", **who) -> int:
        """The producer id of a task that has written."""
        return self.attempt(number, OUT0, query=named_write(part, number), **who)

    def ends(self, number: int, *members: int, part="t", **how) -> ErrorCode | None:
        return error(self.commit(number, *members, query=named_write(part, number), **how))

    def asks(self, number: int, *, part="t", **who):
        """Return the answer to a task that begins."""
        return self.join(number, query=named_write(part, number), **who)

    def writes(self, number: int, *, part="t", **who) -> ErrorCode | None:
        told = self.ends(number, self.opens(number, part=part, **who), part=part, **who)
        self.settle()
        return told

    def ledgers(self) -> int:
        return len(dict(self.coordinator.batches.ledgers()))


@pytest.mark.parametrize("order", [(5, 6), (6, 5)])
def test_jobs_of_different_numbers_all_count_in_any_order(order):
    jobs = Jobs()
    members = {number: jobs.opens(number) for number in order}
    for number in reversed(order):
        assert jobs.ends(number, members[number]) is OK
        jobs.fail_over()
        jobs.replicate()
    jobs.settle()
    backfill = jobs.opens(3)
    assert jobs.ends(3, backfill) is OK
    jobs.settle()
    assert [jobs.outcome(each) for each in (*members.values(), backfill)] == [{True}] * 3
    assert error(jobs.asks(6)) is ALREADY
    assert error(jobs.asks(4)) is OK


def test_a_commit_does_not_wait_for_the_markers_of_another_number():
    jobs = Jobs()
    five, six = jobs.opens(5), jobs.opens(6)
    assert jobs.ends(6, six) is OK
    assert jobs.ends(5, five) is OK, "the markers of 6 are not written"


def test_a_commit_ends_the_members_of_its_own_number_only():
    jobs = Jobs()
    lower, loser, winner, higher = (jobs.opens(number) for number in (4, 5, 5, 6))
    elsewhere = jobs.opens(5, part="u")
    assert jobs.ends(5, winner) is OK
    jobs.settle()
    assert [jobs.outcome(each) for each in (lower, loser, winner, higher, elsewhere)] == [
        set(), {False}, {True}, set(), set(),
    ]  # fmt: skip


def test_the_same_number_writes_once_whoever_is_first():
    jobs = Jobs()
    first, second = jobs.opens(5), jobs.opens(5)
    assert jobs.ends(5, second, rows=10) is OK
    jobs.settle()
    again = jobs.commit(5, first, query=named_write("t", 5), rows=12)
    assert (again.error, again.committed.rows, again.committed.winner) == (ALREADY, 10, second)
    jobs.settle()
    assert (jobs.outcome(first), jobs.outcome(second)) == ({False}, {True})


def test_two_topics_are_two_parts():
    jobs = Jobs()
    assert jobs.writes(5, part="t") is OK
    assert jobs.writes(5, part="u") is OK
    assert error(jobs.asks(5, part="t")) is ALREADY


@pytest.mark.parametrize("kept", [1, 100])
def test_a_number_of_another_query_is_refused_for_ever(monkeypatch, kept):
    """Also when its ledger has gone: an interval keeps whose it is."""
    monkeypatch.setattr(named_claims, "LEDGERS_KEPT", kept)
    jobs = Jobs()
    for number in range(5):
        assert jobs.writes(number, owner="q", run=RUNS[0]) is OK
    jobs.fail_over()
    jobs.settle()
    assert jobs.ledgers() == (2 if kept == 1 else 6), "that of the query's runs is there, too"
    for owner, told in (("q", ALREADY), ("r", ErrorCode.BATCH_ID_TAKEN)):
        for number in range(5):
            asked = jobs.asks(number, owner=owner)
            assert (error(asked), asked.committed.owner) == (told, "q")
            assert jobs.ends(number, drained=1, owner=owner) is told
    assert error(jobs.asks(0)) is ErrorCode.BATCH_ID_TAKEN, "a job of no query"


def test_a_job_whose_number_another_query_commits_meanwhile_is_told():
    jobs = Jobs()
    mine, theirs = jobs.opens(0, owner="q"), jobs.opens(0, owner="r")
    assert jobs.ends(0, theirs, owner="r") is OK
    jobs.settle()
    assert jobs.ends(0, mine, owner="q") is ErrorCode.BATCH_ID_TAKEN


def test_dense_numbers_cost_nothing_and_none_is_forgotten(monkeypatch):
    monkeypatch.setattr(named_claims, "LEDGERS_KEPT", 10)
    jobs = Jobs()
    numbers = [*range(0, 60, 2), *range(1, 60, 2), 1000]
    for number in numbers:
        assert jobs.writes(number) is OK
        assert jobs.ledgers() < 20
        if number % 7 == 0:
            jobs.fail_over()
            jobs.settle()
    jobs.pass_time(10**12)
    jobs.fail_over()
    jobs.settle()
    record = jobs.coordinator.batches.numbers(PART)
    assert record is not None and len(record.intervals) < 20
    for number in numbers:
        assert error(jobs.asks(number)) is ALREADY
    assert error(jobs.asks(999)) is OK


def test_a_coordinator_lost_while_numbers_move_forgets_none(monkeypatch):
    """The intervals, and the tombstones of ledgers, reach the log as one batch, or not."""
    monkeypatch.setattr(named_claims, "LEDGERS_KEPT", 2)
    jobs = Jobs()
    for number in range(3):
        jobs.writes(number)
    jobs.ends(3, jobs.opens(3))
    jobs.write_markers()
    assert jobs.coordinator.batches.numbers(PART) is not None, "they move"
    for keep in (0, None):
        jobs.fail_over(keep=keep)
        for number in range(4):
            assert error(jobs.join(number, query=named_write("t", number))) is ALREADY
        jobs.settle()
    assert jobs.writes(4) is OK


def test_numbers_in_too_many_pieces_are_refused_and_dense_ones_go_on(monkeypatch):
    monkeypatch.setattr(named_claims, "LEDGERS_KEPT", 2)
    monkeypatch.setattr(named_claims, "MOST_PIECES", 8)
    jobs = Jobs()
    late = jobs.opens(500)
    for number in range(0, 80, 10):
        assert jobs.writes(number) is OK
    assert error(jobs.asks(100)) is ErrorCode.TOO_MANY_BATCH_IDS
    assert jobs.ends(500, late) is ErrorCode.TOO_MANY_BATCH_IDS
    jobs.fail_over()
    jobs.settle()
    assert error(jobs.asks(100)) is ErrorCode.TOO_MANY_BATCH_IDS
    for number in range(71, 90):
        assert jobs.writes(number) is OK, "it continues another"
    assert jobs.writes(9) is OK
    assert error(jobs.asks(71)) is ALREADY
    assert error(jobs.asks(100, part="u")) is OK


def test_numbers_without_rows_move_into_intervals_too(monkeypatch):
    monkeypatch.setattr(named_claims, "LEDGERS_KEPT", 5)
    jobs = Jobs()
    for number in range(40):
        assert jobs.ends(number, origins={OUT0: number}) is OK
        jobs.settle()
    assert jobs.ledgers() < 12, "one of them has the origins"
    for _ in range(2):
        record = jobs.coordinator.batches.numbers(PART)
        assert record is not None and len(record.intervals) == 1
        assert all(error(jobs.asks(number)) is ALREADY for number in range(40))
        assert jobs.asks(50).origins == {OUT0: 39}
        jobs.fail_over()
        jobs.replicate()


def test_numbers_that_are_replicated_together_move_together(monkeypatch):
    """The end of the first moves others, whose own end comes only then."""
    monkeypatch.setattr(named_claims, "LEDGERS_KEPT", 1)
    jobs = Jobs()
    for number in range(8):
        jobs.ends(number, replicate=False)
    jobs.settle()
    assert jobs.ledgers() < 3
    assert all(error(jobs.asks(number)) is ALREADY for number in range(8))


def test_many_ledgers_that_have_gathered_go_with_the_next_commits(monkeypatch):
    monkeypatch.setattr(named_claims, "MOST_MOVED", 100)
    jobs = Jobs()
    for number in range(1000):
        jobs.log.append((LedgerKey("s", named_write("t", number)), LedgerRecord(last=number)))
    jobs.replicated = len(jobs.log)
    jobs.fail_over()
    jobs.settle()
    for number in range(1000, 1012):
        assert jobs.writes(number) is OK
    assert jobs.ledgers() <= 200
    assert all(error(jobs.asks(number)) is ALREADY for number in range(1012))


def test_dense_numbers_with_ledgers_take_no_room(monkeypatch):
    monkeypatch.setattr(named_claims, "MOST_PIECES", 8)
    jobs = Jobs()
    for number in [*range(0, 40, 2), *range(1, 40, 2)]:
        jobs.log.append((LedgerKey("s", named_write("t", number)), LedgerRecord(last=number)))
    jobs.replicated = len(jobs.log)
    jobs.fail_over()
    jobs.replicate()
    for number in range(100, 170, 10):
        assert jobs.ends(number) is OK
    assert error(jobs.asks(200)) is ErrorCode.TOO_MANY_BATCH_IDS
    assert error(jobs.asks(171)) is ErrorCode.TOO_MANY_BATCH_IDS
    assert error(jobs.asks(40)) is OK


def test_numbers_that_were_only_tried_leave_nothing_behind():
    jobs = Jobs()
    for number in range(20):
        jobs.opens(number)
    assert jobs.ledgers() == 20
    jobs.pass_time(TIMEOUT_MS)
    jobs.settle()
    assert jobs.ledgers() == 0
    assert jobs.writes(7) is OK


def test_the_newer_run_replaces_the_older_which_is_told():
    jobs = Jobs()
    old, new = RUNS[:2]
    mine = jobs.attempt(0, run=old)
    assert error(jobs.join(0, run=new)) is OK
    for _ in range(2):
        assert error(jobs.commit(0, mine, run=old)) is ErrorCode.RUN_REPLACED
        assert error(jobs.join(0, run=old)) is ErrorCode.RUN_REPLACED
        jobs.fail_over()
        jobs.replicate()
    theirs = jobs.attempt(0, run=new)
    assert error(jobs.commit(0, theirs, run=new)) is OK
    jobs.settle()
    assert (jobs.outcome(mine), jobs.outcome(theirs)) == ({False}, {True})
    # Also when all it has is a batch without rows, or one that is committed.
    third = RUNS[2]
    assert error(jobs.commit(0, run=third)) is ALREADY
    assert error(jobs.commit(1, run=new)) is ErrorCode.RUN_REPLACED


def test_the_first_commit_keeps_its_run_though_it_has_no_members():
    """Else the older run would go on, and end the newer one."""
    jobs = Jobs()
    old, new = RUNS[:2]
    assert error(jobs.commit(0, run=old)) is OK
    jobs.settle()
    record = jobs.coordinator.batches.ledger(LedgerKey("s", "q"))
    assert record.runs == (old,)
    theirs = jobs.attempt(1, run=new)
    for ends in (lambda: jobs.join(1, run=old), lambda: jobs.commit(1, run=old)):
        assert error(ends()) is ErrorCode.RUN_REPLACED
    assert error(jobs.commit(1, theirs, run=new)) is OK


def test_a_run_is_not_refused_for_one_that_may_be_lost():
    jobs = Jobs()
    assert error(jobs.join(0, run=RUNS[0])) is OK
    jobs.join(0, run=RUNS[1], replicate=False)
    assert jobs.join(0, run=RUNS[0], replicate=False) is None, "it waits for the newer one's record"
    jobs.fail_over()
    jobs.replicate()
    assert error(jobs.join(0, run=RUNS[0])) is OK


def test_a_restart_is_never_refused():
    jobs = Jobs()
    for batch, run in enumerate(RUNS):
        member = jobs.attempt(batch, run=run)
        assert error(jobs.commit(batch, member, run=run)) is OK
        jobs.settle()
    record = jobs.coordinator.batches.ledger(LedgerKey("s", "q"))
    assert len(record.runs) == RUNS_KEPT
    assert error(jobs.join(99, run=RUNS[-2])) is ErrorCode.RUN_REPLACED


def test_a_zombie_of_a_query_that_writes_numbers_is_told():
    jobs = Jobs()
    who = {"owner": "q", "run": RUNS[0]}
    assert jobs.writes(0, **who) is OK
    mine = jobs.opens(1, **who)
    assert error(jobs.asks(1, owner="q", run=RUNS[1])) is OK
    assert jobs.ends(1, mine, **who) is ErrorCode.RUN_REPLACED
    assert error(jobs.asks(2, part="u", **who)) is ErrorCode.RUN_REPLACED
    assert error(jobs.asks(2, owner="other", run=RUNS[0])) is OK, "a run is one of its query"


class NobodyWalks(dict):
    """Ledgers that can only be asked for one by one."""

    def __iter__(self):
        raise AssertionError("all ledgers are walked")

    items = values = keys = __iter__


def test_a_join_and_a_commit_look_at_their_own_ledgers_only():
    bench = CoordinatorBench()
    for number in range(50):
        query = f"{ONCE_PREFIX}{number}"
        member = bench.attempt(0, query=query)
        assert error(bench.commit(0, member, query=query, origins={OUT0: number})) is OK
        bench.settle()
    ledgers = bench.coordinator.batches._ledgers
    ledgers._ledgers = NobodyWalks(ledgers._ledgers)
    joined = bench.join(0, query="after")
    assert joined.origins == {OUT0: 49}
    assert error(bench.commit(0, joined.producer_id, query="after", origins={OUT0: 60})) is OK


def test_origins_of_writes_that_have_ended_are_one_record():
    bench = CoordinatorBench()
    for number in range(5):
        query = f"{ONCE_PREFIX}{number}"
        slow = bench.attempt(0, query="slow")
        member = bench.attempt(0, query=query)
        assert error(bench.commit(0, member, query=query, origins={OUT0: number})) is OK
        bench.settle()
        lost = bench.commit(0, slow, query="slow", origins={OUT0: number})
        assert error(lost) is ErrorCode.MEMBER_LOST, "folded origins have moved, too"
    for ms in (0, 10**12):
        bench.pass_time(ms)
        bench.settle()
        bench.fail_over()
        bench.settle()
        with_origins = [
            key.query for key, record in bench.coordinator.batches.ledgers() if record.origins
        ]
        assert with_origins == [NO_QUERY]
    assert bench.join(0, query="after").origins == {OUT0: 4}


def test_touching_numbers_of_one_query_are_one_interval():
    intervals = [
        NumberInterval(*each)
        for each in ((7, 7, "q"), (0, 2, ""), (3, 3, ""), (5, 6, "q"), (4, 4, "q"), (9, 9, "q"))
    ]
    assert named_claims.merged(intervals) == (
        NumberInterval(0, 3, ""),
        NumberInterval(4, 7, "q"),
        NumberInterval(9, 9, "q"),
    )
