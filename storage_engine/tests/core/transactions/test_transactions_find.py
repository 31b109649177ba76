"""A coordinator says that it has no transaction of a producer with a partition only when that stays
true: leaders abort what no coordinator knows."""

import pytest

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_events import FindTransaction
from storage_engine.core.transactions.transaction_state import LedgerKey
from storage_engine.tests.core.transactions.coordinator_bench import (
    OUT0,
    OUT1,
    TIMEOUT_MS,
    CoordinatorBench,
    error,
)
from storage_engine.tests.core.transactions.producer_bench import started

KNOWN, NOBODYS = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE


def found(
    bench: CoordinatorBench, producer_id: int, tp: TopicPartition = OUT0, *, replicate: bool = False
) -> ErrorCode | None:
    """None: not answered yet."""
    answer = bench.ask(
        lambda n: FindTransaction(request=n, producer_id=producer_id, partitions=frozenset([tp])),
        replicate=replicate,
    )
    return error(answer)


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_a_producers_transaction_is_known_until_its_end_is_replicated(commits, bumps):
    bench, producer = started()
    producer_id = producer[0]
    assert found(bench, producer_id) is NOBODYS
    bench.add(producer, OUT0)
    assert found(bench, producer_id) is KNOWN
    assert found(bench, producer_id, OUT1) is NOBODYS
    bench.fail_over()
    bench.replicate()
    assert found(bench, producer_id) is KNOWN
    bench.end(producer, commits=commits, bumps=bumps)
    assert found(bench, producer_id) is KNOWN
    bench.fail_over()
    bench.replicate()
    assert found(bench, producer_id) is KNOWN
    bench.write_markers()
    # The next coordinator may know it again.
    assert found(bench, producer_id) is None
    assert found(bench, producer_id, replicate=True) is NOBODYS
    bench.fail_over()
    assert found(bench, producer_id) is None
    assert found(bench, producer_id, replicate=True) is NOBODYS


@pytest.mark.parametrize("ends", ["committed", "swept", "timed out"])
def test_a_member_is_known_until_its_end_is_replicated(ends):
    bench = CoordinatorBench()
    bench.replicate()
    member, other = bench.attempt(0, OUT0), bench.attempt(0, OUT1)
    assert (found(bench, member), found(bench, member, OUT1)) == (KNOWN, NOBODYS)
    if ends == "timed out":
        bench.pass_time(TIMEOUT_MS)
        bench.replicate()
    else:
        bench.commit(0, member if ends == "committed" else other)
    for _ in range(2):
        assert (found(bench, member), found(bench, member, OUT1)) == (KNOWN, NOBODYS)
        bench.fail_over()
        bench.replicate()
    bench.write_markers()
    assert found(bench, member) is None
    bench.settle()
    assert found(bench, member) is NOBODYS


def test_nobodys_is_said_by_no_coordinator_with_a_record_that_it_can_not_read():
    """It may be of that producer."""
    bench = CoordinatorBench()
    bench.log.append((LedgerKey("s", "q"), UnreadableRecord("of a later version")))
    bench.replicated = 1
    bench.fail_over()
    bench.replicate()
    assert found(bench, 7) is ErrorCode.UNKNOWN_SERVER_ERROR
