"""The committed offsets of one group beside those of open transactions. KIP-98."""

import time

import pytest

from storage_engine.core.groups.events import DeleteOffsets
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.core.groups.group_bench import T0, T1, G, GroupBench

OTHER = TopicPartition("u", 0)


@pytest.mark.parametrize("fails_over", [False, True])
def test_the_offset_that_was_written_later_counts_however_late_the_marker(fails_over):
    bench = GroupBench(initial_delay_ms=0)
    bench.commit({T0: 5}, producer=(7, 0))
    bench.commit({T0: 6}, producer=(8, 0))
    bench.commit({T1: 7}, producer=(8, 0))
    bench.commit({T1: 8})
    if fails_over:
        bench.fail_over()
    for producer_id in (8, 7):
        bench.end_transaction(producer_id, commits=True)
    if fails_over:
        bench.fail_over()
    assert bench.offsets() == {T0: 6, T1: 8}


def test_to_delete_many_offsets_costs_no_look_into_each_transaction_for_each_of_them():
    """A request may name a quarter of a million partitions: with two thousand open transactions
    that took the event loop a minute."""
    named = [TopicPartition("t", number) for number in range(10_000)]

    def took(transactions: int) -> float:
        bench = GroupBench(initial_delay_ms=0)
        for producer_id in range(transactions):
            bench.commit({OTHER: producer_id}, producer=(producer_id, 0), replicate=False)
        bench.commit({T0: 1})
        began = time.process_time()
        bench.ask(lambda n: DeleteOffsets(request=n, group_id=G, partitions=[*named, OTHER]))
        took = time.process_time() - began
        bench.end_transaction(0, commits=True)
        assert bench.offsets() == {}
        bench.fail_over()
        assert bench.offsets() == {}
        return took

    assert took(1_000) < 30 * took(1)
