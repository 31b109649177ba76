"""The waits of records, as the benchmark of groups counts them."""

from benchmarks.groups.restarts import PARTITIONS, Waits


def test_the_longest_wait_of_each_partition_is_taken_once():
    waits = Waits()
    waits.read(1, 10.0, 12.0)
    waits.read(1, 11.0, 12.5)
    waits.read(3, 12.0, 12.5)
    taken = waits.take()
    assert len(taken) == PARTITIONS
    assert (taken[1], taken[3], taken[0]) == (2.0, 0.5, 0.0)
    assert waits.take() == [0.0] * PARTITIONS
