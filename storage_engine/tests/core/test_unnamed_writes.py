"""What batch writes without a name leave behind, which nobody can repeat. Source: R-SPARK2."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.sink_names import NO_QUERY, ONCE_PREFIX, named_write
from storage_engine.core.transaction_state import LedgerKey
from storage_engine.core.transactions import (
    EXPIRATION_MS,
    SINK_TIMEOUT_MAX_MS,
    TransactionCoordinator,
)
from storage_engine.tests.core.coordinator_bench import OUT0, CoordinatorBench


def test_what_a_write_without_a_name_has_committed_is_forgotten_in_time():
    """Not before an attempt of it could still be at work, and nothing that may be repeated."""
    bench = CoordinatorBench()
    once = ONCE_PREFIX + "write"
    named = named_write("t", 0)
    names = {"once": once, "streaming": "query", "named": named}
    for query in names.values():
        assert bench.commit(0, bench.attempt(0, query=query), query=query).error is ErrorCode.NONE
    with_origins = ONCE_PREFIX + "by origin"
    copied = bench.attempt(0, query=with_origins)
    answer = bench.commit(0, copied, query=with_origins, origins={OUT0: 7})
    assert answer.error is ErrorCode.NONE
    bench.pass_time(EXPIRATION_MS)
    assert len(dict(bench.coordinator.batches.ledgers())) == 4, "the markers are not written"
    bench.settle()
    bench.fail_over()
    bench.replicate()
    bench.pass_time(0)
    bench.settle()
    kept = {key.query for key, _ in bench.coordinator.batches.ledgers()}
    assert kept == {"query", named, NO_QUERY}
    assert (LedgerKey("s", once), None) in bench.log
    bench.fail_over()
    assert {key.query for key, _ in bench.coordinator.batches.ledgers()} == kept
    bench.replicate()
    late = bench.commit(0, 101, query=once)
    assert late.error is ErrorCode.MEMBER_LOST, "a driver from long ago commits nothing"
    for query in ("query", named):
        assert bench.join(0, query=query).error is ErrorCode.ALREADY_COMMITTED
    assert bench.join(1, query="query").origins == {OUT0: 7}, "they are the sink's now"


@pytest.mark.parametrize("expiration_ms", [1, 2 * SINK_TIMEOUT_MAX_MS])
def test_a_write_without_a_name_is_known_as_long_as_its_attempts_may_be_at_work(expiration_ms):
    bench = CoordinatorBench(lambda: TransactionCoordinator(expiration_ms=expiration_ms))
    once = ONCE_PREFIX + "write"
    winner = bench.attempt(0, query=once)
    bench.commit(0, winner, query=once)
    bench.settle()
    bench.pass_time(max(expiration_ms, SINK_TIMEOUT_MAX_MS) - 1)
    again = bench.commit(0, winner, query=once)
    assert again.error is ErrorCode.ALREADY_COMMITTED
    bench.pass_time(1)
    assert not dict(bench.coordinator.batches.ledgers())
