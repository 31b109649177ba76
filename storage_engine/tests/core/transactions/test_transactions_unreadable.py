"""A transaction coordinator with records that mean nothing to it: what they are about stays as it
is, until a coordinator that can read them leads."""

from dataclasses import replace

import pytest

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions.transaction_events import (
    AbortMembers,
    MarkersWritten,
    VerifyMember,
)
from storage_engine.core.transactions.transaction_state import (
    LedgerKey,
    LedgerRecord,
    MemberEnd,
    MemberKey,
    MemberRecord,
    StateKey,
    TransactionalIdKey,
    TransactionRecord,
    TransactionState,
)
from storage_engine.tests.core.transactions.coordinator_bench import (
    OUT0,
    OUT1,
    TIMEOUT_MS,
    CoordinatorBench,
)

LEDGER = LedgerKey("s", "q")


def becomes_unreadable(bench: CoordinatorBench, key: StateKey) -> None:
    """A later version has written it; the next coordinator is of this one."""
    bench.log.append((key, UnreadableRecord("of a later version")))
    bench.replicated = len(bench.log)
    bench.fail_over()
    bench.replicate()


def becomes_readable(bench: CoordinatorBench, key: StateKey) -> None:
    bench.log = [entry for entry in bench.log if not isinstance(entry[1], UnreadableRecord)]
    bench.replicated = len(bench.log)
    bench.fail_over()


def verified(bench: CoordinatorBench, member: int) -> ErrorCode:
    answer = bench.ask(
        lambda n: VerifyMember(
            request=n, producer_id=member, producer_epoch=0, partitions=frozenset([OUT0])
        )
    )
    assert answer is not None
    return answer.error


def given_up(bench: CoordinatorBench, *members: int, query: str = "q") -> ErrorCode:
    listed = frozenset((each, 0) for each in members)
    answer = bench.ask(lambda n: AbortMembers(request=n, sink="s", query=query, members=listed))
    assert answer is not None
    return answer.error


@pytest.mark.parametrize("query", ["q", "another"])
def test_members_of_an_answered_commit_are_left_alone_while_its_ledger_can_not_be_read(query):
    bench = CoordinatorBench()
    member = bench.attempt(0, OUT0, OUT1)
    assert bench.commit(0, member).error is ErrorCode.NONE
    becomes_unreadable(bench, LEDGER)
    refused = ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.enlist(member, OUT0).error is refused
    assert verified(bench, member) is refused
    assert given_up(bench, member, query=query) is refused
    bench.pass_time(10 * TIMEOUT_MS)
    bench.settle()
    assert not bench.written
    becomes_readable(bench, LEDGER)
    bench.settle()
    assert bench.written == {(member, OUT0): {True}, (member, OUT1): {True}}


def test_a_member_that_was_aborting_goes_on_though_its_ledger_can_not_be_read():
    """It was in no commit, and holds the last stable offset."""
    bench = CoordinatorBench()
    member = bench.attempt(0, OUT0)
    assert given_up(bench, member) is ErrorCode.NONE
    becomes_unreadable(bench, LEDGER)
    bench.settle()
    assert bench.written == {(member, OUT0): {False}}


def test_another_query_of_the_sink_goes_on():
    bench = CoordinatorBench()
    bench.attempt(0, OUT0)
    other = bench.attempt(0, OUT0, query="r")
    becomes_unreadable(bench, LEDGER)
    assert verified(bench, other) is ErrorCode.NONE
    assert bench.commit(0, other, query="r").error is ErrorCode.NONE
    bench.settle()
    assert bench.written == {(other, OUT0): {True}}


def test_a_member_that_can_not_be_read_is_neither_enlisted_nor_said_to_be_given_up():
    bench = CoordinatorBench()
    member = bench.attempt(0, OUT0)
    becomes_unreadable(bench, MemberKey(member))
    assert bench.enlist(member, OUT1).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert verified(bench, member) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert given_up(bench, member) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.commit(0, member).error is ErrorCode.MEMBER_LOST


END = MemberEnd(5, 0, True, frozenset({OUT0}))
ENDING = TransactionRecord(
    producer_id=5,
    producer_epoch=0,
    timeout_ms=1000,
    state=TransactionState.PREPARE_ABORT,
    last_update_ms=0,
    partitions=frozenset({OUT0}),
)
LEDGERS = LedgerKey("s", "q"), LedgerKey("s", "r")
MEMBER = MemberRecord(
    sink="s",
    query="t",
    batch=0,
    epoch=0,
    timeout_ms=TIMEOUT_MS,
    origin_clock=0,
    partitions=frozenset({OUT0}),
)


@pytest.mark.parametrize("partitions", [frozenset(), frozenset({OUT0})])
@pytest.mark.parametrize(
    "content",
    [
        {LEDGERS[0]: LedgerRecord(last=1, ends=(END, END))},
        {LEDGERS[0]: LedgerRecord(last=1, ends=(END,)), LEDGERS[1]: LedgerRecord(ends=(END,))},
        {TransactionalIdKey("a"): ENDING, TransactionalIdKey("b"): ENDING},
        {TransactionalIdKey("a"): ENDING, LEDGERS[0]: LedgerRecord(last=1, ends=(END,))},
    ],
)
def test_a_producer_id_that_ends_in_several_places_ends_no_coordinator(content, partitions):
    bench = CoordinatorBench()
    for key, record in content.items():
        if isinstance(record, LedgerRecord):
            ends = tuple(replace(end, partitions=partitions) for end in record.ends)
            bench.log.append((key, replace(record, ends=ends)))
        else:
            bench.log.append((key, replace(record, partitions=partitions)))
    bench.log.append((MemberKey(5), MEMBER))
    bench.replicated = len(bench.log)
    bench.fail_over()
    bench.settle()
    bench.step(
        MarkersWritten(producer_id=5, producer_epoch=0, partitions=frozenset({OUT0}), now_ms=0)
    )
    bench.pass_time(10 * TIMEOUT_MS)
    bench.settle()
    assert not bench.written
    assert bench.enlist(5, OUT1).error is ErrorCode.UNKNOWN_SERVER_ERROR
    for key in content:
        if isinstance(key, LedgerKey):
            assert bench.join(2, query=key.query).error is ErrorCode.UNKNOWN_SERVER_ERROR
    other = bench.attempt(0, OUT0, sink="other")
    assert bench.commit(0, other, sink="other").error is ErrorCode.NONE
