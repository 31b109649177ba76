"""The origins of rows that a sink has committed: what another query has copied is not copied again.
Each rule is taken out as well. Source: R-SPARK3."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transactions import TransactionCoordinator
from storage_engine.tests.core.transactions.coordinator_bench import (
    OUT0,
    CoordinatorBench,
    error,
)
from storage_engine.tests.core.transactions.missing_rules import (
    ForgetsOrigins,
    with_rules,
)

SOURCE = TopicPartition("source", 0)


def two_queries_copy_one_source(factory) -> None:
    bench = CoordinatorBench(factory)
    mine = bench.join(0, query="a")
    theirs = bench.join(0, query="b")
    assert mine.origins == theirs.origins == {}
    bench.enlist(mine.producer_id, OUT0)
    moved = bench.commit(0, theirs.producer_id, query="b", origins={SOURCE: 9})
    assert error(moved) is ErrorCode.NONE
    bench.fail_over()
    bench.settle()
    lost = bench.commit(0, mine.producer_id, query="a", origins={SOURCE: 5})
    assert error(lost) is ErrorCode.MEMBER_LOST, "its rows are there already"
    again = bench.join(0, query="a")
    assert again.origins == {SOURCE: 9}
    kept = bench.commit(0, again.producer_id, query="a", origins={SOURCE: 5})
    assert error(kept) is ErrorCode.NONE
    assert bench.join(1, query="a") is not None
    bench.settle()
    assert bench.join(1, query="a").origins == {SOURCE: 9}, "origins never go back"


def test_rows_that_another_query_has_copied_meanwhile_are_not_committed_again():
    two_queries_copy_one_source(TransactionCoordinator)
    with pytest.raises(AssertionError):
        two_queries_copy_one_source(with_rules(ForgetsOrigins))


def test_queries_with_other_sources_do_not_disturb_one_another():
    bench = CoordinatorBench()
    mine = bench.attempt(0, query="a")
    unkeyed = bench.attempt(0, query="c")
    elsewhere = {TopicPartition("source", 1): 9}
    assert error(bench.commit(0, bench.attempt(0, query="b"), query="b", origins=elsewhere)) == 0
    assert error(bench.commit(0, mine, query="a", origins={SOURCE: 5})) == 0
    assert error(bench.commit(0, unkeyed, query="c")) == 0


def test_a_query_is_not_disturbed_by_its_own_last_batch():
    """Its next tasks may join before the commit."""
    bench = CoordinatorBench()
    following = bench.attempt(1)
    assert error(bench.commit(0, bench.attempt(0), origins={SOURCE: 5})) == 0
    bench.settle()
    bench.fail_over()
    bench.settle()
    assert error(bench.commit(1, following, origins={SOURCE: 6})) == 0


def test_origins_of_a_commit_that_is_not_replicated_are_told_only_with_it():
    bench = CoordinatorBench()
    bench.commit(0, bench.attempt(0), origins={SOURCE: 9}, replicate=False)
    told = bench.join(0, query="another", replicate=False)
    assert told is None
    bench.fail_over()
    bench.replicate()
    assert bench.join(0, query="another").origins == {}


def test_a_task_of_a_committed_batch_is_told_the_origins_of_its_sink():
    bench = CoordinatorBench()
    bench.commit(0, bench.attempt(0), origins={SOURCE: 9})
    bench.commit(0, bench.attempt(0, sink="other"), sink="other", origins={SOURCE: 99})
    bench.fail_over()
    bench.settle()
    told = bench.join(0)
    assert (error(told), told.origins) == (ErrorCode.ALREADY_COMMITTED, {SOURCE: 9})
    # Those of another query that is not replicated yet may still be lost.
    bench.commit(0, bench.attempt(0, query="b"), query="b", origins={SOURCE: 12}, replicate=False)
    assert bench.join(0, replicate=False) is None
    assert bench.join(0).origins == {SOURCE: 12}
