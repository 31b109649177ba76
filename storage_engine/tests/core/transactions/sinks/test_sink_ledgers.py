"""Batch writes without a name, which nobody can repeat, are forgotten in time. Source: R-SPARK2."""

from uuid import UUID

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.sink_ledgers import MOST_FORGOTTEN
from storage_engine.core.transactions.transaction_state import (
    NO_QUERY,
    ONCE_PREFIX,
    LedgerKey,
    LedgerRecord,
    Origin,
    named_write,
)
from storage_engine.core.transactions.transactions import (
    EXPIRATION_MS,
    SINK_TIMEOUT_MAX_MS,
    TransactionCoordinator,
)
from storage_engine.protocol.state.transaction_records import encode_record
from storage_engine.tests.core.transactions.coordinator_bench import OUT0, CoordinatorBench


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


def test_many_writes_that_are_over_are_folded_a_part_a_tick_in_one_record_a_sink():
    bench = CoordinatorBench()
    for number in range(3 * MOST_FORGOTTEN):
        origins = {OUT0: Origin(number, number), TopicPartition("other", number): Origin(1, number)}
        key = LedgerKey(f"s{number % 2}", f"{ONCE_PREFIX}{number}")
        bench.log.append((key, LedgerRecord(last=0, once_ms=0, origins=origins)))
    bench.replicated = len(bench.log)
    bench.fail_over()
    bench.replicate()
    for tick in range(3):
        size = len(bench.log)
        bench.pass_time(EXPIRATION_MS if tick == 0 else 0)
        written = bench.log[size:]
        assert [key.query for key, _ in written[:2]] == [NO_QUERY, NO_QUERY]
        assert [record for _, record in written[2:]] == [None] * MOST_FORGOTTEN
        # What a failover finds of them: the first ones, however few.
        bench.fail_over(keep=5)
        assert _origins(bench) == {
            OUT0: 3 * MOST_FORGOTTEN - 2,
            **{TopicPartition("other", number): 1 for number in range(0, 3 * MOST_FORGOTTEN, 2)},
        }
        bench.log = bench.log[:size] + written
        bench.replicated = len(bench.log)
        bench.fail_over()
        bench.replicate()
    bench.pass_time(0)
    assert {key.query for key, _ in bench.coordinator.batches.ledgers()} == {NO_QUERY}


def _origins(bench: CoordinatorBench):
    return dict(bench.coordinator.batches._ledgers.origins_of("s0").offsets)


def test_a_query_that_has_only_tried_is_forgotten_in_time():
    bench = CoordinatorBench()
    run, tried = UUID(int=1), {"q", "owner"}
    bench.join(0, run=run)
    bench.join(0, query=named_write("t", 0), owner="owner", run=run)
    bench.commit(0, bench.attempt(0, query="done", run=run), query="done", run=run)
    bench.settle()

    def known() -> set[str]:
        return {key.query for key, _ in bench.coordinator.batches.ledgers()}

    bench.pass_time(SINK_TIMEOUT_MAX_MS)
    bench.settle()
    assert known() == {"done", *tried}
    bench.pass_time(EXPIRATION_MS - 1)
    assert known() == {"done", *tried}
    bench.join(1, query=named_write("t", 1), owner="owner", run=run)
    bench.pass_time(1)
    bench.settle()
    bench.fail_over()
    bench.replicate()
    assert known() == {"done", "owner"} | {named_write("t", 1)}
    for _ in range(2):
        bench.pass_time(EXPIRATION_MS)
        bench.settle()
    assert known() == {"done"}
    assert bench.join(1, query="done", run=UUID(int=2)).error is ErrorCode.NONE
    assert bench.join(1, query="done", run=run).error is ErrorCode.RUN_REPLACED


def test_origins_that_no_record_can_hold_are_refused_and_none_are_lost():
    """Two writes at once, each of which has room alone."""
    bench = CoordinatorBench(lambda: TransactionCoordinator(max_message_bytes=20_000))
    names = [ONCE_PREFIX + "1", ONCE_PREFIX + "2", named_write("t", 0), named_write("t", 1)]
    copied: dict[TopicPartition, int] = {}
    for base, query in enumerate(names):
        batch = max(0, base - 2)
        origins = {TopicPartition("source", 1000 * base + each): 5 for each in range(300)}
        winner = bench.attempt(batch, query=query)
        assert bench.commit(batch, winner, query=query, origins=origins).error is ErrorCode.NONE
        copied |= origins
    bench.settle()
    for ms in (0, EXPIRATION_MS, 0):
        bench.pass_time(ms)
        bench.settle()
        bench.fail_over()
        bench.replicate()
        assert bench.join(0, query="after").origins == copied
    with_origins = [r for _, r in bench.coordinator.batches.ledgers() if r.origins]
    assert {len(record.origins) for record in with_origins} == {300}
    size = len(bench.log)
    for query in ("stream", ONCE_PREFIX + "3", named_write("t", 2)):
        batch = 2
        winner = bench.attempt(batch, query=query)
        much = {TopicPartition("more", each): 5 for each in range(900)}
        told = bench.commit(batch, winner, query=query, origins=much)
        assert told.error is ErrorCode.MESSAGE_TOO_LARGE
        few = {TopicPartition("source", each): 9 for each in range(300)}
        told = bench.commit(batch, winner, query=query, origins=few)
        assert told.error is ErrorCode.NONE, "it has room where others of these sources are"
        bench.settle()
    largest = max(len(encode_record(record)) for _, record in bench.log if record is not None)
    assert size < len(bench.log) and largest < 20_000
