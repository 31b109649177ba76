"""Records of the exactly-once sink that mean nothing to a coordinator, as after a later version has
led: what they may say is never taken for nothing. Source: R-SPARK2."""

from uuid import UUID

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions import named_claims
from storage_engine.core.transactions.transaction_state import (
    NO_QUERY,
    ONCE_PREFIX,
    LedgerKey,
    NumbersKey,
    named_write,
)
from storage_engine.tests.core.transactions.coordinator_bench import OUT0, CoordinatorBench, error

SOURCE = TopicPartition("source", 0)
OK, REFUSED = ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR
PART = NumbersKey("s", "t")


@pytest.fixture(autouse=True)
def few_ledgers(monkeypatch):
    monkeypatch.setattr(named_claims, "LEDGERS_KEPT", 2)


def blinded(bench: CoordinatorBench, *keys) -> CoordinatorBench:
    """It goes on with a coordinator that can't read these."""
    bench.settle()
    bench.unreadable = set(keys)
    bench.fail_over()
    bench.replicate()
    return bench


def names_written(bench: CoordinatorBench, since: int) -> set:
    return {key for key, _ in bench.log[since:]}


@pytest.mark.parametrize(
    "key",
    [
        PART,
        LedgerKey("s", "q"),
        LedgerKey("s", NO_QUERY),
        LedgerKey("s", named_write("t", 0)),
    ],
)
def test_a_number_whose_records_can_not_be_read_is_not_taken_again(key):
    bench = CoordinatorBench()
    who = {"query": named_write("t", 0), "owner": "q", "run": UUID(int=1)}
    bench.commit(0, bench.attempt(0, OUT0, **who), **who)
    blinded(bench, key)
    size = len(bench.log)
    assert error(bench.join(0, **who)) is REFUSED
    if key != LedgerKey("s", NO_QUERY):
        assert error(bench.commit(0, **who)) is REFUSED
    assert key not in names_written(bench, size)


def test_other_parts_and_other_sinks_go_on():
    bench = blinded(CoordinatorBench(), PART)
    assert error(bench.join(0, query=named_write("t", 0))) is REFUSED
    assert error(bench.join(0, query=named_write("u", 0))) is OK
    assert error(bench.join(0)) is OK
    bench = blinded(CoordinatorBench(), LedgerKey("s", "q"))
    assert error(bench.join(0, sink="another")) is OK


@pytest.mark.parametrize("query", [NO_QUERY, "q", ONCE_PREFIX + "1"])
def test_nobody_copies_again_what_an_unreadable_ledger_may_have_copied(query):
    bench = CoordinatorBench()
    known = bench.attempt(0, OUT0, query="known")
    unknown = bench.attempt(0, OUT0, query="unknown")
    blinded(bench, LedgerKey("s", query))
    assert error(bench.join(0, query="later")) is REFUSED
    with_origins = bench.commit(0, known, query="known", origins={SOURCE: 9})
    assert error(with_origins) is REFUSED
    assert error(bench.commit(0, unknown, query="unknown")) is OK, "without origins none can move"


def test_what_ends_meanwhile_is_not_folded_into_what_can_not_be_read():
    """The commit is in the log, its markers come later: origins and numbers stay where they are."""
    bench = CoordinatorBench()
    once = ONCE_PREFIX + "1"
    bench.commit(0, bench.attempt(0, OUT0, query=once), query=once, origins={SOURCE: 9})
    for number in range(6):
        query = named_write("t", number)
        origins = {SOURCE: 10 + number}
        bench.commit(number, bench.attempt(number, OUT0, query=query), query=query, origins=origins)
    bench.unreadable = {LedgerKey("s", NO_QUERY), PART}
    bench.fail_over()
    size = len(bench.log)
    bench.settle()
    for ms in (0, 10**12, 10**12):
        bench.pass_time(ms)
        bench.settle()
    assert names_written(bench, size).isdisjoint(bench.unreadable)
    bench.unreadable = set()
    bench.fail_over()
    bench.replicate()
    assert bench.join(0, query="later").origins == {SOURCE: 15}
    for number in range(6):
        told = bench.join(number, query=named_write("t", number))
        assert error(told) is ErrorCode.ALREADY_COMMITTED
