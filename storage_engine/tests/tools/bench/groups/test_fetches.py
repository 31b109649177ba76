"""Owners and pauses, as the benchmark of groups counts them."""

import pytest

from benchmarks.groups.fetches import Ownership, Pauses


@pytest.fixture
def shared() -> Ownership:
    ownership = Ownership(4)
    ownership.change("a", [], [0, 1], 1.0)
    ownership.change("b", [], [2, 3], 2.0)
    return ownership


def test_a_topic_is_shared_when_each_partition_has_one_owner_and_shares_are_even(shared):
    assert shared.is_shared_by(2)
    assert not shared.is_shared_by(3), "one that has nothing"
    shared.change("b", [2, 3], [3], 3.0)
    assert not shared.is_shared_by(2), "a partition of nobody"
    shared.change("a", [0, 1], [0, 1, 2], 4.0)
    assert not shared.is_shared_by(2), "parts of three and one"


def test_a_partition_of_two_is_nobodys(shared):
    shared.change("b", [2, 3], [1, 2, 3], 3.0)
    assert shared.owners() == ["a", None, "b", "b"]
    assert not shared.is_shared_by(2)


def test_only_a_change_counts_as_one(shared):
    shared.change("a", [0, 1], [1, 0], 9.0)
    assert shared.changed_s == 2.0


def test_the_longest_pause_is_of_partitions_that_keep_their_owner():
    pauses = Pauses(3)
    pauses.fetched("a", [0, 1, 2], 1.0)
    pauses.begin(["a", "a", "a"])
    pauses.fetched("a", [0, 1], 1.5)
    pauses.fetched("a", [0, 1], 2.5)
    pauses.fetched("b", [2], 9.0)
    assert pauses.longest_s(["a", "a", "b"], 3.0) == 1.0


def test_a_pause_that_has_not_ended_counts():
    pauses = Pauses(1)
    pauses.fetched("a", [0], 1.0)
    pauses.begin(["a"])
    assert pauses.longest_s(["a"], 4.0) == 3.0


def test_a_pause_that_ended_before_the_window_does_not_count():
    pauses = Pauses(1)
    pauses.fetched("a", [0], 1.0)
    pauses.fetched("a", [0], 5.0)
    pauses.begin(["a"])
    pauses.fetched("a", [0], 5.5)
    assert pauses.longest_s(["a"], 6.0) == 0.5


def test_without_a_partition_that_keeps_its_owner_there_is_no_figure_that_looks_good():
    pauses = Pauses(1)
    pauses.begin(["a"])
    assert pauses.longest_s(["b"], 1.0) == float("inf")
